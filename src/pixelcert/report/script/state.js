/* The state: the index of all maps, the maps on show and their settings, and how maps are loaded. */

const KEPT = 32; // maps kept unpacked: a study has thousands

const element = (id) => document.getElementById(id);
const index = JSON.parse(element("index").textContent);
const CORRECTED = index.tests.every(({ correction }) => correction !== "none"); // else no label carries a promise

const state = {
  wanted: [null, null], // the entries asked for; the second is kept while nothing is compared
  maps: [], // one or two of them with their counts, once they are loaded
  comparing: false,
  level: null, // K
  tau: 0, // place in the test's list
  refusedTau: null, // place of a τ that someone tried and that is out of reach
  view: "labels",
  opacity: 0.8,
  pixel: null, // {x, y}
};

const showsLabels = () => state.view === "labels"; // the only view that depends on τ

/* A map at the chosen K and τ: its nearest level, its votes, its test's numbers at τ, and its certificate. */
const nearest = (levels, level) =>
  levels.reduce((best, other) => (Math.abs(other - level) < Math.abs(best - level) ? other : best));
const levelOf = (map) => nearest(map.levels, state.level);
const votesOf = (map) => votesAt(map, levelOf(map));
const atTau = ({ test }) => test.taus[state.tau];
const certificateOf = (map) => certify(map, levelOf(map), atTau(map));

// Chunks: counts and pictures, inside the page or as scripts in the folder beside it

const loading = new Map(); // name of a chunk → promise of its text: two maps may wait for one photograph
const receivers = new Map(); // name of a chunk → what takes its text when its script has run
globalThis.pixelcertChunk = (name, text) => receivers.get(name)?.(text);

function loadText(name) {
  if (!index.folder) return element(name).textContent;
  if (!loading.has(name)) loading.set(name, runScript(name));
  return loading.get(name);
}

function runScript(name) {
  return new Promise((resolve, reject) => {
    const src = `${encodeURIComponent(index.folder)}/${name}.js`;
    const script = Object.assign(document.createElement("script"), { src });
    const end = (finish, value) => {
      loading.delete(name);
      receivers.delete(name);
      script.remove();
      finish(value);
    };
    receivers.set(name, (text) => end(resolve, text));
    script.onerror = () => end(reject, new Error(`${index.folder}/${name}.js is not there`));
    document.head.append(script);
  });
}

const loadBytes = async (name) => Uint8Array.from(atob(await loadText(name)), (letter) => letter.charCodeAt(0));
const loadPng = async (name) => new Blob([await loadBytes(name)], { type: "image/png" });

const kept = new Map(); // name of counts → promise of them and of the photograph, the latest used last

async function loadMap(entry) {
  const load = () =>
    Promise.all([loadBytes(entry.counts).then(unpack), entry.photo && loadPng(entry.photo).then(createImageBitmap)]);
  const found = kept.get(entry.counts) ?? load();
  kept.delete(entry.counts);
  kept.set(entry.counts, found);
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  try {
    const [counts, photo] = await found;
    return { entry, test: index.tests[entry.test], photo, ...counts, votes: new Map() };
  } catch (error) {
    kept.delete(entry.counts);
    throw error;
  }
}
