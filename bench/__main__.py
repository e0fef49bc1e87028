"""Run every benchmark that needs no weights or photographs of your own: `make bench`.

    python -m bench

On a CPU the methods are timed with fewer samples and masks; the tables are the same.
"""

from __future__ import annotations

import sys

from . import batches, cells, independence, profile, scaling, study
from .machine import say


def main() -> None:
    for title, part in (
        ("Every method at every layer", cells),
        ("Where the time goes", profile),
        ("How time and memory grow", scaling),
        ("What the batch size changes", batches),
        ("What the checks of independence cost", independence),
        ("Workers", study),
    ):
        say(f"\n## {title}\n")
        sys.argv = [part.__name__]  # each part parses its own options and finds the defaults
        part.main()


if __name__ == "__main__":
    main()
