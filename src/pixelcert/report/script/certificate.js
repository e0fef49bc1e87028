/* Votes to labels, as in the library's certificate.py. Pure: no element of the page is touched, so that a test can run
   it without a browser. */

const ABSTAIN = -1;

/** Votes at one level: for both labels, and those of them that may be tested. */
function votesAt(map, level) {
  const place = map.levels.indexOf(level);
  if (!map.derived.has(place)) map.derived.set(place, deriveVotes(map, place));
  return map.derived.get(place);
}

function deriveVotes({ counts, levels, size, test }, place) {
  const pixels = size[0] * size[1];
  const plane = (kind) => counts.subarray((kind * levels.length + place) * pixels).subarray(0, pixels);
  const ones = plane(0);
  const zeros = ones.map((one, i) => test.n - one - plane(1)[i]);
  const tested = test.guess ? afterGuess(ones, zeros, plane(2), test.guess) : { ones, zeros };
  return { ones, zeros, tested, atLeast: countAtLeast(tested, test.tested) };
}

/** The published test guesses each label from the first samples, and tests it on the others. Samples that vote for
    neither label leave fewer votes than were guessed, so that differences may be negative: the arrays have a sign. */
function afterGuess(ones, zeros, guessOnes, guess) {
  const guessedOne = (i) => 2 * guessOnes[i] > guess;
  return {
    ones: Int32Array.from(ones, (one, i) => (guessedOne(i) ? one - guessOnes[i] : 0)),
    zeros: Int32Array.from(zeros, (zero, i) => (guessedOne(i) ? 0 : zero - (guess - guessOnes[i]))),
  };
}

/** How many pixels have at least k votes for one label, for every k. */
function countAtLeast({ ones, zeros }, n) {
  const atLeast = new Uint32Array(n + 2);
  for (let i = 0; i < ones.length; i++) atLeast[Math.max(ones[i], zeros[i])]++;
  for (let k = n; k >= 0; k--) atLeast[k] += atLeast[k + 1];
  return atLeast;
}

/** Holm's threshold: pixels already certified stop counting. `steps` says how many votes are enough for how many open
    pixels; a test that takes one step has one row. */
function votesNeeded(atLeast, steps, pixels) {
  const enoughFor = (open) => steps.find(([, most]) => most >= open)[0];
  let needed = enoughFor(pixels);
  let certified = 0;
  while (certified < atLeast[needed] && atLeast[needed] < pixels) {
    certified = atLeast[needed];
    needed = enoughFor(pixels - certified);
  }
  return needed;
}

/** Labels at K and τ, the votes they needed, and how many pixels have each; all abstain where τ is out of reach. */
function certify(map, level, tau) {
  const { tested, atLeast } = votesAt(map, level);
  const { steps } = map.test.taus[tau];
  const needed = steps ? votesNeeded(atLeast, steps, tested.ones.length) : Infinity;
  const labels = new Int8Array(tested.ones.length);
  const shares = { ones: 0, zeros: 0, abstained: 0 };
  for (let i = 0; i < labels.length; i++) {
    labels[i] = tested.ones[i] >= needed ? 1 : tested.zeros[i] >= needed ? 0 : ABSTAIN;
    shares[labels[i] === 1 ? "ones" : labels[i] === 0 ? "zeros" : "abstained"]++;
  }
  return { labels, needed, ...shares };
}

/** The level of a map that is nearest to the one asked for. */
function nearest(map, level) {
  return map.levels.reduce((best, other) => (Math.abs(other - level) < Math.abs(best - level) ? other : best));
}

const radiusOf = (map, votes, i) => map.test.radii[Math.max(votes.ones[i], votes.zeros[i])];
const largestRadius = (...maps) => Math.max(...maps.map((map) => map.test.radii[map.test.n]));
