/* What was chosen is loaded and shown, or what is wrong is said. */

let latest = 0; // loads that were overtaken are dropped

/** Show `first`, and beside it another map of the very same image. */
async function goTo(first, second) {
  const mine = ++latest;
  const choose = (place, value) => goTo(findEntry(first.choices.with(place, value), index.entries), second);
  showChoices(element("choices"), first, index.entries, 0, choose);
  const sameImage = index.entries.filter((entry) => entry.image === first.image);
  const rivals = sameImage.filter((entry) => entry !== first);
  const other = state.comparing && rivals.length ? rivalOf(first, second, sameImage, rivals) : null;
  state.wanted = [first, other ?? second];
  fitComparison(rivals.length > 0, other !== null);
  if (other) {
    const chooseOther = (place, value) => goTo(first, findEntry(other.choices.with(place, value), rivals));
    const from = new Set(rivals.map((entry) => entry.choices[0])).size > 1 ? 0 : 1; // an image may have two names
    showChoices(element("other-choices"), other, rivals, from, chooseOther);
  }
  try {
    const maps = await Promise.all([mapOf(first), other && mapOf(other)]);
    if (mine !== latest) return;
    [state.first, state.second] = maps;
    element("trouble").hidden = true;
    element("controls").inert = false;
    element("save").disabled = false;
    fitControls();
    show();
  } catch (error) {
    if (mine === latest) complain(error);
  }
}

/** Something to compare with: as asked, or the next entry of the same image; never the first one itself. */
function rivalOf(first, second, sameImage, rivals) {
  return second ? findEntry(second.choices, rivals) : sameImage[(sameImage.indexOf(first) + 1) % sameImage.length];
}

function fitComparison(possible, comparing) {
  element("compare").disabled = !possible;
  element("compare-text").textContent = possible ? "Compare with a second map" : "There is no other map of this image";
  element("other-choices").hidden = !comparing;
}

/** Say what is wrong until something loads, and leave nothing of an earlier map under the new name. */
function complain(error) {
  const remedy = index.folder ? ` Keep the folder ${index.folder} beside this page.` : "";
  [state.first, state.second] = [null, null];
  for (const id of ["first", "second"]) blank(element(id));
  for (const id of ["promise", "answer", "radius-text", "reach", "beforehand", "pixel"]) element(id).textContent = "";
  element("facts").replaceChildren();
  element("agreement").hidden = true;
  element("save").disabled = true;
  element("trouble").textContent = `This map cannot be shown (${error.message}).${remedy}`;
  element("trouble").hidden = false;
  say(element("trouble").textContent);
}
