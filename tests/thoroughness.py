"""The effort of tests: `make test` tries enough to find a fault soon, `make test-long` tries everything."""

import os

LONG = os.environ.get("PIXELCERT_LONG") == "1"


def examples(few: int) -> int:
    """Return how many examples a property is tried on."""
    return 20 * few if LONG else few
