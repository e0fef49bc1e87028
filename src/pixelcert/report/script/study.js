/* The study: its summaries and figures. */

function showStudy() {
  const { study } = index;
  if (!study) return;
  element("study").hidden = false;
  element("study-title").textContent = `The whole study: ${study.name}`;
  if (study.tables.length) showSummaries(study);
  const figures = element("figures");
  figures.hidden = study.figures.length === 0;
  figures.addEventListener("toggle", () => loadFigures(figures, study.figures), { once: true });
  figures.open = !index.folder && !figures.hidden;
}

function showSummaries({ tables, columns }) {
  const options = tables.map(({ caption }, i) => makeText("option", caption, { value: i }));
  const select = make("select", { id: "study-point" }, ...options);
  const label = makeText("label", "Setting", { htmlFor: select.id });
  const fill = () => {
    const { caption, lines } = tables[Number(select.value)];
    const rows = lines.map(({ names, cells }) => [...names, ...cells]);
    fillTable(element("study-table"), caption, ["model", "layer", "method", ...columns, "mean rank"], rows, 3);
  };
  select.addEventListener("change", fill);
  if (tables.length > 1) element("study-choice").append(make("div", { className: "choice" }, label, select));
  fill();
}

async function loadFigures(box, figures) {
  for (const { name, about, chunk } of figures) {
    const image = make("img", { alt: `Figure of the study: ${about}` });
    box.append(make("figure", {}, image, makeText("figcaption", name, { className: "small" })));
    try {
      image.src = URL.createObjectURL(await loadPng(chunk));
    } catch (error) {
      image.alt += ` (${error.message})`;
    }
  }
}
