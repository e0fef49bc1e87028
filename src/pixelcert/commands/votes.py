"""`pixelcert show`, and how certificates are shown: tables in plain words, or JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.markup import escape

from ..basics.files import check_name
from ..basics.messages import ArgumentError, naming
from ..certificate import Certificate, Prediction, certify_votes
from ..plan import Criterion, Plan
from ..statistics import rounded_down
from ..votes import Votes, plan_as_dict
from . import terminal


class Result(NamedTuple):
    """A certificate and the files that hold it."""

    certificate: Certificate
    votes: Path
    picture: Path | None

    @property
    def image(self) -> str:
        return self.certificate.votes.provenance.image_title


def show(
    files: Sequence[Path], criterion: Criterion, levels: Sequence[float] | None, out: Path | None, picture: bool
) -> list[Result]:
    """Certify saved votes, all of them before the first picture is drawn."""
    if picture and out is not None:
        make_folder(out, files, "votes", "show them separately")
    results = [
        Result(one, file, picture_file(file, one.votes.plan, criterion, levels, out) if picture else None)
        for file, one in zip(files, load_certificates(files, criterion, levels), strict=True)
    ]
    return [draw(result) for result in results]


def load_certificates(
    files: Sequence[Path], criterion: Criterion, levels: Sequence[float] | None = None
) -> list[Certificate]:
    """Load all votes, then certify them; the error names the file."""
    certificates = []
    for file, votes in [(file, Votes.load(file)) for file in files]:
        with naming(file):
            certificates.append(certify_votes(votes, criterion, levels))
    return certificates


def draw(result: Result) -> Result:
    """Draw the picture of a certificate, if one is wanted."""
    if result.picture is not None:
        result.certificate.plot(result.picture)
    return result


def show_results(results: Sequence[Result], as_json: bool) -> None:
    """Print a table of shares, the promise, predictions and files; or JSON."""
    if as_json:
        terminal.print_json([_result_as_dict(result) for result in results])
        return
    table = terminal.table("Certified pixels", "image, class", "K", "robustly in", "robustly out", "abstain")
    for result in results:
        certificate, name = result.certificate, f"{result.image}, {result.certificate.votes.provenance.target_name}"
        for row, level in enumerate(certificate.levels):
            shares = (f"{share:.1f} %" for share in certificate.shares(level))
            last = row == len(certificate.levels) - 1
            table.add_row("" if row else escape(name), f"{level} %", *shares, end_section=last)
    terminal.out.print(table)
    for certificate in {result.certificate.promise: result.certificate for result in results}.values():
        terminal.out.print(escape(_promise(certificate)))
    for result in results:
        if prediction := result.certificate.prediction:
            terminal.out.print(escape(f"{result.image}: {_answer(result.certificate.votes, prediction)}"))
        for path in filter(None, (result.votes, result.picture)):
            terminal.print_path(path)


def _promise(certificate: Certificate) -> str:
    """Return the guarantee, with the radius in grey levels."""
    values = certificate.votes.channels * certificate.votes.pixels
    one, every = 255 * certificate.radius, 255 * certificate.radius / math.sqrt(values)
    size = f"That is {rounded_down(one, 1)} grey levels on one value, or {rounded_down(every, 3)} on all of them."
    if certificate.correction == "none":
        return certificate.promise
    return " ".join(filter(None, (certificate.promise, size, certificate.together)))


def _answer(votes: Votes, prediction: Prediction) -> str:
    """Say how often the model gave its answer under noise, and whether that is certified."""
    name = votes.provenance.class_name(prediction.answer)
    needed = f"{prediction.claim.votes_needed} are needed" if prediction.claim else "n is too small for that"
    verdict = "certified" if prediction.certified else f"not certified, {needed}"
    return f"the model answers {name} in {prediction.votes} of {votes.plan.n} noisy copies ({verdict})"


def _result_as_dict(result: Result) -> dict[str, Any]:
    certificate, prediction = result.certificate, result.certificate.prediction
    facts = ("radius", "space", "tau", "alpha", "correction")
    return {
        "votes": str(result.votes),
        "picture": str(result.picture) if result.picture else None,
        **{fact: getattr(certificate, fact) for fact in facts},
        "levels": {
            str(level): {
                **certificate.shares(level)._asdict(),
                "certified": certificate.percent_certified(level),
                "claim": certificate.claims[level]._asdict(),
            }
            for level in certificate.levels
        },
        "overlay": certificate.overlay_claim._asdict(),
        "prediction": prediction and {**prediction._asdict(), "claim": prediction.claim and prediction.claim._asdict()},
        "plan": plan_as_dict(certificate.votes.plan),
        "provenance": certificate.votes.provenance.as_dict(),
    }


# ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def make_folder(out: Path, sources: Sequence[Path], what: str, remedy: str) -> None:
    """Make the folder for the results of `sources`; refuse two sources whose results would share a name."""
    stems = Counter(source.stem for source in sources)
    if twice := sorted(stem for stem, count in stems.items() if count > 1):
        raise ArgumentError(f"{what} share the name {', '.join(twice)} and would share a file: {remedy}.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"--out {out} cannot be a folder ({error.strerror}): name another.") from error


def picture_file(
    file: Path, plan: Plan, criterion: Criterion, levels: Sequence[float] | None = None, out: Path | None = None
) -> Path:
    """Return the path for a picture of the votes in `file`.

    Settings that differ from the defaults are in its name, so that it never replaces another picture.
    """
    usual, chosen = Criterion(), plan.descending(levels)
    correction = criterion.correction_for(plan)
    parts = {
        f"tau{criterion.tau}": criterion.tau != usual.tau,
        f"alpha{criterion.alpha}": criterion.alpha != usual.alpha,
        correction: correction != usual.correction_for(plan),
        "-".join(f"K{level}" for level in chosen): chosen != plan.descending(),
    }
    picture = (out or file.parent) / f"{'-'.join([file.stem, *(part for part, named in parts.items() if named)])}.png"
    check_name(picture)
    return picture
