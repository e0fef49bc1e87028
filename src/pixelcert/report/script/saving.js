/* Saving: the view as a picture of its own, with all that it needs to be understood. */

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
