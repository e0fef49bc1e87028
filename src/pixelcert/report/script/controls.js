/* The controls: lists, sliders, pointer and keys, what a screen reader hears, and the start of the page. */

const clamp = (place, count) => Math.max(0, Math.min(place, count - 1));

// Lists: each offers what those before it leave open

/** Walk down the lists: keep the wished value if it exists, else take the first that does. */
function findEntry(wishes, entries) {
  let left = entries;
  index.facets.forEach((_, list) => {
    const fitting = left.filter((entry) => entry.choices[list] === wishes[list]);
    left = fitting.length ? fitting : left.filter((entry) => entry.choices[list] === left[0].choices[list]);
  });
  return left[0];
}

/** Show the lists of `entries` from number `from` on, set to `entry`; `open` opens the entry that someone chooses. */
function showLists(box, entry, entries, from, open) {
  const active = document.activeElement?.id;
  const made = [];
  let left = entries;
  index.facets.forEach((facet, list) => {
    const offered = [...new Set(left.map((other) => other.choices[list]))];
    const change = (value) => open(findEntry(entry.choices.with(list, value), entries));
    const id = `${box.id}-${list}`;
    if (facet.shown && list >= from) made.push(makeList(id, facet, offered, entry.choices[list], change));
    left = left.filter((other) => other.choices[list] === entry.choices[list]);
  });
  box.replaceChildren(...made);
  if (active?.startsWith(`${box.id}-`)) element(active)?.focus();
}

function makeList(id, { name, values }, offered, chosen, change) {
  if (offered.length === 1) {
    const only = makeText("span", values[chosen], { className: "only" });
    return make("div", { className: "choice" }, makeText("span", name), only);
  }
  const options = offered.map((value) => makeText("option", values[value], { value }));
  const select = make("select", { id }, ...options);
  select.value = chosen;
  select.addEventListener("change", () => change(Number(select.value)));
  return make("div", { className: "choice" }, makeText("label", name, { htmlFor: id }), select);
}

// Maps: opened as chosen, or the page says why not

let latest = 0; // loads that were overtaken are dropped

/** Show `first`, and beside it another map of the very same image. */
async function openMaps(first, second) {
  const mine = ++latest;
  showLists(element("choices"), first, index.entries, 0, (entry) => openMaps(entry, second));
  const sameImage = index.entries.filter((entry) => entry.image === first.image);
  const rivals = sameImage.filter((entry) => entry !== first);
  const other = state.comparing && rivals.length ? rivalOf(first, second, sameImage, rivals) : null;
  state.wanted = [first, other ?? second];
  element("compare").disabled = !rivals.length;
  element("compare-text").textContent =
    rivals.length ? "Compare with a second map" : "There is no other map of this image";
  element("other-choices").hidden = !other;
  if (other) {
    const from = new Set(rivals.map((entry) => entry.choices[IMAGE])).size > 1 ? IMAGE : MODEL; // one image, two names
    showLists(element("other-choices"), other, rivals, from, (entry) => openMaps(first, entry));
  }
  try {
    const maps = await Promise.all([first, other].filter(Boolean).map(loadMap));
    if (mine !== latest) return;
    state.maps = maps;
    element("trouble").hidden = true;
    element("controls").inert = false;
    element("save").disabled = false;
    fitSliders();
    show();
  } catch (error) {
    if (mine === latest) complain(error);
  }
}

/** Return the entry to compare with: as asked, or the next of the same image; never the first one itself. */
function rivalOf(first, second, sameImage, rivals) {
  return second ? findEntry(second.choices, rivals) : sameImage[(sameImage.indexOf(first) + 1) % sameImage.length];
}

/** Say what is wrong until a map loads, and leave nothing of an earlier map under the new name. */
function complain(error) {
  const remedy = index.folder ? ` Keep the folder ${index.folder} beside this page.` : "";
  state.maps = [];
  FIGURES.forEach(clearFigure);
  for (const id of ["promise", "answer", "radius-text", "reach", "beforehand", "pixel"]) element(id).textContent = "";
  element("facts").replaceChildren();
  element("agreement").hidden = true;
  element("save").disabled = true;
  element("trouble").textContent = `This map cannot be shown (${error.message}).${remedy}`;
  element("trouble").hidden = false;
  say(element("trouble").textContent);
}

// Sliders

/** Give the sliders the levels and thresholds of the first map. */
function fitSliders() {
  const [{ levels, test }] = state.maps;
  state.level = nearest(levels, state.level ?? levels[levels.length >> 1]);
  element("level").max = levels.length - 1;
  element("level").value = levels.indexOf(state.level);
  element("tau").max = test.taus.length - 1;
  setTau(state.tau);
}

/** Take the nearest τ that is in reach, and remember one that is not. */
function setTau(place) {
  const [{ test }] = state.maps;
  const count = countReachable(test);
  state.tau = clamp(place, count);
  state.refusedTau = place > state.tau || count === 0 ? place : null;
  element("tau").value = state.tau;
  element("tau").style.setProperty("--reach", `${(100 * Math.max(0, count - 1)) / (test.taus.length - 1)}%`);
}

function showControls() {
  const { tau } = atTau(state.maps[0]);
  element("level").setAttribute("aria-valuetext", `top ${state.level} %`);
  element("level-text").textContent = `${state.level} %`;
  element("tau").disabled = !showsLabels();
  element("tau").setAttribute("aria-valuetext", `τ ${tau}, ${radiiForSpeech()}`);
  element("tau-text").textContent = tau;
  element("radius-text").replaceChildren(...(showsLabels() && CORRECTED ? makeRadii() : []));
  element("beforehand").textContent = lateTauInWords();
  element("reach").textContent = showsLabels() ? reachInWords(state.maps[0].test) : "This view does not depend on τ.";
  element("opacity-text").textContent = `${Math.round(100 * state.opacity)} %`;
}

/** Make the line of R for each map that τ reaches: R depends on the map's own σ. */
function makeRadii() {
  const reached = state.maps.filter((map) => atTau(map).steps);
  if (new Set(reached.map((map) => atTau(map).radius)).size < 2) return reached.slice(0, 1).flatMap(makeRadius);
  return reached.flatMap((map) => [makeText("span", nameOf(map)), ...makeRadius(map)]);
}

function makeRadius(map) {
  const { radius } = atTau(map);
  if (radius === 0) return ["R = 0, which promises nothing: raise τ."];
  const one = roundedDown(255 * radius, 1);
  const every = roundedDown((255 * radius) / Math.sqrt(map.test.values), 3);
  const greys = `for pixels in [0, 1]; ${one} grey levels on one value, or ${every} on every value`;
  return [`R = ${roundedDown(radius)}`, makeText("span", greys)];
}

// Pixels: pointed at, or reached with the arrow keys

const HINT = element("pixel").textContent;
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function pointAt({ currentTarget: canvas, clientX, clientY }) {
  const box = canvas.getBoundingClientRect();
  const place = (share, count) => clamp(Math.floor(share * count), count);
  selectPixel({
    x: place((clientX - box.left) / box.width, canvas.width),
    y: place((clientY - box.top) / box.height, canvas.height),
  });
}

function moveByKey(event) {
  const step = STEPS[event.key];
  if (!step || !state.maps.length) return;
  event.preventDefault();
  const [height, width] = state.maps[0].size;
  const { x, y } = state.pixel ?? { x: (width >> 1) - step[0], y: (height >> 1) - step[1] };
  const far = event.shiftKey ? 10 : 1;
  selectPixel({ x: clamp(x + far * step[0], width), y: clamp(y + far * step[1], height) });
  say(element("pixel").textContent);
}

function selectPixel(pixel) {
  if (!state.maps.length) return;
  state.pixel = pixel;
  showPixel();
}

function showPixel() {
  FIGURES.forEach((figure, i) => placeMarker(figure, state.maps[i]));
  element("pixel").textContent = state.pixel ? describePixel(state.pixel) : HINT;
}

/** Describe the pixel in each map that has it: one chosen in a larger image is kept. */
function describePixel({ x, y }) {
  const lines = state.maps.filter(({ size }) => y < size[0] && x < size[1]).map((map) => pixelInWords(map, { x, y }));
  return [`Row ${y + 1}, column ${x + 1}`, ...lines, view().aboutRadii].join("\n").trim();
}

// Speech

let speaking = 0;

/** Tell a screen reader, once things have come to rest. */
function say(text) {
  clearTimeout(speaking);
  speaking = setTimeout(() => (element("news").textContent = text), 400);
}

function sayShares() {
  const tau = showsLabels() ? `, τ ${atTau(state.maps[0]).tau}` : "";
  const keys = state.maps.map((map, i) => `${nameOf(map)}, ${numbersOf(map)}: ${keyInWords(map, i)}`);
  say(`${view().name}, top ${state.level} %${tau}. ${keys.join(" ")}`);
}

// All together

/** Show the state after a change; nothing while no map is loaded. */
function show() {
  const { maps } = state;
  if (!maps.length) return;
  element("explorer").classList.toggle("two", maps.length > 1);
  element("second").hidden = maps.length < 2;
  maps.forEach((map, i) => showFigure(FIGURES[i], map));
  showControls();
  showAgreement();
  showMeaning();
  showPixel();
  sayShares();
}

function savePicture() {
  const tau = showsLabels() ? [`tau${atTau(state.maps[0]).tau}`] : [];
  const names = [IMAGE, METHOD, LAYER].map((list) => choiceOf(state.maps[0], list));
  const name = `${[...names, state.view, `K${state.level}`, ...tau].join("-").replaceAll(/[^\w.-]+/g, "_")}.png`;
  composePicture().toBlob((blob) => {
    const link = make("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    say(`Saved ${name}.`);
  });
}

function listen() {
  const on = (id, event, act) => element(id).addEventListener(event, ({ target }) => act(target));
  const onMap = (act) => (target) => state.maps.length && (act(target), show());
  on("level", "input", onMap(({ value }) => (state.level = state.maps[0].levels[value])));
  on("tau", "input", onMap(({ value }) => setTau(Number(value))));
  on("opacity", "input", ({ value }) => ((state.opacity = value / 100), show()));
  on("save", "click", savePicture);
  on("compare", "change", ({ checked }) => {
    state.comparing = checked;
    openMaps(...state.wanted);
  });
  for (const input of document.querySelectorAll("input[name=view]")) {
    input.addEventListener("change", () => ((state.view = input.value), show()));
  }
  for (const canvas of FIGURES.map(canvasOf)) {
    canvas.addEventListener("pointermove", pointAt);
    canvas.addEventListener("pointerdown", pointAt);
    canvas.addEventListener("keydown", moveByKey);
  }
}

function start() {
  FIGURES.forEach(buildFigure);
  listen();
  const [first] = index.entries;
  state.tau = index.tests[first.test].taus.findIndex(({ tau }) => tau === index.tau);
  for (const id of ["guaranteed", "errors"]) element(id).hidden = !CORRECTED;
  showStudy();
  openMaps(first, null);
}

start();
