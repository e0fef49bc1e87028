/* The certificate: from counts to labels, as in the library's certificate.py. The library computed every threshold and
   radius. No function here touches the page, so tests run this chapter in Node. */

const ABSTAIN = -1;
const LABELS = [1, 0, ABSTAIN];
const countPerLabel = () => ({ 1: 0, 0: 0, [ABSTAIN]: 0 });

/** Undo the library's `pack`: inflate a line of JSON, then planes of counts as differences from pixel to pixel. */
async function unpack(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const end = bytes.indexOf(10);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
  const Kind = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array }[header.bytes];
  const counts = new Kind(bytes.slice(end + 1).buffer);
  for (let i = 1; i < counts.length; i++) counts[i] += counts[i - 1]; // wraps around, as it should
  return { ...header, counts };
}

/** Return the votes for both labels at one level, and those of them that may be tested. */
function votesAt(map, level) {
  if (!map.votes.has(level)) map.votes.set(level, deriveVotes(map, map.levels.indexOf(level)));
  return map.votes.get(level);
}

function deriveVotes({ counts, levels, size, test }, place) {
  const pixels = size[0] * size[1];
  const plane = (kind) => counts.subarray((kind * levels.length + place) * pixels).subarray(0, pixels);
  const [ones, neither] = [plane(0), plane(1)];
  const zeros = ones.map((one, i) => test.n - one - neither[i]);
  const tested = test.guess ? votesAfterGuess(ones, zeros, plane(2), test.guess) : { ones, zeros };
  return { ones, zeros, tested, atLeast: countAtLeast(tested, test.tested) };
}

/** Return the votes that the published test counts: it guesses labels from the first samples and tests the others.
    Samples that vote for neither label can leave fewer votes than were guessed, so the arrays have a sign. */
function votesAfterGuess(ones, zeros, guessOnes, guess) {
  const guessedOne = (i) => 2 * guessOnes[i] > guess;
  return {
    ones: Int32Array.from(ones, (one, i) => (guessedOne(i) ? one - guessOnes[i] : 0)),
    zeros: Int32Array.from(zeros, (zero, i) => (guessedOne(i) ? 0 : zero - (guess - guessOnes[i]))),
  };
}

/** Count the pixels that have at least k votes for one label, for every k. */
function countAtLeast({ ones, zeros }, n) {
  const atLeast = new Uint32Array(n + 2);
  for (let i = 0; i < ones.length; i++) atLeast[Math.max(ones[i], zeros[i])]++;
  for (let k = n; k >= 0; k--) atLeast[k] += atLeast[k + 1];
  return atLeast;
}

/** Return Holm's threshold: certified pixels stop counting. Each step gives the votes that are enough for so many open
    pixels; a test without step-down has one. */
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

/** Return the labels at K and τ, the votes they needed, and the pixels per label. Without steps, τ is out of reach and
    all pixels abstain. */
function certify(map, level, { steps }) {
  const { tested, atLeast } = votesAt(map, level);
  const needed = steps ? votesNeeded(atLeast, steps, tested.ones.length) : Infinity;
  const labels = new Int8Array(tested.ones.length);
  const pixelsOf = countPerLabel();
  for (let i = 0; i < labels.length; i++) {
    labels[i] = tested.ones[i] >= needed ? 1 : tested.zeros[i] >= needed ? 0 : ABSTAIN;
    pixelsOf[labels[i]]++;
  }
  return { labels, needed, pixelsOf };
}

/** Count the pixels that have label a in one map and label b in the other: table[a][b]. */
function countPairs(first, second) {
  const table = { 1: countPerLabel(), 0: countPerLabel(), [ABSTAIN]: countPerLabel() };
  for (let i = 0; i < first.length; i++) table[first[i]][second[i]]++;
  return table;
}

/** Return the radius of a pixel's majority label. */
const radiusAt = ({ test }, { ones, zeros }, i) => test.radii[Math.max(ones[i], zeros[i])];
const largestRadius = (maps) => Math.max(...maps.map(({ test }) => test.radii[test.n]));
