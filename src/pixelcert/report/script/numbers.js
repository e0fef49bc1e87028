/* Numbers as they are printed. */

/** A number rounded down, so that no promise grows by printing it. */
function roundedDown(value, digits = 4) {
  return (Math.floor(value * 10 ** digits) / 10 ** digits).toFixed(digits);
}

// Ties go to the even digit, and the share is divided before it is multiplied, as in Python: the terminal says the same.
const oneDigit = new Intl.NumberFormat("en", {
  minimumFractionDigits: 1, maximumFractionDigits: 1, roundingMode: "halfEven", useGrouping: false,
});
const percent = (part, whole) => `${oneDigit.format(100 * (part / whole))} %`;
const clamp = (place, count) => Math.min(count - 1, Math.max(0, place));
