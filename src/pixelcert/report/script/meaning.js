/* What a map means: its promise, the model's answer, the facts. */

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
