"""`pixelcert attack`: prepare and run attacks, and print tables of flips."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

from ..attacks.aim import choose_pixels
from ..attacks.campaign import Campaign
from ..attacks.campaign import prepare as prepare_campaign
from ..attacks.descent import Effort
from ..attacks.outcome import CERTIFIED, GROUPS, Outcome, Pixel, Toll
from ..attacks.summary import Case, Summary, summarise
from ..basics.files import check_name
from ..basics.machine import check_device
from ..basics.messages import ArgumentError, naming
from ..certificate import Certificate, certify_votes
from ..image import image_hash, load_image
from ..models import load_model
from ..models.loading import check_weights
from ..noise import snap
from ..plan import Criterion
from ..sampling.checkpoint import check_own_names, explainer_of, image_of, make_folder
from ..votes import Votes
from . import BROKEN, DONE, INTERRUPTED, terminal

_FEW = 6  # tables of single files that a person would read
_AGAINST = {"none": "", "random": "none: random", "certified": "certified", "abstaining": "abstaining"}


class Named(NamedTuple):
    """The model, as the options name it; None for the one that the votes name."""

    model: str | None
    weights: str
    device: str | None


class Attack(NamedTuple):
    """A campaign that is ready to run, and the votes file that it is about."""

    file: Path
    campaign: Campaign


def prepare(
    files: Sequence[Path],
    criterion: Criterion,
    named: Named,
    images: Sequence[Path],
    level: float | None,
    pixels: int | None,
    radii: Sequence[float] | None,
    effort: Effort,
    out: Path | None,
) -> list[Attack]:
    """Check everything and load it; each votes file gives one attack on all pixels, or one for each pixel chosen."""
    loaded = [Votes.load(file) for file in files]
    certificates = [_certified(file, votes, criterion) for file, votes in zip(files, loaded, strict=True)]
    check_device(named.device)
    check_weights(named.weights)
    _check_images(loaded, images)
    _check_places(files, loaded, pixels is not None, out)
    load = cache(lambda name: load_model(name, named.weights, named.device))
    found = []
    for file, certificate in zip(files, certificates, strict=True):
        source = certificate.votes.provenance
        explainer = explainer_of(source, partial(load, named.model or source.model))
        image = image_of(certificate.votes, images)
        alone = [None] if pixels is None else choose_pixels(certificate, level, pixels, effort.seed)
        for pixel in alone:
            campaign = prepare_campaign(
                certificate, explainer, image, level=level, pixel=pixel, radii=radii, effort=effort
            )
            found.append(Attack(file, campaign))
    return found


def run(attacks: Sequence[Attack], out: Path | None, as_json: bool) -> int:
    """Run every attack, write what it found, and show the flips."""
    finished: list[Finished] = []
    with terminal.progress("noisy copies") as track:
        for file, campaign in attacks:
            try:
                outcome = campaign.run(track(_name_of(file, campaign.pixel)))
            except KeyboardInterrupt:
                terminal.say(f"interrupted in the attack on {file}; {len(finished)} of {len(attacks)} were done.")
                return INTERRUPTED
            finished.append(Finished(outcome, file, _write(outcome, file, out)))
    show_outcomes(finished, as_json)
    return BROKEN if any(one.outcome.broken for one in finished) else DONE


def _certified(file: Path, votes: Votes, criterion: Criterion) -> Certificate:
    with naming(file):
        return certify_votes(votes, criterion)


def _check_images(votes: Sequence[Votes], files: Sequence[Path]) -> None:
    """Refuse photographs of which none was certified, even where votes need none: somebody took them for theirs."""
    pairs = ((one.provenance.image, load_image(file, one.size[0])) for one in votes for file in files)
    if files and not any(image_hash(snap(image)) == certified for certified, image in pairs):
        names = ", ".join(dict.fromkeys(one.provenance.image_name or "the image" for one in votes))
        raise ArgumentError(f"--image {', '.join(map(str, files))} is not what was certified: give {names} itself.")


def _check_places(files: Sequence[Path], votes: Sequence[Votes], alone: bool, out: Path | None) -> None:
    """Make the folder for results, and refuse names that they could not have there."""
    if out is None:
        return
    check_own_names(files, "votes", "attack them apart")
    make_folder(out)
    for file, one in zip(files, votes, strict=True):
        last = (one.size[0] - 1, one.size[1] - 1) if alone else None  # no pixel has a longer name
        check_name(_arrays_file(file, last, out))


def _write(outcome: Outcome, votes: Path, out: Path | None) -> tuple[Path, ...]:
    if out is None:
        return ()
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


class Finished(NamedTuple):
    """An outcome, the votes that it is about, and the files that hold it."""

    outcome: Outcome
    votes: Path
    written: tuple[Path, ...]


def show_outcomes(finished: Sequence[Finished], as_json: bool) -> None:
    """A table and a verdict of each file, and of more than one file their sums; of many files no tables but those."""
    outcomes = [one.outcome for one in finished]
    if as_json:
        together = [summary.as_dict() for summary in summarise(outcomes)]
        terminal.print_json({"attacks": [_as_dict(one) for one in finished], "summary": together})
        return
    for one in finished:
        if few := len(finished) <= _FEW:
            terminal.out.print(_table_of_one(one.outcome))
        _print_verdict(one, with_files=few)
    if len(finished) > 1:
        for summary in summarise(outcomes):
            terminal.out.print(_table_of_all(summary))
    terminal.out.print(_legend(outcomes))


def _print_verdict(one: Finished, with_files: bool) -> None:
    colour = "red" if one.outcome.broken else "green"
    where = f"{one.votes}{_at(one.outcome)}"
    terminal.out.print(f"[bold {colour}]{escape(where)}[/]: {escape(one.outcome.verdict)}", soft_wrap=True)
    for path in one.written if with_files else ():
        terminal.out.print(f"  {escape(str(path))}", soft_wrap=True)


# ── Tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _table_of_one(outcome: Outcome) -> Table:
    source = outcome.certificate.votes.provenance
    image = f"{source.image_name or 'image'}{_at(outcome)}"
    about = f"{image}, {source.method} at {source.layer}, K = {outcome.level} %"
    (summary,) = summarise([outcome])
    return _table(f"Flipped pixels: {about}", summary)


def _table_of_all(summary: Summary) -> Table:
    model, method, layer, level = summary.attacked
    images = f"{summary.images} image{'s' if summary.images > 1 else ''}"
    return _table(f"All together: {images}, {method} at {layer} of {model}, K = {level} %", summary)


def _table(title: str, summary: Summary) -> Table:
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    table.add_column("‖δ‖₂ <", justify="right", vertical="bottom")
    table.add_column("δ against")
    if some := any(row.images < summary.images for row in summary.rows):
        table.add_column("images", justify="right")
    for group in GROUPS:
        table.add_column(f"{summary.pixels[group]}\n{group}", justify="right")
        if group in CERTIFIED:
            table.add_column("of them\nabstain", justify="right")
    sizes = _sizes(summary.rows)
    for row, (before, size) in zip(summary.rows, pairwise(["", *sizes]), strict=True):
        if size != before:
            table.add_section()
        images = [str(row.images)] if some else []
        table.add_row(size if size != before else "", _AGAINST[row.change], *images, *_cells(row))
    return table


def _sizes(rows: Sequence[Case]) -> list[str]:
    """Multiples of the certified radius, or radii where certificates of several R were attacked at the same ones."""
    if any(row.multiple is None for row in rows):
        return [f"{row.radius:.4g}" if row.radius else "δ = 0" for row in rows]
    return [f"{row.multiple:.3g} R" if row.multiple else "δ = 0" for row in rows]


def _cells(row: Case) -> list[str]:
    cells = []
    for group in GROUPS:
        cells.append(_flips(row.tolls[group]))
        if group in CERTIFIED:
            cells.append(str(row.tolls[group].abstains) if row.tolls[group].pixels else "–")
    return cells


def _flips(toll: Toll) -> str:
    if not toll.flipped:
        return "0" if toll.pixels else "–"
    provably = f" ({toll.provably})" if toll.provably else ""
    return f"{toll.flipped}{provably} {toll.percent:.1f} %"


def _legend(outcomes: Sequence[Outcome]) -> str:
    """How to read the tables. Settings are the same for all files; how many votes prove a claim is not."""
    certificate, each = outcomes[0].certificate, "file" if outcomes[0].pixel is None else "pixel"
    apart = f", for each {each}" if len(outcomes) > 1 else ""
    to_flip = _span([one.votes_against_needed for one in outcomes])
    to_abstain = _span([one.votes_against_needed_to_abstain for one in outcomes])
    return (
        f"Flipped: at most half of {outcomes[0].samples} fresh votes are for the pixel's label. Pixels whose true "
        f"share is near one half do so by chance: compare with δ = 0. In brackets, provably flipped: at least "
        f"{to_flip} votes are against the label, so that its true share is below one half. Abstain: at least "
        f"{to_abstain} are, so that its true share is below τ = {certificate.tau:g} and the map with abstentions shows "
        f"the label no more. Each of these two claims is right everywhere in the table with confidence "
        f"{certificate.confidence}{apart}."
    )


def _at(outcome: Outcome) -> str:
    """The pixel that was attacked alone."""
    return "" if outcome.pixel is None else " at {}, {}".format(*outcome.pixel)


def _span(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least}" if least == most else f"{least}–{most}"


def _as_dict(one: Finished) -> dict[str, object]:
    return {"votes": str(one.votes), "files": list(map(str, one.written)), **one.outcome.as_dict()}
