"""What `pixelcert attack` prints: a table of flips, and what they say of the certificate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

from .. import terminal
from .outcome import GROUPS, Attempt, Outcome, Tally

_AGAINST = {"none": "", "random": "none: random", "certified": "certified", "abstaining": "abstaining"}


class Finished(NamedTuple):
    """An outcome, the votes that it is about, and the files that hold it."""

    outcome: Outcome
    votes: Path
    written: tuple[Path, ...]


def show_outcomes(finished: Sequence[Finished], as_json: bool) -> None:
    if as_json:
        terminal.print_json([_as_dict(one) for one in finished])
        return
    for one in finished:
        terminal.out.print(_table(one.outcome))
        terminal.out.print(_legend(one.outcome))
        colour = "red" if one.outcome.broken else "green"
        terminal.out.print(f"[bold {colour}]{escape(str(one.votes))}[/]: {escape(one.outcome.verdict)}", soft_wrap=True)
        for path in one.written:
            terminal.out.print(f"  {escape(str(path))}", soft_wrap=True)


def _table(outcome: Outcome) -> Table:
    source = outcome.certificate.votes.provenance
    title = f"Flipped pixels: {source.image_name or 'image'}, {source.method} at {source.layer}, K = {outcome.level} %"
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    table.add_column("‖δ‖₂ <", justify="right")
    table.add_column("δ against")
    for group in GROUPS:
        table.add_column(f"{int(outcome.members(group).sum())} {group}", justify="right")
    before = None
    for attempt in outcome.attempts:
        if attempt.radius != before:
            table.add_section()
        size = _size(attempt, outcome.certificate.radius) if attempt.radius != before else ""
        table.add_row(size, _AGAINST[attempt.change], *(_cell(outcome.tally(attempt, group)) for group in GROUPS))
        before = attempt.radius
    return table


def _size(attempt: Attempt, radius: float) -> str:
    """A radius as a multiple of the certified one."""
    if attempt.radius == 0:
        return "δ = 0"
    return f"{attempt.radius / radius:.3g} R" if radius else f"{attempt.radius:.4g}"


def _cell(tally: Tally) -> str:
    if not tally.flipped:
        return "0" if tally.pixels else "–"
    provably = f" ({tally.provably})" if tally.provably else ""
    return f"{tally.flipped}{provably} {tally.percent:.1f} %"


def _legend(outcome: Outcome) -> str:
    """How to read the table."""
    return (
        f"Flipped: at most half of {outcome.samples} fresh votes are for the pixel's label. Pixels whose true share is "
        f"near one half do so by chance: compare with δ = 0. In brackets, provably flipped: at least "
        f"{outcome.votes_against_needed} votes are against the label, so that its true share is below one half; with "
        f"confidence {outcome.certificate.confidence} this is right everywhere in the table."
    )


def _as_dict(one: Finished) -> dict[str, object]:
    return {"votes": str(one.votes), "files": list(map(str, one.written)), **one.outcome.as_dict()}
