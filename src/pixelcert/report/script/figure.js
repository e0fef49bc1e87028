/* A map on the page, with its caption and its key. */

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

function blank(figure) {
  const canvas = figure.querySelector("canvas.pixels");
  canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
  canvas.setAttribute("aria-label", "No map");
  figure.querySelector("figcaption").replaceChildren();
  figure.querySelector(".key").replaceChildren();
  figure.querySelector(".marker").hidden = true;
}
