/* One pixel: pointed at, walked to, and put in words. */

const HINT = element("pixel").textContent;

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
