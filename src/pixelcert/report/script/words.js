/* The words: numbers as printed, and what the page says of views, maps, radii, answers and pixels. */

/** Return a number from 0 rounded down, so that no promise grows when it is printed: its exact decimals, cut off. */
function roundedDown(value, digits = 4) {
  const exact = value.toFixed(100);
  return exact.slice(0, exact.length - 100 + digits);
}

// Ties go to the even digit, and division comes first, as in Python: the terminal prints the same.
const oneDigit = new Intl.NumberFormat("en", {
  minimumFractionDigits: 1, maximumFractionDigits: 1, roundingMode: "halfEven", useGrouping: false,
});
const percent = (part, whole) => `${oneDigit.format(100 * (part / whole))} %`;

// Views

const ABOUT_RADII = "Own radii hold for all τ at once, with their own α";
const VIEWS = {
  labels: {
    name: CORRECTED ? "certified map" : "map without correction",
    lead: CORRECTED
      ? "Each coloured pixel is in the top K\u00a0% of most noisy copies' explanations, each white one outside. No " +
        "change of the image smaller than R reverses these majorities. Grey pixels carry no promise."
      : "Each coloured pixel passed its own test as inside the top K\u00a0% of the explanation, each white one as " +
        "outside. These tests are not corrected for many pixels: for study only.",
    promiseOf: promiseOfLabels,
    sayPixel: (map, i) => `${labelInWords(map, i)}; ${ownRadius(map, i)}.`,
    aboutRadii: CORRECTED ? `${ABOUT_RADII}. So an own radius can be smaller than the R of a certified label.` : "",
  },
  radius: {
    name: "radius map",
    lead: "Each pixel has a majority label: in the top K\u00a0% of most noisy copies' explanations, or outside. Its " +
      "colour shows its radius: no smaller change of the image reverses that majority. Grey pixels carry no promise.",
    promiseOf: ({ test }) => test.radiusPromise,
    sayPixel: (map, i) => `Majority label: ${ownRadius(map, i)}.`,
    aboutRadii: `${ABOUT_RADII}.`,
  },
  smoothed: {
    name: "smoothed map",
    lead: "The darker a pixel, the more noisy copies have it in the top K\u00a0% of their explanation.",
    promiseOf: () => "This view shows the counted votes. It promises nothing: see the other two views.",
    sayPixel: () => "",
    aboutRadii: "",
  },
};
const view = () => VIEWS[state.view];

function promiseOfLabels(map) {
  const { radius, steps } = atTau(map);
  return steps ? map.test.promise.replace("{R}", roundedDown(radius)) : outOfReach(map.test, state.tau);
}

// Maps

const [IMAGE, MODEL, METHOD, LAYER] = [0, 1, 2, 3]; // the lists that every page has, in the order of the index
const choiceOf = ({ entry }, list) => index.facets[list].values[entry.choices[list]];
const titleOf = (map) => `${choiceOf(map, METHOD)} at ${choiceOf(map, LAYER)}, ${choiceOf(map, MODEL)}`;

/** Return a name that no other shown map has: the title, and what else differs between the maps. */
function nameOf(map) {
  const differs = (list) => state.maps.some(({ entry }) => entry.choices[list] !== map.entry.choices[list]);
  const more = index.facets.map(({ name, shown }, list) =>
    list > LAYER && shown && differs(list) ? `, ${name} ${choiceOf(map, list)}` : "");
  return titleOf(map) + more.join("");
}

/** Return R if it is promised, σ and n: two maps may differ in all of them. */
function numbersOf(map) {
  const { radius, steps } = atTau(map);
  const within = showsLabels() && CORRECTED && steps ? `R = ${roundedDown(radius)}, ` : "";
  return `${within}σ = ${map.test.sigma}, n = ${map.test.n}`;
}

const levelAndNumbers = (map) => `K = ${levelOf(map)} %, ${numbersOf(map)}`;

const correctionOf = ({ test }) => (CORRECTED ? test.correction : "not corrected for many pixels: for study only");
const testInWords = (map) => (CORRECTED ? `α = ${map.test.alpha}, ` : "") + correctionOf(map);

/** Say something of the maps: once if it is the same for all, else under the name of each. */
function ofEach(textOf) {
  const texts = state.maps.map(textOf);
  if (new Set(texts).size === 1) return texts[0];
  return texts.map((text, i) => text && `${nameOf(state.maps[i])}: ${text}`).filter(Boolean).join("\n");
}

function settingsInWords() {
  const tau = showsLabels() ? `, τ = ${atTau(state.maps[0]).tau}` : "";
  return `${view().name}${tau}\n${ofEach((map) => `${levelAndNumbers(map)}, ${testInWords(map)}`)}`;
}

// Radii and the reach of τ

function outOfReach({ taus, n }, place) {
  return `τ = ${taus[place].tau} is out of reach: it needs n ≥ ${taus[place].fewest}, these votes have n = ${n}.`;
}

const countReachable = ({ taus }) => taus.filter(({ steps }) => steps).length; // low τ come first, and are easier

function reachInWords(test) {
  const count = countReachable(test);
  if (state.refusedTau !== null) return outOfReach(test, state.refusedTau);
  if (count === test.taus.length) return "";
  const next = test.taus[count];
  return `With n = ${test.n} samples τ reaches ${test.taus[count - 1].tau}; ${next.tau} needs n ≥ ${next.fewest}.`;
}

/** Say that τ was chosen after looking: then it may have been chosen for what it shows. */
function lateTauInWords() {
  if (!showsLabels() || !CORRECTED || atTau(state.maps[0]).tau === index.tau) return "";
  return `τ = ${index.tau} was set beforehand. Choosing another after looking weakens the promise.`;
}

function radiiForSpeech() {
  const radii = state.maps.map(atTau).map(({ radius, steps }) =>
    steps ? `radius ${roundedDown(radius)}` : "out of reach");
  return [...new Set(radii)].join(" and ");
}

/** Say the model's answer. Its verdict shares α with the labels at τ, so only the view of labels gives it. */
function answerInWords(map) {
  const { answer, test } = map;
  if (!answer) return "";
  const needed = atTau(map).prediction;
  const enough = answer.votes >= needed ? "certified" : `not certified, ${needed} are needed`;
  const tested = needed ? ` (${enough})` : " (not tested together with the pixels)";
  const verdict = showsLabels() && CORRECTED ? tested : "";
  return `The model answers ${answer.name} in ${answer.votes} of ${test.n} noisy copies${verdict}.`;
}

// Pixels

const LABEL_NAMES = CORRECTED
  ? { 1: "robustly in", 0: "robustly out", [ABSTAIN]: "no promise" }
  : { 1: "in", 0: "out", [ABSTAIN]: "neither" };

/** Say a pixel's votes and what is claimed of it. Label and own radius are separate claims, the votes are none. */
function pixelInWords(map, { x, y }) {
  const i = y * map.size[1] + x;
  const { n } = map.test;
  const { ones, zeros } = votesOf(map);
  const neither = n - ones[i] - zeros[i];
  const counts = [`${ones[i]} votes in the top ${levelOf(map)} %`, `${zeros[i]} outside`];
  if (neither) counts.push(`${neither} neither`);
  const name = state.maps[1] ? `${nameOf(map)}: ` : "";
  return `${name}${counts.join(", ")}, of ${n}. ${view().sayPixel(map, i)}`.trim();
}

function labelInWords(map, i) {
  const label = certificateOf(map).labels[i];
  const { tau, radius } = atTau(map);
  const within = CORRECTED && label !== ABSTAIN ? ` within R = ${roundedDown(radius)}` : "";
  const warning = CORRECTED ? "" : ` (${correctionOf(map)})`;
  return `At τ = ${tau}: ${LABEL_NAMES[label]}${within}${warning}`;
}

function ownRadius(map, i) {
  const radius = radiusAt(map, votesOf(map), i);
  return radius > 0
    ? `own radius ${roundedDown(radius)} (${roundedDown(255 * radius, 1)} grey levels on one value)`
    : "own radius 0";
}
