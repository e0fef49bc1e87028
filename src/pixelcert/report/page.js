"use strict";
/* The page of pixelcert. It packs out counts, looks thresholds up and paints; every threshold and radius was computed by
   the library and stands in the index. All names are put in as text, never as HTML. */

const index = JSON.parse(document.getElementById("index").textContent);
const ABSTAIN = -1;
const KEPT = 32; // maps kept unpacked: a study has thousands
const WASH = 0.55; // how far a photograph is lightened below a map: black is then lighter than half of white
const element = (id) => document.getElementById(id);
const HINT = element("pixel").textContent;
const CORRECTED = index.tests.every(({ correction }) => correction !== "none"); // else no label carries a promise

const state = {
  wanted: [null, null], // the entries asked for
  first: null, // one of them with its counts, once they are there
  second: null,
  comparing: false,
  level: null, // K
  tau: 0, // place in the test's list
  view: "labels",
  opacity: 0.8,
  pixel: null, // {x, y}
  wish: null, // a τ out of reach that someone tried
};

// ── Small things ───────────────────────────────────────────────────────────────────────────────────────────────────

function make(tag, properties = {}, ...children) {
  const { style, ...rest } = properties;
  const made = Object.assign(document.createElement(tag), rest);
  Object.assign(made.style, style);
  made.append(...children);
  return made;
}

/** A number rounded down, so that no promise grows by printing it. */
function roundedDown(value, digits = 4) {
  return (Math.floor(value * 10 ** digits) / 10 ** digits).toFixed(digits);
}

// Ties go to the even digit, and the share is divided before it is multiplied, as in Python: the terminal says the same.
const oneDigit = new Intl.NumberFormat("en", {
  minimumFractionDigits: 1, maximumFractionDigits: 1, roundingMode: "halfEven", useGrouping: false,
});
const percent = (part, whole) => `${oneDigit.format(100 * (part / whole))} %`;
const clamp = (place, count) => Math.min(count - 1, Math.max(0, place));
const css = (colour) => `rgb(${colour.join(" ")})`;
const choiceOf = (entry, facet) => index.facets[facet].values[entry.choices[facet]];
const testOf = (entry) => index.tests[entry.test];

// ── Chunks: counts and pictures, inside the page or in the folder beside it ─────────────────────────────────────────

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

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** What the library's `pack` packed: a line of JSON, then planes of counts as differences from pixel to pixel. */
async function unpack(name) {
  const bytes = await inflate(await bytesOf(name));
  const end = bytes.indexOf(10);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
  const Kind = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array }[header.bytes];
  const counts = new Kind(bytes.slice(end + 1).buffer);
  for (let i = 1; i < counts.length; i++) counts[i] += counts[i - 1]; // wraps around, as it should
  return { ...header, counts };
}

const kept = new Map(); // name of counts → promise of them, the latest used last

async function mapOf(entry) {
  const load = () => Promise.all([unpack(entry.counts), entry.photo && pictureOf(entry.photo)]);
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

// ── Certifying ─────────────────────────────────────────────────────────────────────────────────────────────────────

/** Votes at one level: for both labels, and those of them that may be tested. */
function votesAt(map, level) {
  const place = map.levels.indexOf(level);
  if (!map.derived.has(place)) map.derived.set(place, deriveVotes(map, place));
  return map.derived.get(place);
}

function deriveVotes({ counts, levels, size, test }, place) {
  const pixels = size[0] * size[1];
  const plane = (kind) => counts.subarray((kind * levels.length + place) * pixels).subarray(0, pixels);
  const ones = plane(0);
  const zeros = ones.map((one, i) => test.n - one - plane(1)[i]);
  const tested = test.guess ? afterGuess(ones, zeros, plane(2), test.guess) : { ones, zeros };
  return { ones, zeros, tested, atLeast: countAtLeast(tested, test.tested) };
}

/** The published test guesses each label from the first samples, and tests it on the others. Samples that vote for
    neither label leave fewer votes than were guessed, so that differences may be negative: the arrays have a sign. */
function afterGuess(ones, zeros, guessOnes, guess) {
  const guessedOne = (i) => 2 * guessOnes[i] > guess;
  return {
    ones: Int32Array.from(ones, (one, i) => (guessedOne(i) ? one - guessOnes[i] : 0)),
    zeros: Int32Array.from(zeros, (zero, i) => (guessedOne(i) ? 0 : zero - (guess - guessOnes[i]))),
  };
}

/** How many pixels have at least k votes for one label, for every k. */
function countAtLeast({ ones, zeros }, n) {
  const atLeast = new Uint32Array(n + 2);
  for (let i = 0; i < ones.length; i++) atLeast[Math.max(ones[i], zeros[i])]++;
  for (let k = n; k >= 0; k--) atLeast[k] += atLeast[k + 1];
  return atLeast;
}

/** Holm's threshold: pixels already certified stop counting. `steps` says how many votes are enough for how many open
    pixels; a test that takes one step has one row. */
function votesNeeded(atLeast, steps, pixels) {
  const enoughFor = (open) => steps.find(([, most]) => most >= open)[0];
  let needed = enoughFor(pixels);
  let certified = 0;
  while (certified < atLeast[needed] && atLeast[needed] < pixels) {
    certified = atLeast[needed];
    needed = enoughFor(pixels - certified);
  }
  return needed;
}

/** Labels at K and τ, the votes they needed, and how many pixels have each; all abstain where τ is out of reach. */
function certify(map, level, tau) {
  const { tested, atLeast } = votesAt(map, level);
  const { steps } = map.test.taus[tau];
  const needed = steps ? votesNeeded(atLeast, steps, tested.ones.length) : Infinity;
  const labels = new Int8Array(tested.ones.length);
  const shares = { ones: 0, zeros: 0, abstained: 0 };
  for (let i = 0; i < labels.length; i++) {
    labels[i] = tested.ones[i] >= needed ? 1 : tested.zeros[i] >= needed ? 0 : ABSTAIN;
    shares[labels[i] === 1 ? "ones" : labels[i] === 0 ? "zeros" : "abstained"]++;
  }
  return { labels, needed, ...shares };
}

/** The level of a map that is nearest to the one asked for. */
function nearest(map, level) {
  return map.levels.reduce((best, other) => (Math.abs(other - level) < Math.abs(best - level) ? other : best));
}

const radiusOf = (map, votes, i) => map.test.radii[Math.max(votes.ones[i], votes.zeros[i])];
const largestRadius = (...maps) => Math.max(...maps.map((map) => map.test.radii[map.test.n]));

// ── Painting ───────────────────────────────────────────────────────────────────────────────────────────────────────

const VIEWS = {
  labels: {
    name: CORRECTED ? "certified map" : "map without correction",
    paint: paintLabels, key: showShares, promise: promiseOfLabels,
    lead: CORRECTED
      ? "Most noisy copies have the coloured pixels in the top K\u00a0% of their explanation and the white ones " +
        "outside, and no change of the image below R turns these majorities round. Grey pixels carry no promise."
      : "Coloured pixels passed a test of their own as inside the top K\u00a0% of the explanation, white ones as " +
        "outside. It was not corrected for many pixels: for study only.",
  },
  radius: {
    name: "radius map", paint: paintRadii, key: showRadii, promise: ({ radiusPromise }) => radiusPromise,
    lead: "Each pixel has a majority label: in the top K\u00a0% of most noisy copies' explanations, or outside. Its " +
      "colour says below which change of the image that majority cannot turn. Grey pixels carry no promise.",
  },
  smoothed: {
    name: "smoothed map", paint: paintSmoothed, key: showSmoothed,
    promise: () => "This view shows what was counted. It promises nothing: see the other two.",
    lead: "The darker a pixel, the more of the noisy copies had it in the top K\u00a0% of their explanation.",
  },
};

/** The colour of each pixel, as a function of its place. */
function paintLabels(map, level) {
  const { labels } = certify(map, level, state.tau);
  const { zero, abstained } = index.palette;
  const one = map.colours[map.levels.indexOf(level)];
  return (i) => (labels[i] === 1 ? one : labels[i] === 0 ? zero : abstained);
}

function paintRadii(map, level) {
  const votes = votesAt(map, level);
  const top = largestRadius(...shownMaps());
  return (i) => {
    const radius = radiusOf(map, votes, i);
    return radius > 0 ? index.palette.radius[Math.round((255 * radius) / top)] : index.palette.abstained;
  };
}

function paintSmoothed(map, level) {
  const { ones } = votesAt(map, level);
  return (i) => Array(3).fill(Math.round(255 * (1 - ones[i] / map.test.n)));
}

function picture(map, level) {
  const [height, width] = map.size;
  const image = new ImageData(width, height);
  const colourOf = VIEWS[state.view].paint(map, level);
  for (let i = 0; i < width * height; i++) {
    const [red, green, blue] = colourOf(i);
    image.data.set([red, green, blue, 255], 4 * i);
  }
  const canvas = make("canvas", { width, height });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** The photograph with the map over it, one pixel for one pixel. It is lightened, for over plain black white looks as
    grey does over white, and two labels would be one. */
function draw(canvas, map, level) {
  [canvas.height, canvas.width] = map.size;
  const context = canvas.getContext("2d");
  context.fillStyle = "#ececec"; // where there is no photograph
  context.fillRect(0, 0, canvas.width, canvas.height);
  if (map.photo) {
    context.drawImage(map.photo, 0, 0, canvas.width, canvas.height);
    context.globalAlpha = Math.min(WASH, state.opacity); // alone it is left as it is
    context.fillStyle = "#ffffff";
    context.fillRect(0, 0, canvas.width, canvas.height);
  }
  context.globalAlpha = state.opacity;
  context.drawImage(picture(map, level), 0, 0);
}

// ── A map on the page ──────────────────────────────────────────────────────────────────────────────────────────────

const shownMaps = () => [state.first, state.comparing ? state.second : null].filter(Boolean);

const titleOf = ({ entry }) => `${choiceOf(entry, 2)} at ${choiceOf(entry, 3)}, ${choiceOf(entry, 1)}`;

/** A name that no other map shown has: where method, layer and model are the same, what else was chosen. */
function nameOf(map) {
  const others = shownMaps().filter((other) => other !== map);
  const differs = (place) => others.some(({ entry }) => entry.choices[place] !== map.entry.choices[place]);
  const more = index.facets.map(({ name, shown }, place) =>
    place > 3 && shown && differs(place) ? `, ${name} ${choiceOf(map.entry, place)}` : "");
  return titleOf(map) + more.join("");
}

/** R where it is promised, σ and n: maps side by side may differ in all of them. */
function numbersOf({ test }) {
  const { radius, steps } = test.taus[state.tau];
  const within = state.view === "labels" && CORRECTED && steps ? `R = ${roundedDown(radius)}, ` : "";
  return `${within}σ = ${test.sigma}, n = ${test.n}`;
}

/** What is said of the maps: once if it is the same of all, else under the name of each. */
function ofEach(textOf) {
  const maps = shownMaps();
  const said = maps.map(textOf);
  if (new Set(said).size === 1) return said[0];
  return said.map((text, i) => text && `${nameOf(maps[i])}: ${text}`).filter(Boolean).join("\n");
}

function buildFigure(figure) {
  const canvas = make("canvas", { className: "pixels", tabIndex: 0 });
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-roledescription", "map of pixels");
  const marker = make("div", { className: "marker", hidden: true });
  const key = make("div", { className: "key", id: `${figure.id}-key` });
  canvas.setAttribute("aria-describedby", key.id);
  figure.append(make("figcaption"), make("div", { className: "frame" }, canvas, marker), key);
  canvas.addEventListener("pointermove", (event) => lookAt(pixelUnder(canvas, event)));
  canvas.addEventListener("pointerdown", (event) => lookAt(pixelUnder(canvas, event)));
  canvas.addEventListener("keydown", moveByKey);
}

function showFigure(figure, map) {
  const level = nearest(map, state.level);
  const canvas = figure.querySelector("canvas.pixels");
  const line = (textContent) => make("span", { textContent });
  figure.querySelector("figcaption").replaceChildren(
    titleOf(map),
    line(`${choiceOf(map.entry, 0)}, explains ${map.target}, ${VIEWS[state.view].name}`),
    line(`K = ${level} %, ${numbersOf(map)}`),
  );
  draw(canvas, map, level);
  const what = `${VIEWS[state.view].name} of ${choiceOf(map.entry, 0)} by ${nameOf(map)}, top ${level} %`;
  canvas.setAttribute("aria-label", `${what}. Arrow keys move from pixel to pixel.`);
  figure.querySelector(".key").replaceChildren(...VIEWS[state.view].key(map, level));
}

const WORDS = CORRECTED
  ? { ones: "robustly in", zeros: "robustly out", abstained: "no promise" }
  : { ones: "in", zeros: "out", abstained: "neither" };
const NAMES = { 1: WORDS.ones, 0: WORDS.zeros, [ABSTAIN]: WORDS.abstained };

const correctionOf = ({ correction }) => (CORRECTED ? correction : "not corrected for many pixels: for study only");
const testInWords = (test) => (CORRECTED ? `α = ${test.alpha}, ${test.correction}` : correctionOf(test));

/** The shares are the legend: what each colour means, and how much of the map it is. */
function showShares(map, level) {
  const found = certify(map, level, state.tau);
  const one = map.colours[map.levels.indexOf(level)];
  const colours = { ones: one, zeros: index.palette.zero, abstained: index.palette.abstained };
  const pixels = found.labels.length;
  const items = Object.keys(WORDS).map((share) => {
    const swatch = make("span", { className: "swatch", style: { background: css(colours[share]) } });
    const number = make("b", { textContent: percent(found[share], pixels) });
    return make("li", {}, swatch, number, make("span", { textContent: WORDS[share] }));
  });
  const bars = Object.keys(WORDS).map((share) =>
    make("div", { style: { background: css(colours[share]), width: `${(100 * found[share]) / pixels}%` } }),
  );
  const bar = make("div", { className: "bar" }, ...bars);
  bar.setAttribute("aria-hidden", "true");
  const nearby = level === state.level ? "" : `These votes have no K = ${state.level} %: K = ${level} % is shown. `;
  const count = Number.isFinite(found.needed)
    ? `${nearby}A label needed ${found.needed} of ${map.test.tested} votes (${correctionOf(map.test)}).`
    : `${nearby}${outOfReach(map.test, state.tau)}`;
  return [make("ul", { className: "shares" }, ...items), bar, make("p", { className: "small", textContent: count })];
}

function scale(colourOf, low, high, words) {
  const canvas = make("canvas", { width: 256, height: 1 });
  const context = canvas.getContext("2d");
  for (let i = 0; i < 256; i++) {
    context.fillStyle = css(colourOf(i));
    context.fillRect(i, 0, 1, 1);
  }
  canvas.setAttribute("aria-hidden", "true");
  const ends = make("div", {}, make("span", { textContent: low }), make("span", { textContent: high }));
  return [make("div", { className: "scale" }, canvas, ends), make("p", { className: "small", textContent: words })];
}

function showRadii(map, level) {
  const votes = votesAt(map, level);
  const all = Float64Array.from(votes.ones, (_, i) => radiusOf(map, votes, i));
  const radii = all.filter((radius) => radius > 0).sort();
  const middle = radii.length ? `, half of them of at least ${roundedDown(radii[radii.length >> 1])}` : "";
  const words = `${percent(radii.length, votes.ones.length)} of the pixels have a radius${middle}; grey: none.`;
  const top = roundedDown(largestRadius(...shownMaps()));
  return scale((i) => index.palette.radius[i], "0", top, `${words} Of the majority label, for all τ together.`);
}

function showSmoothed() {
  const shade = (i) => Array(3).fill(255 - i);
  return scale(shade, "never", "always", "How often the pixel was in the top K % under noise. Counted, not certified.");
}

// ── One pixel ──────────────────────────────────────────────────────────────────────────────────────────────────────

function pixelUnder(canvas, event) {
  const box = canvas.getBoundingClientRect();
  const place = (share, count) => clamp(Math.floor(share * count), count);
  return {
    x: place((event.clientX - box.left) / box.width, canvas.width),
    y: place((event.clientY - box.top) / box.height, canvas.height),
  };
}

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function moveByKey(event) {
  const step = STEPS[event.key];
  if (!step || !state.first) return;
  event.preventDefault();
  const [height, width] = state.first.size;
  const { x, y } = state.pixel ?? { x: (width >> 1) - step[0], y: (height >> 1) - step[1] };
  const far = event.shiftKey ? 10 : 1;
  lookAt({ x: clamp(x + far * step[0], width), y: clamp(y + far * step[1], height) });
  say(element("pixel").textContent);
}

function lookAt(pixel) {
  if (!state.first) return;
  state.pixel = pixel;
  showPixel();
}

function showPixel() {
  const maps = shownMaps();
  for (const [figure, map] of [["first", maps[0]], ["second", maps[1]]]) placeMarker(element(figure), map);
  if (!state.pixel) {
    element("pixel").textContent = HINT;
    return;
  }
  const { x, y } = state.pixel;
  const lines = maps.filter((map) => y < map.size[0] && x < map.size[1]).map((map) => describePixel(map, x, y));
  element("pixel").textContent = [`Row ${y + 1}, column ${x + 1}`, ...lines, ABOUT_RADII[state.view]].join("\n").trim();
}

const ABOUT_RADII = {
  labels: CORRECTED
    ? "Own radii hold for all τ at once, with an α of their own: so one can be smaller than the R of a certified label."
    : "",
  radius: "Own radii hold for all τ at once, with an α of their own.",
  smoothed: "",
};

function placeMarker(figure, map) {
  const marker = figure.querySelector(".marker");
  marker.hidden = !map || !state.pixel;
  if (marker.hidden) return;
  const [height, width] = map.size;
  Object.assign(marker.style, {
    left: `${(100 * (state.pixel.x + 0.5)) / width}%`, top: `${(100 * (state.pixel.y + 0.5)) / height}%`,
    width: `${100 / width}%`, height: `${100 / height}%`,
  });
}

function describePixel(map, x, y) {
  const level = nearest(map, state.level);
  const votes = votesAt(map, level);
  const i = y * map.size[1] + x;
  const neither = map.test.n - votes.ones[i] - votes.zeros[i];
  const counts = [`${votes.ones[i]} votes in the top ${level} %`, `${votes.zeros[i]} outside`];
  if (neither) counts.push(`${neither} neither`);
  const name = state.second ? `${nameOf(map)}: ` : "";
  return `${name}${counts.join(", ")}, of ${map.test.n}. ${VERDICTS[state.view](map, level, votes, i)}`.trim();
}

/** What is claimed of a pixel in each view: the label at τ and the own radius are claims apart, the counts are none. */
const VERDICTS = {
  labels: (map, level, votes, i) => `${labelInWords(map, level, i)}; ${ownRadius(map, votes, i)}.`,
  radius: (map, level, votes, i) => `Majority label: ${ownRadius(map, votes, i)}.`,
  smoothed: () => "",
};

function labelInWords(map, level, i) {
  const label = certify(map, level, state.tau).labels[i];
  const { tau, radius } = map.test.taus[state.tau];
  const within = CORRECTED && label !== ABSTAIN ? ` within R = ${roundedDown(radius)}` : "";
  const warning = CORRECTED ? "" : ` (${correctionOf(map.test)})`;
  return `At τ = ${tau}: ${NAMES[label]}${within}${warning}`;
}

function ownRadius(map, votes, i) {
  const radius = radiusOf(map, votes, i);
  const greys = radius > 0 ? ` (${roundedDown(255 * radius, 1)} grey levels on one value)` : "";
  return `own radius ${radius > 0 ? roundedDown(radius) : 0}${greys}`;
}

// ── Choices ────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Walk down the lists: keep the wished value where it exists, else take the first that does. */
function findEntry(wishes, entries) {
  let left = entries;
  index.facets.forEach((_, facet) => {
    const fitting = left.filter((entry) => entry.choices[facet] === wishes[facet]);
    left = fitting.length ? fitting : left.filter((entry) => entry.choices[facet] === left[0].choices[facet]);
  });
  return left[0];
}

/** Lists for `entry`, each offering what those before it leave open of `entries`. */
function showChoices(box, entry, entries, from, choose) {
  const active = document.activeElement?.id;
  let left = entries;
  const made = [];
  index.facets.forEach((facet, place) => {
    const open = [...new Set(left.map((other) => other.choices[place]))];
    if (facet.shown && place >= from) made.push(choiceBox(box.id, facet, place, open, entry, choose));
    left = left.filter((other) => other.choices[place] === entry.choices[place]);
  });
  box.replaceChildren(...made);
  if (active?.startsWith(`${box.id}-`)) element(active)?.focus();
}

function choiceBox(prefix, facet, place, open, entry, choose) {
  if (open.length === 1) {
    const only = make("span", { className: "only", textContent: facet.values[open[0]] });
    return make("div", { className: "choice" }, make("span", { textContent: facet.name }), only);
  }
  const id = `${prefix}-${place}`;
  const options = open.map((value) => make("option", { value, textContent: facet.values[value] }));
  const select = make("select", { id }, ...options);
  select.value = entry.choices[place];
  select.addEventListener("change", () => choose(place, Number(select.value)));
  return make("div", { className: "choice" }, make("label", { htmlFor: id, textContent: facet.name }), select);
}

let latest = 0; // loads that were overtaken are dropped

/** Show `first`, and beside it another map of the very same image. */
async function goTo(first, second) {
  const mine = ++latest;
  const choose = (place, value) => goTo(findEntry(first.choices.with(place, value), index.entries), second);
  showChoices(element("choices"), first, index.entries, 0, choose);
  const sameImage = index.entries.filter((entry) => entry.image === first.image);
  const rivals = sameImage.filter((entry) => entry !== first);
  const other = state.comparing && rivals.length ? rivalOf(first, second, sameImage, rivals) : null;
  state.wanted = [first, other ?? second];
  fitComparison(rivals.length > 0, other !== null);
  if (other) {
    const chooseOther = (place, value) => goTo(first, findEntry(other.choices.with(place, value), rivals));
    const from = new Set(rivals.map((entry) => entry.choices[0])).size > 1 ? 0 : 1; // an image may have two names
    showChoices(element("other-choices"), other, rivals, from, chooseOther);
  }
  try {
    const maps = await Promise.all([mapOf(first), other && mapOf(other)]);
    if (mine !== latest) return;
    [state.first, state.second] = maps;
    element("trouble").hidden = true;
    element("controls").inert = false;
    element("save").disabled = false;
    fitControls();
    show();
  } catch (error) {
    if (mine === latest) complain(error);
  }
}

/** Something to compare with: as asked, or the next entry of the same image; never the first one itself. */
function rivalOf(first, second, sameImage, rivals) {
  return second ? findEntry(second.choices, rivals) : sameImage[(sameImage.indexOf(first) + 1) % sameImage.length];
}

function fitComparison(possible, comparing) {
  element("compare").disabled = !possible;
  element("compare-text").textContent = possible ? "Compare with a second map" : "There is no other map of this image";
  element("other-choices").hidden = !comparing;
}

/** Say what is wrong until something loads, and leave nothing of an earlier map under the new name. */
function complain(error) {
  const remedy = index.folder ? ` Keep the folder ${index.folder} beside this page.` : "";
  [state.first, state.second] = [null, null];
  for (const id of ["first", "second"]) blank(element(id));
  for (const id of ["promise", "answer", "radius-text", "reach", "beforehand", "pixel"]) element(id).textContent = "";
  element("facts").replaceChildren();
  element("agreement").hidden = true;
  element("save").disabled = true;
  element("trouble").textContent = `This map cannot be shown (${error.message}).${remedy}`;
  element("trouble").hidden = false;
  say(element("trouble").textContent);
}

function blank(figure) {
  const canvas = figure.querySelector("canvas.pixels");
  canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
  canvas.setAttribute("aria-label", "No map");
  figure.querySelector("figcaption").replaceChildren();
  figure.querySelector(".key").replaceChildren();
  figure.querySelector(".marker").hidden = true;
}

// ── Controls ───────────────────────────────────────────────────────────────────────────────────────────────────────

const reachable = (test) => test.taus.filter(({ steps }) => steps).length; // τ come in order, and low ones are easier

function outOfReach(test, tau) {
  const { tau: value, fewest } = test.taus[tau];
  return `τ = ${value} is out of reach: it needs n ≥ ${fewest}, these votes have n = ${test.n}.`;
}

/** Sliders for what the first map offers. */
function fitControls() {
  const { levels, test } = state.first;
  state.level ??= levels[levels.length >> 1];
  state.level = nearest(state.first, state.level);
  element("level").max = levels.length - 1;
  element("level").value = levels.indexOf(state.level);
  element("tau").max = test.taus.length - 1;
  setTau(state.tau);
}

/** Take a τ that is in reach; of one that is not, say what it needs. */
function setTau(wish) {
  const { test } = state.first;
  const count = reachable(test);
  state.tau = Math.max(0, Math.min(wish, count - 1));
  state.wish = wish > state.tau || count === 0 ? wish : null;
  element("tau").value = state.tau;
  element("tau").style.setProperty("--reach", `${(100 * Math.max(0, count - 1)) / (test.taus.length - 1)}%`);
}

function showControls() {
  const { test } = state.first;
  const { tau } = test.taus[state.tau];
  const sure = state.view === "labels";
  element("level").setAttribute("aria-valuetext", `top ${state.level} %`);
  element("level-text").textContent = `${state.level} %`;
  element("tau").disabled = !sure;
  element("tau-text").textContent = tau;
  element("radius-text").replaceChildren(...(sure && CORRECTED ? radiiInWords() : []));
  element("tau").setAttribute("aria-valuetext", `τ ${tau}, ${spokenRadii()}`);
  element("beforehand").textContent = beforehand();
  element("reach").textContent = sure ? reachInWords(test) : "This view does not depend on τ.";
  element("opacity-text").textContent = `${Math.round(100 * state.opacity)} %`;
}

/** τ gives each map an R by its own σ. */
function radiiInWords() {
  const reached = shownMaps().filter(({ test }) => test.taus[state.tau].steps);
  const radii = reached.map(({ test }) => test.taus[state.tau].radius);
  const words = (map) => radiusInWords(map.test.taus[state.tau].radius, map.test.values);
  if (new Set(radii).size < 2) return reached.slice(0, 1).flatMap(words);
  return reached.flatMap((map) => [make("span", { textContent: nameOf(map) }), ...words(map)]);
}

function spokenRadii() {
  const spoken = shownMaps().map(({ test }) => {
    const { radius, steps } = test.taus[state.tau];
    return steps ? `radius ${roundedDown(radius)}` : "out of reach";
  });
  return [...new Set(spoken)].join(" and ");
}

/** A threshold picked after looking is picked for what it shows. */
function beforehand() {
  const { tau } = state.first.test.taus[state.tau];
  if (state.view !== "labels" || !CORRECTED || tau === index.tau) return "";
  return `τ = ${index.tau} was set beforehand. Choosing another after looking weakens the promise.`;
}

function radiusInWords(radius, values) {
  if (radius === 0) return ["R = 0, which promises nothing: raise τ."];
  const one = roundedDown(255 * radius, 1);
  const every = roundedDown((255 * radius) / Math.sqrt(values), 3);
  const greys = `for pixels in [0, 1]; ${one} grey levels on one value, or ${every} on every value`;
  return [`R = ${roundedDown(radius)}`, make("span", { textContent: greys })];
}

function reachInWords(test) {
  const count = reachable(test);
  if (state.wish !== null) return outOfReach(test, state.wish);
  if (count === test.taus.length) return "";
  const next = test.taus[count];
  return `With n = ${test.n} samples τ reaches ${test.taus[count - 1].tau}; ${next.tau} needs n ≥ ${next.fewest}.`;
}

// ── Comparison ─────────────────────────────────────────────────────────────────────────────────────────────────────

function showAgreement() {
  element("agreement").hidden = !state.second || state.view !== "labels";
  if (element("agreement").hidden) return;
  const [first, second] = [state.first, state.second];
  if (String(first.size) !== String(second.size)) {
    element("agreement-text").textContent = "The two maps have different sizes, so their pixels cannot be compared.";
    element("agreement-table").replaceChildren();
    return;
  }
  const labels = shownMaps().map((map) => certify(map, nearest(map, state.level), state.tau).labels);
  showCrossTable(crossTable(...labels), labels[0].length, `${nameOf(first)} (rows)`, `${nameOf(second)} (columns)`);
}

/** How many pixels have label a in one map and b in the other: table[a][b]. */
function crossTable(first, second) {
  const row = () => ({ 1: 0, 0: 0, [ABSTAIN]: 0 });
  const table = { 1: row(), 0: row(), [ABSTAIN]: row() };
  for (let i = 0; i < first.length; i++) table[first[i]][second[i]]++;
  return table;
}

function showCrossTable(table, pixels, rows, columns) {
  const same = table[1][1] + table[0][0];
  const both = same + table[1][0] + table[0][1];
  const sure = CORRECTED ? "certified" : "labelled";
  element("agreement-text").textContent = both
    ? `${percent(both, pixels)} of the pixels are ${sure} in both maps. ` +
      `Of these, ${percent(same, both)} have the same label; ${both - same} pixels differ.`
    : `No pixel is ${sure} in both maps.`;
  const names = [1, 0, ABSTAIN].map((label) => [label, NAMES[label]]);
  const body = names.map(([a, name]) => [name, ...names.map(([b]) => percent(table[a][b], pixels))]);
  const headings = ["", ...names.map(([, name]) => name)];
  fillTable(element("agreement-table"), `${rows} and ${columns}, in percent of all pixels`, headings, body);
}

/** A table whose first cells, `named` many, name their rows. */
function fillTable(table, caption, headings, rows, named = 1) {
  const heading = (textContent, i) => make("th", { scope: "col", textContent, className: i < named ? "" : "number" });
  const cell = (textContent, i) => (i < named ? make("th", { scope: "row", textContent }) : make("td", { textContent }));
  const body = rows.map((cells) => make("tr", {}, ...cells.map(cell)));
  table.replaceChildren(
    make("caption", { textContent: caption }),
    make("thead", {}, make("tr", {}, ...headings.map(heading))),
    make("tbody", {}, ...body),
  );
}

// ── Words ──────────────────────────────────────────────────────────────────────────────────────────────────────────

function promiseOfLabels(test) {
  const { radius, steps } = test.taus[state.tau];
  return steps ? test.promise.replace("{R}", roundedDown(radius)) : outOfReach(test, state.tau);
}

function showMeaning() {
  element("lead").textContent = VIEWS[state.view].lead;
  element("promise").textContent = ofEach(({ test }) => VIEWS[state.view].promise(test));
  element("answer").textContent = ofEach(answerInWords);
  element("facts").replaceChildren(...shownMaps().flatMap(factsOf));
}

function factsOf(map) {
  const own = { Test: testInWords(map.test), ...map.facts };
  const pair = ([name, text]) => [make("dt", { textContent: name }), make("dd", { textContent: text })];
  const list = make("dl", {}, ...Object.entries(own).flatMap(pair));
  return state.second ? [make("h3", { textContent: nameOf(map) }), list] : [list];
}

/** The verdict shares α with the labels at τ, so it stands beside them alone. */
function answerInWords({ answer, test }) {
  if (!answer) return "";
  const { prediction: needed } = test.taus[state.tau];
  const enough = answer.votes >= needed ? "certified" : `not certified, ${needed} are needed`;
  const tested = needed ? ` (${enough})` : " (not tested beside the pixels)";
  const verdict = state.view === "labels" && CORRECTED ? tested : "";
  return `The model answers ${answer.name} in ${answer.votes} of ${test.n} noisy copies${verdict}.`;
}

let speaking = 0;

/** Tell a screen reader, once things have come to rest. */
function say(text) {
  clearTimeout(speaking);
  speaking = setTimeout(() => (element("news").textContent = text), 400);
}

/** What is written below a map. */
function keyInWords(map) {
  const figure = element(map === state.first ? "first" : "second");
  return figure.querySelector(".key").innerText.replaceAll(/\s+/g, " ");
}

function sayShares() {
  const parts = shownMaps().map((map) => `${nameOf(map)}, ${numbersOf(map)}: ${keyInWords(map)}`);
  const test = state.view === "labels" ? `, τ ${state.first.test.taus[state.tau].tau}` : "";
  say(`${VIEWS[state.view].name}, top ${state.level} %${test}. ${parts.join(" ")}`);
}

// ── Saving ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const MARGIN = 24;
const LINE = 20;
const HEAD = 3 * LINE; // image, name and numbers of a map

/** The view as a picture of its own: title, maps enlarged by a whole number, shares and the promise. */
function compose() {
  const maps = shownMaps();
  const factor = Math.max(1, Math.floor(480 / Math.max(...maps.flatMap((map) => map.size))));
  const widths = maps.map((map) => Math.max(factor * map.size[1], 320));
  const tall = factor * Math.max(...maps.map((map) => map.size[0]));
  const canvas = make("canvas", { width: widths.reduce((sum, width) => sum + width + MARGIN, MARGIN) });
  const text = [settingInWords(), element("promise").textContent, beforehand()].join("\n").trim();
  const lines = text.split("\n").flatMap((part) => wrap(part, canvas.width - 2 * MARGIN));
  canvas.height = MARGIN + HEAD + tall + (4 + lines.length) * LINE + MARGIN;
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingEnabled = false;
  let left = MARGIN;
  maps.forEach((map, i) => {
    drawSaved(context, map, left, factor, widths[i], tall);
    left += widths[i] + MARGIN;
  });
  write(context, lines, MARGIN, MARGIN + HEAD + tall + 4 * LINE);
  return canvas;
}

function drawSaved(context, map, left, factor, width, tall) {
  const level = nearest(map, state.level);
  const own = make("canvas");
  draw(own, map, level);
  const top = MARGIN + HEAD;
  const head = [choiceOf(map.entry, 0), nameOf(map), `K = ${level} %, ${numbersOf(map)}`];
  const titles = head.flatMap((text) => wrap(text, width).slice(0, 1));
  write(context, titles, left, MARGIN);
  context.drawImage(own, left, top, factor * own.width, factor * own.height);
  write(context, wrap(keyInWords(map), width).slice(0, 3), left, top + tall + LINE / 2);
}

function write(context, lines, x, y) {
  context.font = "14px system-ui, sans-serif";
  context.fillStyle = "#1f2328";
  context.textBaseline = "top";
  lines.forEach((line, i) => context.fillText(line, x, y + i * LINE));
}

/** Text in lines that fit. */
function wrap(text, width) {
  const context = make("canvas").getContext("2d");
  context.font = "14px system-ui, sans-serif";
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && context.measureText(longer).width > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

const settingOf = (map) => `K = ${nearest(map, state.level)} %, ${numbersOf(map)}, ${testInWords(map.test)}`;

function settingInWords() {
  const tau = state.view === "labels" ? `, τ = ${state.first.test.taus[state.tau].tau}` : "";
  return `${VIEWS[state.view].name}${tau}\n${ofEach(settingOf)}`;
}

function save() {
  const { entry, test } = state.first;
  const tau = state.view === "labels" ? [`tau${test.taus[state.tau].tau}`] : [];
  const parts = [choiceOf(entry, 0), choiceOf(entry, 2), choiceOf(entry, 3), state.view, `K${state.level}`, ...tau];
  const name = `${parts.join("-").replaceAll(/[^\w.-]+/g, "_")}.png`;
  compose().toBlob((blob) => {
    const link = make("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    say(`Saved ${name}.`);
  });
}

// ── The study ──────────────────────────────────────────────────────────────────────────────────────────────────────

function showStudy() {
  const { study } = index;
  if (!study) return;
  element("study").hidden = false;
  element("study-title").textContent = `The whole study: ${study.name}`;
  if (study.tables.length) showSummaries(study);
  const figures = element("figures");
  figures.hidden = study.figures.length === 0;
  figures.addEventListener("toggle", () => loadFigures(figures, study.figures), { once: true });
  figures.open = !index.folder && !figures.hidden;
}

function showSummaries({ tables, columns }) {
  const options = tables.map(({ caption }, i) => make("option", { value: i, textContent: caption }));
  const select = make("select", { id: "study-point" }, ...options);
  const label = make("label", { htmlFor: select.id, textContent: "Setting" });
  const fill = () => {
    const { caption, lines } = tables[Number(select.value)];
    const rows = lines.map(({ names, cells }) => [...names, ...cells]);
    fillTable(element("study-table"), caption, ["model", "layer", "method", ...columns, "mean rank"], rows, 3);
  };
  select.addEventListener("change", fill);
  if (tables.length > 1) element("study-choice").append(make("div", { className: "choice" }, label, select));
  fill();
}

async function loadFigures(box, figures) {
  for (const { name, about, chunk } of figures) {
    const image = make("img", { alt: `Figure of the study: ${about}` });
    box.append(make("figure", {}, image, make("figcaption", { className: "small", textContent: name })));
    try {
      image.src = URL.createObjectURL(new Blob([await bytesOf(chunk)], { type: "image/png" }));
    } catch (error) {
      image.alt += ` (${error.message})`;
    }
  }
}

// ── All together ───────────────────────────────────────────────────────────────────────────────────────────────────

function show() {
  if (!state.first) return; // nothing has loaded
  const maps = shownMaps();
  element("explorer").classList.toggle("two", maps.length > 1);
  element("second").hidden = maps.length < 2;
  showFigure(element("first"), maps[0]);
  if (maps[1]) showFigure(element("second"), maps[1]);
  showControls();
  showAgreement();
  showMeaning();
  showPixel();
  sayShares();
}

function listen() {
  const on = (id, event, act) => element(id).addEventListener(event, act);
  on("level", "input", (event) => state.first && ((state.level = state.first.levels[event.target.value]), show()));
  on("tau", "input", (event) => state.first && (setTau(Number(event.target.value)), show()));
  on("opacity", "input", (event) => ((state.opacity = event.target.value / 100), show()));
  on("save", "click", save);
  on("compare", "change", (event) => {
    state.comparing = event.target.checked;
    goTo(...state.wanted);
  });
  for (const input of document.querySelectorAll("input[name=view]")) {
    input.addEventListener("change", () => ((state.view = input.value), show()));
  }
}

function start() {
  buildFigure(element("first"));
  buildFigure(element("second"));
  listen();
  const [first] = index.entries;
  state.tau = testOf(first).taus.findIndex(({ tau }) => tau === index.tau);
  for (const id of ["guaranteed", "errors"]) element(id).hidden = !CORRECTED;
  showStudy();
  goTo(first, null);
}

start();
