"""`pixelcert attack`: prepare and run attacks, and print tables of flips."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

from ..attacks.aim import choose_pixels
from ..attacks.campaign import Campaign
from ..attacks.descent import Effort as Effort
from ..attacks.judge import CERTIFIED, GROUPS, Pixel, Toll
from ..attacks.outcome import Outcome
from ..attacks.summary import Case, Summary, summarise
from ..basics.files import check_name
from ..basics.messages import ArgumentError
from ..image import image_hash, load_image
from ..noise import snap
from ..plan import Criterion
from ..votes import Votes, title_of
from . import terminal
from .certify import ModelOptions as ModelOptions
from .certify import recalled
from .votes import load_certificates, make_folder

_FEW = 6  # up to so many files have a table each
_AGAINST = {"none": "", "random": "none: random", "certified": "certified", "abstaining": "abstaining"}


class Finished(NamedTuple):
    """An outcome, the votes that it is about, and the files that hold it."""

    outcome: Outcome
    votes: Path
    written: tuple[Path, ...]


def prepare(
    files: Sequence[Path],
    images: Sequence[Path],
    model: ModelOptions,
    criterion: Criterion,
    level: float | None,
    pixels: int | None,  # so many of each kind, one by one; None: all together
    radii: Sequence[float] | None,
    effort: Effort,
    out: Path | None,
) -> list[tuple[Path, Campaign]]:
    """Check everything and load it; each votes file gives one attack on all pixels, or one for each pixel chosen."""
    certificates, effort = load_certificates(files, criterion), effort.drawn()  # one seed for all pixels
    model.check()
    _check_images([certificate.votes for certificate in certificates], images)
    if out is not None:
        make_folder(out, files, "votes", "attack them separately")
    found = []
    recall = recalled(certificates, images, model)
    for file, certificate, (explainer, image) in zip(files, certificates, recall, strict=True):
        for pixel in [None] if pixels is None else choose_pixels(certificate, level, pixels, effort.seed or 0):
            found.append((file, Campaign(certificate, explainer, image, effort, level=level, pixel=pixel, radii=radii)))
            if out is not None:
                check_name(_arrays_file(file, pixel, out))
    return found


def run(attacks: Sequence[tuple[Path, Campaign]], out: Path | None, as_json: bool) -> int:
    """Run every attack, write what it found, and show the flips."""
    finished: list[Finished] = []
    with terminal.progress("noisy copies") as track:
        for file, campaign in attacks:
            try:
                outcome = campaign.run(track(_name_of(file, campaign.pixel)))
            except KeyboardInterrupt:
                terminal.say(f"interrupted in the attack on {file}; {len(finished)} of {len(attacks)} were done.")
                return terminal.INTERRUPTED
            finished.append(Finished(outcome, file, () if out is None else _write(outcome, file, out)))
    show_outcomes(finished, as_json)
    return terminal.BROKEN if any(one.outcome.broken for one in finished) else terminal.DONE


def _check_images(votes: Sequence[Votes], files: Sequence[Path]) -> None:
    """Refuse photographs if none of them was certified, even if the votes hold their own copy."""
    pairs = ((one.provenance.image, load_image(file, one.size[0])) for one in votes for file in files)
    if files and not any(image_hash(snap(image)) == certified for certified, image in pairs):
        names = ", ".join(dict.fromkeys(one.provenance.image_name or "the image" for one in votes))
        raise ArgumentError(f"--image {', '.join(map(str, files))} is not the certified image: give {names} itself.")


def _write(outcome: Outcome, votes: Path, out: Path) -> tuple[Path, ...]:
    arrays = outcome.save(_arrays_file(votes, outcome.pixel, out))
    if outcome.pixel is not None:
        return (arrays,)  # a picture could not show it
    picture = arrays.with_suffix(".png")
    outcome.plot(picture)
    return arrays, picture


def _arrays_file(votes: Path, pixel: Pixel | None, out: Path) -> Path:
    return out / f"{_name_of(votes, pixel)}-attack.safetensors"


def _name_of(votes: Path, pixel: Pixel | None) -> str:
    return votes.stem if pixel is None else f"{votes.stem}-{pixel[0]}-{pixel[1]}"


def show_outcomes(finished: Sequence[Finished], as_json: bool) -> None:
    """Print a table and a verdict for each file, and sums for several; for many files only verdicts and sums."""
    outcomes = [one.outcome for one in finished]
    together = summarise(outcomes)
    if as_json:
        attacks = [
            {"votes": str(file), "files": list(map(str, written)), **outcome.as_dict()}
            for outcome, file, written in finished
        ]
        terminal.print_json({"attacks": attacks, "summary": [summary.as_dict() for summary in together]})
        return
    for one in finished:
        if few := len(finished) <= _FEW:
            terminal.out.print(_table_of_one(one.outcome))
        colour, where = "red" if one.outcome.broken else "green", f"{one.votes}{_at(one.outcome)}"
        terminal.out.print(f"[bold {colour}]{escape(where)}[/]: {escape(one.outcome.verdict)}", soft_wrap=True)
        for path in one.written if few else ():
            terminal.print_path(path)
    if len(finished) > 1:
        for summary in together:
            terminal.out.print(_table_of_all(summary))
    terminal.out.print(_legend(outcomes))


# ── Tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _table_of_one(outcome: Outcome) -> Table:
    source = outcome.certificate.votes.provenance
    about = f"{source.image_title}{_at(outcome)}, {title_of(source.method, source.layer)}, K = {outcome.level} %"
    return _table(f"Flipped pixels: {about}", *summarise([outcome]))


def _table_of_all(summary: Summary) -> Table:
    model, method, layer, level = summary.attacked
    images = f"{summary.images} image{'s' if summary.images > 1 else ''}"
    return _table(f"All together: {images}, {title_of(method, layer, model)}, K = {level} %", summary)


def _table(title: str, summary: Summary) -> Table:
    some = any(row.images < summary.images for row in summary.rows)
    headings = ["‖δ‖₂ <", "δ against", *(["images"] if some else [])]
    for group in GROUPS:
        headings += [f"{summary.pixels[group]}\n{group}", *(["of them\nabstain"] if group in CERTIFIED else [])]
    table = terminal.table(title, *headings, words=1)
    table.columns[0].vertical = "bottom"
    sizes = _sizes(summary.rows)
    for row, (before, size) in zip(summary.rows, pairwise(["", *sizes]), strict=True):
        if size != before:
            table.add_section()
        images = [str(row.images)] if some else []
        cells = [cell for group in GROUPS for cell in _cells(row.tolls[group])]
        table.add_row(size if size != before else "", _AGAINST[row.change], *images, *cells)
    return table


def _sizes(rows: Sequence[Case]) -> list[str]:
    """Return sizes as multiples of the certified radius, or as radii where certificates of several R share them."""
    if any(row.multiple is None for row in rows):
        return [f"{row.radius:.4g}" if row.radius else "δ = 0" for row in rows]
    return [f"{row.multiple:.3g} R" if row.multiple else "δ = 0" for row in rows]


def _cells(toll: Toll) -> list[str]:
    """Return how many pixels of a group flipped and, if they were certified, how many abstain."""
    provably = f" ({toll.provably})" if toll.provably else ""
    flipped = f"{toll.flipped}{provably} {toll.percent:.1f} %" if toll.flipped else "0"
    cells = [flipped] if toll.abstains is None else [flipped, str(toll.abstains)]
    return cells if toll.pixels else ["–"] * len(cells)


def _legend(outcomes: Sequence[Outcome]) -> str:
    """Say how to read the tables. All files share their settings, but the votes that prove a claim may differ."""
    certificate, each = outcomes[0].certificate, "file" if outcomes[0].pixel is None else "pixel"
    apart = f", for each {each}" if len(outcomes) > 1 else ""
    to_flip = _span([one.judge.votes_against_needed for one in outcomes])
    to_abstain = _span([one.judge.votes_against_needed_to_abstain for one in outcomes])
    return (
        f"Flipped: at most half of {outcomes[0].samples} fresh votes are for the pixel's label. Pixels whose true "
        f"share is near one half do so by chance: compare with δ = 0. In brackets, provably flipped: at least "
        f"{to_flip} votes are against the label, so that its true share is below one half. Abstain: at least "
        f"{to_abstain} are, so that its true share is below τ = {certificate.tau} and the map with abstentions no "
        f"longer shows the label. Each of these two claims is right everywhere in the table with confidence "
        f"{certificate.confidence}{apart}."
    )


def _at(outcome: Outcome) -> str:
    """Name the pixel, if only one was attacked."""
    return "" if outcome.pixel is None else " at {}, {}".format(*outcome.pixel)


def _span(numbers: Sequence[int]) -> str:
    """Return the smallest and the largest number, or the only one."""
    return "–".join(map(str, sorted({min(numbers), max(numbers)})))
