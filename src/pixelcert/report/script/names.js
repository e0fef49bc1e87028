/* What maps, labels and tests are called: the same words wherever one is named. */

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

const WORDS = CORRECTED
  ? { ones: "robustly in", zeros: "robustly out", abstained: "no promise" }
  : { ones: "in", zeros: "out", abstained: "neither" };
const NAMES = { 1: WORDS.ones, 0: WORDS.zeros, [ABSTAIN]: WORDS.abstained };

const correctionOf = ({ correction }) => (CORRECTED ? correction : "not corrected for many pixels: for study only");
const testInWords = (test) => (CORRECTED ? `α = ${test.alpha}, ${test.correction}` : correctionOf(test));
