"""`pixelcert show`, and how certificates are shown: tables in plain words, or JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from ..basics.messages import naming
from ..certificate import Certificate, Prediction, certify_votes
from ..plan import Criterion
from ..sampling.checkpoint import check_own_names, make_folder, picture_file
from ..statistics import rounded_down
from ..votes import Votes
from . import terminal


class Result(NamedTuple):
    """A certificate and the files that hold it."""

    certificate: Certificate
    votes: Path
    picture: Path | None


def show(
    files: Sequence[Path],
    criterion: Criterion,
    levels: Sequence[float] | None,
    out: Path | None,
    picture: bool,
    as_json: bool,
) -> None:
    """Certify saved votes, all of them before the first picture is drawn."""
    if picture and out is not None:
        check_own_names(files, "votes", "show them apart")
        make_folder(out)
    loaded = [Votes.load(file) for file in files]
    results = []
    for file, votes in zip(files, loaded, strict=True):
        with naming(file):
            certificate = certify_votes(votes, criterion, levels)
        path = picture_file(file, votes.plan, criterion, levels, out) if picture else None
        results.append(Result(certificate, file, path))
    show_results([draw(result) for result in results], as_json)


def draw(result: Result) -> Result:
    """Draw the picture of a certificate, if one is wanted."""
    if result.picture is not None:
        result.certificate.plot(result.picture)
    return result


def show_results(results: Sequence[Result], as_json: bool) -> None:
    if as_json:
        terminal.print_json([_result_as_dict(result) for result in results])
        return
    table = Table(title="Certified pixels", title_justify="left", title_style="bold")
    table.add_column("image, class")
    table.add_column("K", justify="right")
    for heading in ("robustly in", "robustly out", "abstain"):
        table.add_column(heading, justify="right")
    for certificate, _, _ in results:
        source = certificate.votes.provenance
        name = f"{source.image_name or 'image'}, {source.target_name}"
        for row, level in enumerate(certificate.levels):
            shares = (f"{share:.1f} %" for share in certificate.shares(level))
            last = row == len(certificate.levels) - 1
            table.add_row(escape(name) if row == 0 else "", f"{level} %", *shares, end_section=last)
    terminal.out.print(table)
    for certificate in {result.certificate.promise: result.certificate for result in results}.values():
        terminal.out.print(escape(_promise(certificate)))
    for result in results:
        if prediction := _prediction(result.certificate):
            terminal.out.print(
                f"{escape(result.certificate.votes.provenance.image_name or 'image')}: {escape(prediction)}"
            )
        for path in filter(None, (result.votes, result.picture)):
            terminal.out.print(f"  {escape(str(path))}", soft_wrap=True)


def _promise(certificate: Certificate) -> str:
    """What is guaranteed, and how large the radius is, for a person."""
    values = certificate.votes.channels * certificate.votes.pixels
    one, every = 255 * certificate.radius, 255 * certificate.radius / math.sqrt(values)
    size = f"That is {rounded_down(one, 1)} grey levels on one value, or {rounded_down(every, 3)} on all of them."
    return certificate.promise if certificate.correction == "none" else f"{certificate.promise} {size}"


def _prediction(certificate: Certificate) -> str | None:
    prediction = certificate.prediction
    if prediction is None:
        return None
    name = certificate.votes.provenance.class_name(prediction.answer)
    needed = f"{prediction.claim.votes_needed} are needed" if prediction.claim else "n is too small for that"
    verdict = "certified" if prediction.certified else f"not certified, {needed}"
    return f"the model answers {name} in {prediction.votes} of {certificate.votes.plan.n} noisy copies ({verdict})"


def _result_as_dict(result: Result) -> dict[str, Any]:
    certificate = result.certificate
    return {
        "votes": str(result.votes),
        "picture": str(result.picture) if result.picture else None,
        "radius": certificate.radius,
        "space": certificate.space,
        "tau": certificate.tau,
        "alpha": certificate.alpha,
        "correction": certificate.correction,
        "levels": {
            str(level): {
                **certificate.shares(level)._asdict(),
                "certified": certificate.percent_certified(level),
                "claim": certificate.claims[level]._asdict(),
            }
            for level in certificate.levels
        },
        "overlay": certificate.overlay_claim._asdict(),
        "prediction": _prediction_as_dict(certificate.prediction),
        "plan": asdict(certificate.votes.plan),
        "provenance": asdict(certificate.votes.provenance),
    }


def _prediction_as_dict(prediction: Prediction | None) -> dict[str, Any] | None:
    if prediction is None:
        return None
    return {**prediction._asdict(), "claim": prediction.claim._asdict() if prediction.claim else None}
