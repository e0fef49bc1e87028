/* The key below a map: what its colours mean. */

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

/** What is written below a map. */
function keyInWords(map) {
  const figure = element(map === state.first ? "first" : "second");
  return figure.querySelector(".key").innerText.replaceAll(/\s+/g, " ");
}
