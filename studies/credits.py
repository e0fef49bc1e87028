"""Who took the photographs of a study, as Markdown, for pages that show them.

    python -m studies.credits studies/reproduction.toml

The columns author, licence and source of labels.csv tell.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import pixelcert as pc
from pixelcert.study.resolved import Resolved, image_folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    study = pc.Study.open(parser.parse_args().study)
    used = {chosen.file for chosen in Resolved.load(study.folder).selection.photographs}
    labels = Path(image_folder(study.settings, study.base)) / "labels.csv"
    for row in csv.DictReader(labels.read_text().splitlines()):
        if row["file"] in used:
            print(f"- [{row['file']}]({row['source']}) by {row['author']}, [licence]({row['licence']})")


if __name__ == "__main__":
    main()
