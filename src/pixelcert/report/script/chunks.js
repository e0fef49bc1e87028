/* Chunks: counts and pictures, inside the page or in the folder beside it. */

const KEPT = 32; // maps kept unpacked: a study has thousands

const texts = new Map(); // name → what to call when the script of that chunk has run
globalThis.pixelcertChunk = (name, text) => texts.get(name)?.(text);

function textOf(name) {
  if (!index.folder) return Promise.resolve(element(name).textContent);
  return new Promise((resolve, reject) => {
    const script = make("script", { src: `${encodeURIComponent(index.folder)}/${name}.js` });
    const end = (finish, value) => {
      texts.delete(name);
      script.remove();
      finish(value);
    };
    texts.set(name, (text) => end(resolve, text));
    script.onerror = () => end(reject, new Error(`${index.folder}/${name}.js is not there`));
    document.head.append(script);
  });
}

async function bytesOf(name) {
  const text = atob(await textOf(name));
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}

async function pictureOf(name) {
  return createImageBitmap(new Blob([await bytesOf(name)], { type: "image/png" }));
}

const kept = new Map(); // name of counts → promise of them, the latest used last

async function mapOf(entry) {
  const load = () => Promise.all([bytesOf(entry.counts).then(unpack), entry.photo && pictureOf(entry.photo)]);
  const found = kept.get(entry.counts) ?? load();
  kept.delete(entry.counts);
  kept.set(entry.counts, found);
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  try {
    const [counts, photo] = await found;
    return { entry, test: testOf(entry), photo, ...counts, derived: new Map() };
  } catch (error) {
    kept.delete(entry.counts);
    throw error;
  }
}
