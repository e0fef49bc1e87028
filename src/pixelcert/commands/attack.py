"""`pixelcert attack`: prepare and run attacks, and print tables of flips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from ..attacks.outcome import CERTIFIED, GROUPS, Outcome, Toll
from ..attacks.summary import Case, Summary, summarise
from ..basics.messages import ArgumentError, naming
from ..plan import ALPHA, TAU
from . import terminal

if TYPE_CHECKING:
    from torch import Tensor

    from ..attacks.campaign import Campaign
    from ..attacks.outcome import Outcome, Pixel
    from ..certificate import Certificate
    from ..methods import Method
    from ..models import Classifier
    from ..votes import Votes


INTERRUPTED, BROKEN = 130, 3
HELP = (
    "Attack certified explanations: try to flip pixels of the smoothed map by small changes of the image, inside the "
    "certified radius and beyond, and count with fresh noise how many did.\n\n"
    f"Exit code {BROKEN}: a certified pixel provably flipped inside its radius, or was below τ to begin with; a sound "
    f"certificate rules out both."
)


def attack(
    votes: Annotated[list[Path], typer.Argument(help="Votes files that `certify` left.")],
    model: Annotated[str | None, typer.Option(help="As in `certify`; default: the one that the votes name.")] = None,
    weights: Annotated[str, typer.Option(help="DEFAULT, none, or a .safetensors or .pth file.")] = "DEFAULT",
    image: Annotated[
        list[Path] | None, typer.Option(help="The photograph, where votes do not hold it exactly; may be repeated.")
    ] = None,
    level: Annotated[float | None, typer.Option("-K", "--level", help="K in percent; default: the middle.")] = None,
    pixels: Annotated[
        int | None, typer.Option(help="Attack so many of each kind alone; default: all pixels together.")
    ] = None,
    radius: Annotated[
        list[float] | None, typer.Option(help="ℓ2 size of the changes; may be repeated. Default: R, 2R, 4R, 8R.")
    ] = None,
    tau: Annotated[float, typer.Option(help="Of the certificate that is attacked.")] = TAU,
    alpha: Annotated[float, typer.Option(help="Of the certificate, and of the test that judges the attack.")] = ALPHA,
    correction: Annotated[
        str | None, typer.Option(help="holm (default), bonferroni, joint, reference or none.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps of each attack.")] = 30,
    draws: Annotated[int, typer.Option(help="Noisy copies for each step.")] = 16,
    samples: Annotated[int, typer.Option("-n", "--samples", help="Fresh noisy copies that judge each change.")] = 1000,
    gradient: Annotated[str, typer.Option(help="pathwise, stein (for any explainer), or auto.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the attack; never the certificate's noise.")] = 0,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder for perturbations and pictures.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Fresh copies at once; default: chosen.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …; default: a GPU if there is one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    effort = {"steps": steps, "draws": draws, "samples": samples, "gradient": gradient, "seed": seed}
    with terminal.status("Loading votes, model and images"):
        from ..models.loading import check_model_options, load_named_model
        from ..votes import Votes

        loaded = [Votes.load(file) for file in votes]
        test: Any = {"tau": tau, "alpha": alpha, "correction": correction}
        certificates = [_certified(file, one, test) for file, one in zip(votes, loaded, strict=True)]
        check_model_options(weights, device)
        _check_images(loaded, image or ())
        _check_places(votes, loaded, pixels is not None, out)
        load = cache(lambda name: load_named_model(name, weights, device))
        asked: Any = {"level": level, "radii": radius, "batch_size": batch_size, **effort}
        campaigns = []
        for file, certificate in zip(votes, certificates, strict=True):
            about = certificate.votes
            subject = (certificate, _explainer(about, model, load), _photograph(about, image or ()))
            campaigns += [(file, one) for one in _campaigns(*subject, pixels, asked)]

    finished: list[Finished] = []
    with terminal.progress("noisy copies") as track:
        for file, campaign in campaigns:
            try:
                outcome = campaign.run(track(_name_of(file, campaign.pixel)))
            except KeyboardInterrupt:
                terminal.say(f"interrupted in the attack on {file}; {len(finished)} of {len(campaigns)} were done.")
                raise typer.Exit(INTERRUPTED) from None
            finished.append(Finished(outcome, file, _write(outcome, file, out)))
    show_outcomes(finished, as_json)
    if any(one.outcome.broken for one in finished):
        raise typer.Exit(BROKEN)


def _certified(file: Path, votes: Votes, test: dict[str, Any]) -> Certificate:
    with naming(file):
        return votes.certify(**test)


def _campaigns(
    certificate: Certificate, explainer: Method, photograph: Tensor, pixels: int | None, asked: dict[str, Any]
) -> list[Campaign]:
    """One attack on all pixels together, or one on each of those chosen."""
    from ..attacks.aim import choose_pixels
    from ..attacks.campaign import prepare

    if pixels is None:
        return [prepare(certificate, explainer, photograph, **asked)]
    alone = choose_pixels(certificate, asked["level"], pixels, asked["seed"])
    return [prepare(certificate, explainer, photograph, pixel=pixel, **asked) for pixel in alone]


def _explainer(votes: Votes, model: str | None, load: Callable[[str], Classifier]) -> Method:
    """The method that the votes name, at its layer and with its parameters."""
    from ..methods import METHODS, method

    source = votes.provenance
    if source.method not in METHODS:
        raise ArgumentError(
            f"{source.method} is none of `pixelcert methods`, so it cannot be made again here: attack it from Python, "
            f"with pixelcert.attack(votes, explainer, image)."
        )
    return method(source.method, load(model or source.model), source.layer, **source.params)


def _check_images(votes: Sequence[Votes], files: Sequence[Path]) -> None:
    """Refuse photographs of which none was certified, even where votes need none: somebody took them for theirs."""
    from ..image import image_hash, load_image
    from ..noise import snap

    pairs = ((one.provenance.image, load_image(file, one.size[0])) for one in votes for file in files)
    if files and not any(image_hash(snap(image)) == certified for certified, image in pairs):
        names = ", ".join(dict.fromkeys(one.provenance.image_name or "the image" for one in votes))
        raise ArgumentError(f"--image {', '.join(map(str, files))} is not what was certified: give {names} itself.")


def _photograph(votes: Votes, files: Sequence[Path]) -> Tensor:
    """The very image that was certified: one of the files, or the picture in the votes where it is exact."""
    import torch

    from ..image import image_hash, load_image
    from ..noise import snap

    given = [load_image(file, votes.size[0]) for file in files]
    stored = [] if votes.photo is None else [torch.from_numpy(votes.photo.astype("float32") / 255).permute(2, 0, 1)]
    for image in (*given, *stored):
        if image_hash(snap(image)) == votes.provenance.image:
            return image
    name = votes.provenance.image_name or "the image"
    raise ArgumentError(f"the votes hold {name} for pictures only, not exactly: give the file with --image.")


def _check_places(files: Sequence[Path], votes: Sequence[Votes], alone: bool, out: Path | None) -> None:
    """Make the folder for results, and refuse names that they could not have there."""
    if out is None:
        return
    from ..basics.files import check_name
    from ..sampling.checkpoint import check_own_names, make_folder

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


_FEW = 6  # tables of single files that a person would read
_AGAINST = {"none": "", "random": "none: random", "certified": "certified", "abstaining": "abstaining"}


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
