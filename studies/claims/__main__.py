"""Verdicts on the paper's claims, as Markdown.

    python -m studies.claims FOLDER

FOLDER is the folder where the studies were run, such as studies.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pixelcert.basics.messages import ArgumentError

from ..evidence import OTHER_NETWORKS, Evidence, find
from . import CLAIMS
from .judgement import Claim, Found, Part, verdict


def report(published: Found, own: Found) -> str:
    """Return the verdicts by the published rules and by ours, then every part of every claim with its numbers."""
    judged = [(claim, _parts(claim, published), _parts(claim, own)) for claim in CLAIMS]
    lines = ["| | claim | section | published rules | our rules |", "|---|---|---|---|---|"]
    for index, (claim, theirs, ours) in enumerate(judged, 1):
        lines.append(f"| {index} | {claim.says} | {claim.where} | {verdict(theirs)} | {verdict(ours)} |")
    for index, (claim, theirs, ours) in enumerate(judged, 1):
        lines += ["", f"{index}. {claim.says}"]
        lines += _findings({part.says: part.finding for part in theirs}, {part.says: part.finding for part in ours})
    return "\n".join(lines)


def _findings(published: dict[str, str], own: dict[str, str]) -> Iterator[str]:
    """Yield one line for each part; add our finding if it differs.

    A study may have been run by only one of the two sets of rules.
    """
    for says in published | own:
        one, other = (findings.get(says, "not tested") for findings in (published, own))
        also = "" if one == other else f" By our rules: {other}."
        yield f"   - {says}: {one}.{also}"


def _parts(claim: Claim, found: Found) -> list[Part]:
    """Return the parts of a claim, judged, or nothing if a study that it needs was not run."""
    try:
        return list(claim.parts(found))
    except ArgumentError:
        return []


def gather(folder: Path, preset: str) -> Found:
    """Read the studies' means by the rules of a preset; a study that was not run gives no evidence."""

    def read(study: str, model: str = "resnet18") -> Evidence:
        return Evidence.read(find(folder, study), model, preset)

    radii, others = Evidence({}, preset), {}
    with suppress(ArgumentError):
        radii = read("reproduction-radii")
    for study, model in OTHER_NETWORKS.items():
        with suppress(ArgumentError):
            others[model] = read(study, model)
    return Found(read("reproduction"), radii, others)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    print(report(gather(folder, "reference"), gather(folder, "default")))


if __name__ == "__main__":
    main()
