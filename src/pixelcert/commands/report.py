"""`pixelcert report`, `serve` and `figure`: pages and figures of votes and studies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import statistics
from ..basics.messages import ArgumentError, PixelcertError, naming
from ..figures.registry import FIGURES, FORMATS, entry
from ..figures.sheet import save
from ..plan import Criterion
from ..report import write_page, write_study_page
from ..report.entries import open_study
from ..report.page import PageServer
from ..study.findings import Findings
from ..study.study import Study
from ..votes import Votes
from . import terminal


def write(sources: Sequence[Path], out: Path, limit: float, **asked: Any) -> None:
    """Write a page of votes, or of one study. Options that are None take the defaults, or the study's values."""
    if limit < 0:
        raise ArgumentError(f"--limit {limit} is negative: give megabytes, 0 to keep all votes beside the page.")
    if any(out.resolve() == source.resolve() for source in sources):
        raise ArgumentError(f"--out {out} is also an input of the page: name another file, such as report.html.")
    most, given = int(1e6 * limit), {name: value for name, value in asked.items() if value is not None}
    if not any(source.suffix == ".toml" or source.is_dir() for source in sources):
        written = write_page(out, _load_each(sources, **given), limit=most, **given)
    elif len(sources) > 1:
        raise ArgumentError(f"{sources[0]} and {len(sources) - 1} more: give votes files only, or one study only.")
    elif given.keys() - {"tau"}:
        raise ArgumentError("--alpha, -K and --correction come from the study file: change them there.")
    else:
        with terminal.progress("votes") as track:
            written = write_study_page(out, open_study(sources[0]), **given, limit=most, progress=track(str(out)))
    terminal.say(f"{written.page}: {written.entries} maps, {written.page_bytes / 1e6:.1f} MB")
    if written.folder is not None:
        size = f"{written.folder_bytes / 1e6:.1f} MB"
        terminal.say(f"{written.folder}: {size} that the page loads on demand; keep it beside the page.")


def _load_each(files: Sequence[Path], levels: Sequence[float] = (), **criterion: Any) -> Iterator[Votes]:
    """Yield votes one by one, each checked before, so that an error names its file."""
    for file in files:
        votes = Votes.load(file)
        with naming(file):
            votes.require_complete()
            statistics.check_feasible(votes.plan, Criterion(**criterion), votes.pixels)
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
    name: str | None, file: Path | None, folder: Path | None, view: dict[str, Any], out: Path | None, kinds: list[str]
) -> None:
    """Draw one figure of a study, or all; list them where none is named."""
    if name is None:
        for known, figure in FIGURES.items():
            terminal.out.print(f"{known:16} {figure.about}", soft_wrap=True)
        return
    entries = {one: entry(one) for one in (FIGURES if name == "all" else [name])}
    if file is None:
        raise ArgumentError(f"figure {name} needs a study: pixelcert figure {name} study.toml")
    if strange := [kind for kind in kinds if kind not in FORMATS]:
        raise ArgumentError(f"--format {strange[0]} is not known: use pdf or png.")
    if out is not None and out.is_file():
        raise ArgumentError(f"--out {out} is a file: name a folder.")
    with terminal.status("Reading the study"):
        study = Study.open(file, folder)
        shown = Findings(study).at(**view)
    into = study.folder / "figures" if out is None else out
    for one, figure in entries.items():
        try:
            with terminal.status(f"Drawing {one}"):
                drawn = figure.draw(shown)
                files = [save(drawn, into / f"{one}.{kind}") for kind in dict.fromkeys(kinds or FORMATS)]
            terminal.say(", ".join(map(str, files)))
        except PixelcertError as error:
            if name != "all":
                raise
            terminal.say(f"{one}: skipped: {error}")
