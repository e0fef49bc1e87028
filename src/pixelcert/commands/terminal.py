"""What the command line prints: progress, tables in plain words, JSON, notes and errors."""

from __future__ import annotations

import codecs
import io
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from decimal import ROUND_DOWN, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from ..certificate import Certificate, Prediction
    from ..methods.method import Method
    from ..report import Written
    from .plan import Limits


# What stands for our letters and signs where a terminal cannot show them.
IN_ASCII = {
    "σ": "sigma",
    "τ": "tau",
    "α": "alpha",
    "δ": "delta",
    "Φ": "Phi",
    "ℓ": "l",
    "×": "x",
    "·": "*",
    "…": "...",
    "≤": "<=",
    "≥": ">=",
    "±": "+/-",
    "→": "->",
    "–": "-",
    "—": "-",
    "−": "-",
    "⁻": "^-",
    "¹": "1",
    "²": "^2",
    "√": "sqrt",
    "✓": "done",
    "↓": "(less is better)",
}

out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


class Result(NamedTuple):
    """A certificate and the files that hold it."""

    certificate: Certificate
    votes: Path
    picture: Path | None


def say(text: str) -> None:
    err.print(escape(text), soft_wrap=True)


def say_error(text: str) -> None:
    err.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)


def say_written(page: Written) -> None:
    """Which files a report is, and how large."""
    say(f"{page.page}: {page.entries} maps, {page.page_bytes / 1e6:.1f} MB")
    if page.folder is not None:
        say(f"{page.folder}: {page.folder_bytes / 1e6:.1f} MB that the page loads on demand; keep it beside the page.")


def print_in_any_encoding() -> None:
    """Have what a terminal's encoding lacks written in ASCII: our own signs in words, all else as an escape."""

    def in_ascii(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError), "nothing is decoded here"
        letters = error.object[error.start : error.end]
        shown = (IN_ASCII.get(letter) or letter.encode("ascii", "backslashreplace").decode() for letter in letters)
        return "".join(shown), error.end

    codecs.register_error("pixelcert", in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="pixelcert")


def print_warnings_as_notes() -> None:
    def note(message: Warning | str, *_: Any, **__: Any) -> None:
        err.print(f"[yellow]note:[/] {escape(str(message))}", soft_wrap=True)

    warnings.showwarning = note


def status(text: str) -> AbstractContextManager[object]:
    return err.status(text, spinner="line" if err.options.ascii_only else "dots")


@contextmanager
def progress(unit: str = "samples") -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Bars with the time left: ``track(name)`` makes a callback for the library, and its bar when first called."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit}, left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as bars:

        def track(name: str) -> Callable[[int, int], None]:
            tasks: list[TaskID] = []

            def update(done: int, total: int) -> None:
                tasks[:] = tasks or [bars.add_task(name, total=None)]
                bars.update(tasks[0], completed=done, total=total)

            return update

        yield track


def print_json(value: Any) -> None:
    out.print_json(json.dumps(value), highlight=False, ensure_ascii=out.options.ascii_only)


# ── Certificates ──────────────────────────────────────────────────────────────────────────────────────────────────


def show_results(results: Sequence[Result], as_json: bool) -> None:
    if as_json:
        print_json([_result_as_dict(result) for result in results])
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
    out.print(table)
    for certificate in {result.certificate.promise: result.certificate for result in results}.values():
        out.print(escape(_promise(certificate)))
    for result in results:
        if prediction := _prediction(result.certificate):
            out.print(f"{escape(result.certificate.votes.provenance.image_name or 'image')}: {escape(prediction)}")
        for path in filter(None, (result.votes, result.picture)):
            out.print(f"  {escape(str(path))}", soft_wrap=True)


def _promise(certificate: Certificate) -> str:
    """What is guaranteed, and how large the radius is, for a person."""
    from ..statistics import rounded_down

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


# ── Plans, models, methods ────────────────────────────────────────────────────────────────────────────────────────


def show_limits(outlook: Limits, as_json: bool) -> None:
    if as_json:
        print_json(asdict(outlook))
        return
    from ..statistics import rounded_down
    from .plan import GUESS

    tau = _tau(outlook.tau)
    test = f"σ = {outlook.sigma:g}, τ = {tau}, α = {outlook.alpha:g}"
    out.print(f"[bold]n = {outlook.n}[/] samples, {test}, {outlook.width} × {outlook.height} pixels")
    out.print(f"Every certified pixel holds within R = {rounded_down(outlook.radius)} (ℓ2, pixels in [0, 1]).")
    out.print(
        f"τ = {tau} needs n ≥ {outlook.smallest_n}; n = {outlook.n} allows τ ≤ {_tau(outlook.largest_tau)}, "
        f"with R = {rounded_down(outlook.largest_radius)}."
    )
    own = rounded_down(outlook.radius_map_limit)
    out.print(f"A radius map claims every τ at once, with half of α for each label: its pixels reach {own} at most.")
    table = Table("claim", "votes needed")
    meanings = {
        "holm": "one level, all pixels (holm, first step; default)",
        "bonferroni": "one level, all pixels (bonferroni)",
        "joint": "all levels together (joint)",
        "reference": f"the published test, of {max(outlook.n - GUESS, 0)} after its guess (reference)",
        "none": "one pixel chosen before looking (none; study only)",
        "prediction": "the predicted class, beside the pixels",
    }
    for claim, needed in outlook.votes_needed.items():
        table.add_row(meanings[claim], "impossible" if needed is None else f"{needed}")
    out.print(table)


def _tau(tau: float) -> str:
    """τ, rounded down to four decimals, or to more where those are all 9."""
    digits = max(4, 1 - math.floor(math.log10(1 - tau)))
    return f"{Decimal(str(tau)).quantize(Decimal(1).scaleb(-digits), ROUND_DOWN).normalize():f}"


def show_models(names: Sequence[str], as_json: bool) -> None:
    if as_json:
        print_json(list(names))
        return
    from ..models.loading import PAPER_MODELS

    out.print(f"[bold]{names[0]}[/]  embedded with pixelcert\\[demo], real weights, no download")
    out.print(f"[bold]{', '.join(PAPER_MODELS)}[/]  the paper's five")
    out.print(f"Others of torchvision: {', '.join(name for name in names[1:] if name not in PAPER_MODELS)}")
    out.print("Your own: --model package.module:function, a function that returns a pixelcert.Classifier")


def show_methods(methods: Sequence[type[Method]], as_json: bool) -> None:
    if as_json:
        facts = ("title", "family", "layers", "cost", "citation")
        rows = ({fact: getattr(method, fact) for fact in facts} for method in methods)
        print_json({m.name: {**row, "parameters": m.parameters()} for m, row in zip(methods, rows, strict=True)})
        return
    for family in dict.fromkeys(method.family for method in methods):
        out.print(f"\n[bold underline]{family}[/]")
        for method in (method for method in methods if method.family == family):
            layers = ", ".join("any module" if layer == "*" else layer for layer in method.layers)
            parameters = ", ".join(_parameter(method, *item) for item in method.parameters().items()) or "none"
            out.print(f"[bold]{method.name}[/]  {method.title} ({method.citation})")
            out.print(f"    layers: {layers}\n    parameters: {parameters}\n    cost per noisy image: {method.cost}")


def _parameter(method: type[Method], name: str, value: object) -> str:
    """A parameter's default, and what it stands for where the number does not tell."""
    meanings = {
        ("occlusion", "window"): "16 at the input, 5 at other layers",
        ("occlusion", "stride"): "8 at the input, 2 at other layers",
    }
    meaning = meanings.get((method.name, name))
    return f"{name}={value} ({meaning})" if meaning else f"{name}={value}"
