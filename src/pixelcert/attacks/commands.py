"""`pixelcert attack`: parse, call the library, print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import terminal
from ..errors import ArgumentError, naming
from ..plan import ALPHA, TAU

if TYPE_CHECKING:
    from torch import Tensor

    from ..certificate import Certificate
    from ..methods import Method
    from ..models import Classifier
    from ..votes import Votes
    from .campaign import Campaign
    from .outcome import Outcome, Pixel

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
        from ..named_model import check_model_options, load_named_model
        from ..votes import Votes
        from .display import Finished, show_outcomes

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
    from .campaign import prepare
    from .choice import choose_pixels

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
    from ..files import check_name
    from ..outputs import check_own_names, make_folder

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
