/* Two maps compared: where both have a label, and whether it is the same. */

function showAgreement() {
  element("agreement").hidden = !state.second || state.view !== "labels";
  if (element("agreement").hidden) return;
  const [first, second] = [state.first, state.second];
  if (String(first.size) !== String(second.size)) {
    element("agreement-text").textContent = "The two maps have different sizes, so their pixels cannot be compared.";
    element("agreement-table").replaceChildren();
    return;
  }
  const labels = shownMaps().map((map) => certify(map, nearest(map, state.level), state.tau).labels);
  showCrossTable(crossTable(...labels), labels[0].length, `${nameOf(first)} (rows)`, `${nameOf(second)} (columns)`);
}

/** How many pixels have label a in one map and b in the other: table[a][b]. */
function crossTable(first, second) {
  const row = () => ({ 1: 0, 0: 0, [ABSTAIN]: 0 });
  const table = { 1: row(), 0: row(), [ABSTAIN]: row() };
  for (let i = 0; i < first.length; i++) table[first[i]][second[i]]++;
  return table;
}

function showCrossTable(table, pixels, rows, columns) {
  const same = table[1][1] + table[0][0];
  const both = same + table[1][0] + table[0][1];
  const sure = CORRECTED ? "certified" : "labelled";
  element("agreement-text").textContent = both
    ? `${percent(both, pixels)} of the pixels are ${sure} in both maps. ` +
      `Of these, ${percent(same, both)} have the same label; ${both - same} pixels differ.`
    : `No pixel is ${sure} in both maps.`;
  const names = [1, 0, ABSTAIN].map((label) => [label, NAMES[label]]);
  const body = names.map(([a, name]) => [name, ...names.map(([b]) => percent(table[a][b], pixels))]);
  const headings = ["", ...names.map(([, name]) => name)];
  fillTable(element("agreement-table"), `${rows} and ${columns}, in percent of all pixels`, headings, body);
}
