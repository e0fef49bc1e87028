/* All together: what is shown after every change, what is listened to, and how it starts. */

function show() {
  if (!state.first) return; // nothing has loaded
  const maps = shownMaps();
  element("explorer").classList.toggle("two", maps.length > 1);
  element("second").hidden = maps.length < 2;
  showFigure(element("first"), maps[0]);
  if (maps[1]) showFigure(element("second"), maps[1]);
  showControls();
  showAgreement();
  showMeaning();
  showPixel();
  sayShares();
}

function listen() {
  const on = (id, event, act) => element(id).addEventListener(event, act);
  on("level", "input", (event) => state.first && ((state.level = state.first.levels[event.target.value]), show()));
  on("tau", "input", (event) => state.first && (setTau(Number(event.target.value)), show()));
  on("opacity", "input", (event) => ((state.opacity = event.target.value / 100), show()));
  on("save", "click", save);
  on("compare", "change", (event) => {
    state.comparing = event.target.checked;
    goTo(...state.wanted);
  });
  for (const input of document.querySelectorAll("input[name=view]")) {
    input.addEventListener("change", () => ((state.view = input.value), show()));
  }
}

function start() {
  buildFigure(element("first"));
  buildFigure(element("second"));
  listen();
  const [first] = index.entries;
  state.tau = testOf(first).taus.findIndex(({ tau }) => tau === index.tau);
  for (const id of ["guaranteed", "errors"]) element(id).hidden = !CORRECTED;
  showStudy();
  goTo(first, null);
}

start();
