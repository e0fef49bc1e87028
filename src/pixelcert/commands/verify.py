"""`pixelcert verify`: sample somebody's votes again, and say what speaks against their certificates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from ..basics.messages import naming
from ..plan import Criterion
from ..sampling.verify import Verification, verify_certificate
from . import terminal
from .certify import ModelOptions as ModelOptions
from .certify import recalled
from .votes import load_certificates


def run(
    files: Sequence[Path],
    images: Sequence[Path],
    options: ModelOptions,
    criterion: Criterion,
    samples: int | None,
    seed: int | None,
    as_json: bool,
) -> int:
    """Verify every file, and show what was found."""
    with terminal.loading("Loading votes, model and images"):
        certificates = load_certificates(files, criterion)
        prepared = list(zip(files, certificates, recalled(certificates, images, options), strict=True))
    found = []
    with terminal.progress("noisy copies") as track:
        for file, certificate, (explainer, image) in prepared:
            with naming(file):
                found.append(
                    verify_certificate(certificate, explainer, image, samples, seed, progress=track(file.stem))
                )
    show(files, found, as_json)
    return terminal.DONE if all(one.sound for one in found) else terminal.BROKEN


def show(files: Sequence[Path], found: Sequence[Verification], as_json: bool) -> None:
    """Print a table, and a verdict for each file; or JSON."""
    if as_json:
        terminal.print_json([{"votes": str(file), **one.as_dict()} for file, one in zip(files, found, strict=True)])
        return
    table = terminal.table("Verified votes", "votes", "differ", "labels", "fresh copies", "refuted")
    for file, one in zip(files, found, strict=True):
        table.add_row(escape(file.stem), *map(str, (one.differing, one.checked, one.samples, one.refuted)))
    terminal.out.print(table)
    for file, one in zip(files, found, strict=True):
        colour = "green" if one.sound else "red"
        terminal.out.print(f"[bold {colour}]{escape(str(file))}[/]: {escape(one.verdict)}", soft_wrap=True)
        if one.differing and one.unlike:
            terminal.note(f"this machine may round differently: {'; '.join(one.unlike)}.")
        if one.same_process:
            terminal.note(f"the fresh copies were explained in the same process: {one.same_process}.")
