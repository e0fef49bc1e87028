/* The sliders, and what they say of K, τ and R. */

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
