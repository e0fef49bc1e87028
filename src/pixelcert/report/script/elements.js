/* Elements of the page: found, made and filled. */

const element = (id) => document.getElementById(id);
const css = (colour) => `rgb(${colour.join(" ")})`;

function make(tag, properties = {}, ...children) {
  const { style, ...rest } = properties;
  const made = Object.assign(document.createElement(tag), rest);
  Object.assign(made.style, style);
  made.append(...children);
  return made;
}

/** A table whose first cells, `named` many, name their rows. */
function fillTable(table, caption, headings, rows, named = 1) {
  const heading = (textContent, i) => make("th", { scope: "col", textContent, className: i < named ? "" : "number" });
  const cell = (textContent, i) => (i < named ? make("th", { scope: "row", textContent }) : make("td", { textContent }));
  const body = rows.map((cells) => make("tr", {}, ...cells.map(cell)));
  table.replaceChildren(
    make("caption", { textContent: caption }),
    make("thead", {}, make("tr", {}, ...headings.map(heading))),
    make("tbody", {}, ...body),
  );
}
