/* The lists to choose from. */

/** Walk down the lists: keep the wished value where it exists, else take the first that does. */
function findEntry(wishes, entries) {
  let left = entries;
  index.facets.forEach((_, facet) => {
    const fitting = left.filter((entry) => entry.choices[facet] === wishes[facet]);
    left = fitting.length ? fitting : left.filter((entry) => entry.choices[facet] === left[0].choices[facet]);
  });
  return left[0];
}

/** Lists for `entry`, each offering what those before it leave open of `entries`. */
function showChoices(box, entry, entries, from, choose) {
  const active = document.activeElement?.id;
  let left = entries;
  const made = [];
  index.facets.forEach((facet, place) => {
    const open = [...new Set(left.map((other) => other.choices[place]))];
    if (facet.shown && place >= from) made.push(choiceBox(box.id, facet, place, open, entry, choose));
    left = left.filter((other) => other.choices[place] === entry.choices[place]);
  });
  box.replaceChildren(...made);
  if (active?.startsWith(`${box.id}-`)) element(active)?.focus();
}

function choiceBox(prefix, facet, place, open, entry, choose) {
  if (open.length === 1) {
    const only = make("span", { className: "only", textContent: facet.values[open[0]] });
    return make("div", { className: "choice" }, make("span", { textContent: facet.name }), only);
  }
  const id = `${prefix}-${place}`;
  const options = open.map((value) => make("option", { value, textContent: facet.values[value] }));
  const select = make("select", { id }, ...options);
  select.value = entry.choices[place];
  select.addEventListener("change", () => choose(place, Number(select.value)));
  return make("div", { className: "choice" }, make("label", { htmlFor: id, textContent: facet.name }), select);
}
