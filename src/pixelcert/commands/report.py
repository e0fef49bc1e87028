"""`pixelcert report`, `serve` and `figure`: pages and figures of votes and studies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import statistics
from ..basics.messages import ArgumentError, PixelcertError, naming
from ..figures.registry import FIGURES, FORMATS, entry, save
from ..plan import Criterion
from ..report import write_page, write_study_page
from ..report.entries import is_study, open_study
from ..report.page import PageServer
from ..study.findings import Findings
from ..study.study import Study
from ..votes import Votes
from . import terminal


def write(
    sources: Sequence[Path],
    out: Path,
    tau: float | None,
    alpha: float | None,
    levels: Sequence[float] | None,
    correction: str | None,
    limit: float,
) -> None:
    """Write a page of votes, or of one study."""
    if limit < 0:
        raise ArgumentError(f"--limit {limit} is negative: give megabytes, 0 to keep all votes beside the page.")
    if any(out.resolve() == source.resolve() for source in sources):
        raise ArgumentError(f"--out {out} is what the page is to be made of: name another file, such as report.html.")
    most = int(1e6 * limit)
    if not any(is_study(path) for path in sources):
        given = {"tau": tau, "alpha": alpha, "correction": correction}
        test: Any = {name: value for name, value in given.items() if value is not None}
        votes = _load_each(sources, Criterion(**test), levels or ())
        written = write_page(out, votes, levels=levels or None, limit=most, **test)
    elif len(sources) > 1:
        raise ArgumentError(f"{sources[0]} and {len(sources) - 1} more: give votes files only, or one study only.")
    elif alpha is not None or levels or correction:
        raise ArgumentError("--alpha, -K and --correction are a study's own: change the study file, or leave them out.")
    else:
        with terminal.progress("votes") as track:
            written = write_study_page(out, open_study(sources[0]), tau=tau, limit=most, progress=track(str(out)))
    terminal.say_written(written)


def _load_each(files: Sequence[Path], criterion: Criterion, levels: Sequence[float]) -> Iterator[Votes]:
    """Yield votes one by one, each checked for what is asked of it, so that the error names its file."""
    for file in files:
        votes = Votes.load(file)
        with naming(file):
            votes.require_complete()
            statistics.check_feasible(votes.plan, criterion, votes.pixels)
            for level in levels:
                votes.index(level)
        yield votes


def serve(page: Path, port: int) -> None:
    """Serve a page until Ctrl-C."""
    with PageServer(page, port) as server:
        terminal.say(f"{page} is at {server.url} for this machine only; Ctrl-C ends it.")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            terminal.say("ended.")


def draw_figures(
    name: str | None, file: Path | None, folder: Path | None, view: dict[str, Any], out: Path | None, kinds: Any
) -> None:
    """Draw one figure of a study, or all; list them where none is named."""
    if name is None:
        for known, listed in FIGURES.items():
            terminal.out.print(f"{known:16} {listed.about}", soft_wrap=True)
        return
    if name != "all":
        entry(name)
    if file is None:
        raise ArgumentError(f"figure {name} needs a study: pixelcert figure {name} study.toml")
    if strange := [kind for kind in kinds or () if kind not in FORMATS]:
        raise ArgumentError(f"--format {strange[0]} is not known: use pdf or png.")
    if out is not None and out.is_file():
        raise ArgumentError(f"--out {out} is a file: name a folder.")
    with terminal.status("Reading the study"):
        study = Study.open(file, folder)
        findings = Findings(study)
        findings.at(**view)
    into = study.folder / "figures" if out is None else out
    for one in FIGURES if name == "all" else [name]:
        try:
            _draw(findings, one, view, into, kinds or FORMATS)
        except PixelcertError as error:
            if name != "all":
                raise
            terminal.say(f"{one}: skipped: {error}")


def _draw(findings: Findings, name: str, view: dict[str, Any], into: Path, kinds: Any) -> None:
    with terminal.status(f"Drawing {name}"):
        drawn = entry(name).draw(findings, findings.at(**view))
        files = [save(drawn, into / f"{name}.{kind}") for kind in dict.fromkeys(kinds)]
    terminal.say(", ".join(map(str, files)))
