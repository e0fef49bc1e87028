/* The page of pixelcert. It packs out counts, looks thresholds up and paints; every threshold and radius was computed by
   the library and stands in the index. All names are put in as text, never as HTML.

   What it knows, and what is looked at. */

const index = JSON.parse(document.getElementById("index").textContent);
const CORRECTED = index.tests.every(({ correction }) => correction !== "none"); // else no label carries a promise
const choiceOf = (entry, facet) => index.facets[facet].values[entry.choices[facet]];
const testOf = (entry) => index.tests[entry.test];

const state = {
  wanted: [null, null], // the entries asked for
  first: null, // one of them with its counts, once they are there
  second: null,
  comparing: false,
  level: null, // K
  tau: 0, // place in the test's list
  view: "labels",
  opacity: 0.8,
  pixel: null, // {x, y}
  wish: null, // a τ out of reach that someone tried
};

const shownMaps = () => [state.first, state.comparing ? state.second : null].filter(Boolean);
