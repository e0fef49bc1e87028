/* The drawing: elements, maps over photographs with their keys, the agreement of two maps, and the saved picture. */

function make(tag, properties = {}, ...children) {
  const { style, ...rest } = properties;
  const made = Object.assign(document.createElement(tag), rest);
  Object.assign(made.style, style);
  made.append(...children);
  return made;
}

const makeText = (tag, textContent, more = {}) => make(tag, { textContent, ...more });
const css = (colour) => `rgb(${colour.join(" ")})`;

/** Fill a table whose first `named` cells name their row. */
function fillTable(table, caption, headings, rows, named = 1) {
  const heading = (text, i) => makeText("th", text, { scope: "col", className: i < named ? "" : "number" });
  const cell = (text, i) => (i < named ? makeText("th", text, { scope: "row" }) : makeText("td", text));
  table.replaceChildren(
    makeText("caption", caption),
    make("thead", {}, make("tr", {}, ...headings.map(heading))),
    make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map(cell)))),
  );
}

// Maps over photographs

const WASH = 0.55; // how far a photograph is lightened below a map: black is then lighter than half of white

const grey = (value) => [value, value, value];

function coloursOfLabels(map) {
  const { zero, abstained } = index.palette;
  return { 1: map.colours[map.levels.indexOf(levelOf(map))], 0: zero, [ABSTAIN]: abstained };
}

/** Painters, one per view: each returns a function from a pixel's place to its colour. */
const PAINTERS = {
  labels(map) {
    const { labels } = certificateOf(map);
    const colours = coloursOfLabels(map);
    return (i) => colours[labels[i]];
  },
  radius(map) {
    const votes = votesOf(map);
    const top = largestRadius(state.maps);
    return (i) => {
      const radius = radiusAt(map, votes, i);
      return radius > 0 ? index.palette.radius[Math.round((255 * radius) / top)] : index.palette.abstained;
    };
  },
  smoothed(map) {
    const { ones } = votesOf(map);
    return (i) => grey(Math.round(255 * (1 - ones[i] / map.test.n)));
  },
};

function paintPixels(map) {
  const [height, width] = map.size;
  const image = new ImageData(width, height);
  const colourOf = PAINTERS[state.view](map);
  for (let i = 0; i < width * height; i++) image.data.set([...colourOf(i), 255], 4 * i);
  const canvas = make("canvas", { width, height });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** Draw the map over its photograph, one pixel for one pixel. The photograph is lightened: over plain black, white
    would look as grey does over white. */
function drawMap(canvas, map) {
  [canvas.height, canvas.width] = map.size;
  const context = canvas.getContext("2d");
  context.fillStyle = "#ececec"; // for maps without a photograph
  context.fillRect(0, 0, canvas.width, canvas.height);
  if (map.photo) {
    context.drawImage(map.photo, 0, 0, canvas.width, canvas.height);
    context.globalAlpha = Math.min(WASH, state.opacity); // without a map over it, the photograph stays as it is
    context.fillStyle = "#ffffff";
    context.fillRect(0, 0, canvas.width, canvas.height);
  }
  context.globalAlpha = state.opacity;
  context.drawImage(paintPixels(map), 0, 0);
}

// Figures: a map on the page with its caption, key and marker

const FIGURES = [element("first"), element("second")];
const canvasOf = (figure) => figure.querySelector("canvas.pixels");

function buildFigure(figure) {
  const canvas = make("canvas", { className: "pixels", tabIndex: 0 });
  const marker = make("div", { className: "marker", hidden: true });
  const key = make("div", { className: "key", id: `${figure.id}-key` });
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-roledescription", "map of pixels");
  canvas.setAttribute("aria-describedby", key.id);
  figure.append(make("figcaption"), make("div", { className: "frame" }, canvas, marker), key);
}

function showFigure(figure, map) {
  const canvas = canvasOf(figure);
  const image = choiceOf(map, IMAGE);
  const caption = [`${image}, explains ${map.target}, ${view().name}`, levelAndNumbers(map)];
  figure.querySelector("figcaption").replaceChildren(titleOf(map), ...caption.map((line) => makeText("span", line)));
  drawMap(canvas, map);
  const about = `${view().name} of ${image} by ${nameOf(map)}, top ${levelOf(map)} %`;
  canvas.setAttribute("aria-label", `${about}. Arrow keys move from pixel to pixel.`);
  figure.querySelector(".key").replaceChildren(...KEYS[state.view](map));
}

function clearFigure(figure) {
  const canvas = canvasOf(figure);
  canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
  canvas.setAttribute("aria-label", "No map");
  figure.querySelector("figcaption").replaceChildren();
  figure.querySelector(".key").replaceChildren();
  figure.querySelector(".marker").hidden = true;
}

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

/** Keys, one per view: each makes the elements that stand below a map. */
const KEYS = {
  /** Make a legend of the shares: the meaning of each colour, and how much of the map it is. */
  labels(map) {
    const { labels, needed, pixelsOf } = certificateOf(map);
    const colours = coloursOfLabels(map);
    const items = LABELS.map((label) => {
      const swatch = make("span", { className: "swatch", style: { background: css(colours[label]) } });
      const share = makeText("b", percent(pixelsOf[label], labels.length));
      return make("li", {}, swatch, share, makeText("span", LABEL_NAMES[label]));
    });
    const bars = LABELS.map((label) => {
      const width = `${(100 * pixelsOf[label]) / labels.length}%`;
      return make("div", { style: { background: css(colours[label]), width } });
    });
    const bar = make("div", { className: "bar" }, ...bars);
    bar.setAttribute("aria-hidden", "true");
    const level = levelOf(map);
    const nearby = level === state.level ? "" : `These votes have no K = ${state.level} %: K = ${level} % is shown. `;
    const votes = Number.isFinite(needed)
      ? `A label needed ${needed} of ${map.test.tested} votes (${correctionOf(map)}).`
      : outOfReach(map.test, state.tau);
    return [make("ul", { className: "shares" }, ...items), bar, makeText("p", nearby + votes, { className: "small" })];
  },
  radius(map) {
    const votes = votesOf(map);
    const all = Float64Array.from(votes.ones, (_, i) => radiusAt(map, votes, i));
    const radii = all.filter((radius) => radius > 0).sort();
    const middle = radii.length ? `, half of these at least ${roundedDown(radii[radii.length >> 1])}` : "";
    const share = `${percent(radii.length, all.length)} of the pixels have a radius${middle}; grey: none.`;
    const words = `${share} Radii of majority labels, for all τ together.`;
    return makeScale((i) => index.palette.radius[i], "0", roundedDown(largestRadius(state.maps)), words);
  },
  smoothed() {
    const words = "How often the pixel was in the top K % under noise. Counted, not certified.";
    return makeScale((i) => grey(255 - i), "never", "always", words);
  },
};

function makeScale(colourOf, low, high, words) {
  const canvas = make("canvas", { width: 256, height: 1 });
  canvas.setAttribute("aria-hidden", "true");
  const context = canvas.getContext("2d");
  for (let i = 0; i < 256; i++) {
    context.fillStyle = css(colourOf(i));
    context.fillRect(i, 0, 1, 1);
  }
  const ends = make("div", {}, makeText("span", low), makeText("span", high));
  return [make("div", { className: "scale" }, canvas, ends), makeText("p", words, { className: "small" })];
}

/** Return the text of the key below a map. */
const keyInWords = (_, i) => FIGURES[i].querySelector(".key").innerText.replaceAll(/\s+/g, " ");

// Below the maps: their agreement, meaning and facts

/** Show where both maps have a label, and whether it is the same. Both are of one image, and so of one size. */
function showAgreement() {
  element("agreement").hidden = state.maps.length < 2 || !showsLabels();
  if (element("agreement").hidden) return;
  const [first, second] = state.maps.map((map) => certificateOf(map).labels);
  const table = countPairs(first, second);
  const same = table[1][1] + table[0][0];
  const both = same + table[1][0] + table[0][1];
  const labelled = CORRECTED ? "certified" : "labelled";
  element("agreement-text").textContent = both
    ? `${percent(both, first.length)} of the pixels are ${labelled} in both maps. ` +
      `Of these, ${percent(same, both)} have the same label; ${both - same} pixels differ.`
    : `No pixel is ${labelled} in both maps.`;
  const names = LABELS.map((label) => LABEL_NAMES[label]);
  const rows = LABELS.map((a, i) => [names[i], ...LABELS.map((b) => percent(table[a][b], first.length))]);
  const [name, other] = state.maps.map(nameOf);
  const caption = `${name} (rows) and ${other} (columns), in percent of all pixels`;
  fillTable(element("agreement-table"), caption, ["", ...names], rows);
}

function showMeaning() {
  element("lead").textContent = view().lead;
  element("promise").textContent = ofEach(view().promiseOf);
  element("answer").textContent = ofEach(answerInWords);
  element("facts").replaceChildren(...state.maps.flatMap(makeFacts));
}

function makeFacts(map) {
  const facts = Object.entries({ Test: testInWords(map), ...map.facts });
  const list = make("dl", {}, ...facts.flatMap(([name, text]) => [makeText("dt", name), makeText("dd", text)]));
  return state.maps[1] ? [makeText("h3", nameOf(map)), list] : [list];
}

// The saved picture

const MARGIN = 24;
const FONT = "14px system-ui, sans-serif";
const LINE = 20;
const HEAD = 3 * LINE; // image, name and numbers of a map

/** Return the view as a picture of its own: titles, maps enlarged by a whole number, shares, settings and promise. */
function composePicture() {
  const { maps } = state;
  const factor = Math.max(1, Math.floor(480 / Math.max(...maps.flatMap((map) => map.size))));
  const widths = maps.map((map) => Math.max(factor * map.size[1], 320));
  const below = MARGIN + HEAD + factor * Math.max(...maps.map((map) => map.size[0]));
  const canvas = make("canvas", { width: widths.reduce((sum, width) => sum + width + MARGIN, MARGIN) });
  const text = [settingsInWords(), element("promise").textContent, lateTauInWords()].join("\n").trim();
  const lines = text.split("\n").flatMap((part) => wrap(part, canvas.width - 2 * MARGIN));
  canvas.height = below + (4 + lines.length) * LINE + MARGIN;
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingEnabled = false;
  let left = MARGIN;
  maps.forEach((map, i) => {
    const head = [choiceOf(map, IMAGE), nameOf(map), levelAndNumbers(map)].map((line) => wrap(line, widths[i])[0]);
    writeLines(context, head, left, MARGIN);
    const picture = make("canvas");
    drawMap(picture, map);
    context.drawImage(picture, left, MARGIN + HEAD, factor * picture.width, factor * picture.height);
    writeLines(context, wrap(keyInWords(map, i), widths[i]).slice(0, 3), left, below + LINE / 2);
    left += widths[i] + MARGIN;
  });
  writeLines(context, lines, MARGIN, below + 4 * LINE);
  return canvas;
}

function writeLines(context, lines, x, y) {
  context.font = FONT;
  context.fillStyle = "#1f2328";
  context.textBaseline = "top";
  lines.forEach((line, i) => context.fillText(line, x, y + i * LINE));
}

/** Break text into lines that fit. */
function wrap(text, width) {
  const context = make("canvas").getContext("2d");
  context.font = FONT;
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && context.measureText(longer).width > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}
