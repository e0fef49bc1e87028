/* Speech: what a screen reader is told. */

let speaking = 0;

/** Tell a screen reader, once things have come to rest. */
function say(text) {
  clearTimeout(speaking);
  speaking = setTimeout(() => (element("news").textContent = text), 400);
}

function sayShares() {
  const parts = shownMaps().map((map) => `${nameOf(map)}, ${numbersOf(map)}: ${keyInWords(map)}`);
  const test = state.view === "labels" ? `, τ ${state.first.test.taus[state.tau].tau}` : "";
  say(`${VIEWS[state.view].name}, top ${state.level} %${test}. ${parts.join(" ")}`);
}
