"""The command line: parse, call the library, print. Heavy modules are imported inside the commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ..basics.messages import ArgumentError, PixelcertError, VotesFileError, naming
from ..plan import ALPHA, LEVELS, SIGMA, TAU, N, Plan, check_choice
from . import attack as attacks
from . import report as figures
from . import study as study
from . import terminal

if TYPE_CHECKING:
    from torch import Tensor

    from ..certificate import Certificate
    from ..methods import Method
    from ..models import Classifier
    from ..sampling.precision import Precision
    from ..sampling.sample import Subject
    from ..votes import Votes

    Question = tuple[Plan, Method, Tensor, int, Precision]  # what is sampled: plan, explainer, image, target, precision


REFUSED = 1
INTERRUPTED = 130  # the shell's own code for a program that Ctrl-C ended


class Commands(TyperGroup):
    """Says that Ctrl-C was heard, whatever it interrupted."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            terminal.say("interrupted.")
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Which pixels of an image explanation can you trust?",
    epilog="Exit codes: 0 done, 1 refused or failed with a message, 2 wrong usage, 3 an attack broke a certificate, "
    "130 interrupted (votes are saved).",
)

Levels = Annotated[list[float] | None, typer.Option("-K", "--level", help="K in percent; may be repeated.")]
Sigma = Annotated[float, typer.Option(help="Standard deviation of the noise.")]
Tau = Annotated[float, typer.Option(help="Probability that a label must exceed; the radius is σ·Φ⁻¹(τ).")]
Alpha = Annotated[float, typer.Option(help="Chance of any false claim in a map.")]
Correction = Annotated[str | None, typer.Option(help="holm (default), bonferroni, joint, reference or none.")]
Picture = Annotated[bool, typer.Option(help="Draw a picture beside each votes file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@app.command()
def certify(
    images: Annotated[list[Path] | None, typer.Argument(help="Image files; none: the embedded photographs.")] = None,
    model: Annotated[str, typer.Option(help="One of `pixelcert models`, or package.module:function.")] = (
        "efficientnet_lite0"
    ),
    weights: Annotated[str, typer.Option(help="DEFAULT, none, or a .safetensors or .pth file.")] = "DEFAULT",
    method: Annotated[str, typer.Option(help="One of `pixelcert methods`.")] = "grad_cam",
    layer: Annotated[str | None, typer.Option(help="input, final or a module's name.")] = None,
    param: Annotated[list[str] | None, typer.Option(help="A parameter of the method, NAME=VALUE.")] = None,
    target: Annotated[str | None, typer.Option(help="Class to explain, index or name; default: the predicted.")] = None,
    level: Levels = None,
    sigma: Sigma = SIGMA,
    n: Annotated[int, typer.Option("-n", "--samples", help="Noisy samples.")] = N,
    tau: Tau = TAU,
    alpha: Alpha = ALPHA,
    correction: Correction = None,
    preset: Annotated[str, typer.Option(help="default, or reference for the published code's rules.")] = "default",
    sign: Annotated[str | None, typer.Option(help="Rank the map signed, absolute or positive.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for votes and pictures.")] = Path("out"),
    batch_size: Annotated[int | None, typer.Option(help="Noisy images at once; default: chosen.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …; default: a GPU if there is one.")] = None,
    precision: Annotated[
        str, typer.Option(help="float32, tf32, bfloat16; auto: the fastest that is as good.")
    ] = "auto",
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="Compile the network; default: where it pays.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Reuse or continue the votes in the folder.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace votes of other settings there.")] = False,
    picture: Picture = True,
    as_json: Json = False,
) -> None:
    """Certify photographs: from image files to votes, certificates and pictures."""
    from .. import statistics

    plan = Plan.make(preset=preset, sign=sign, sigma=sigma, n=n, levels=level or LEVELS, seed=seed)  # type: ignore[arg-type]
    params = dict(_parse_param(text) for text in param or ())
    test: Any = correction or statistics.default_correction(plan)
    statistics.check_test(plan, tau, alpha, test)
    with terminal.status("Loading model and images"):
        from ..image import check_image_file, load_image
        from ..methods import METHODS
        from ..methods import method as make_method
        from ..models.loading import check_model_options, load_named_model, photographs
        from ..sampling.checkpoint import picture_file, votes_files
        from ..sampling.precision import Precision
        from ..sampling.sample import Subject, check_batch_size

        check_choice("precision", precision, Precision)
        check_batch_size(batch_size)
        check_model_options(weights, device)
        _check_method(method, params)
        paths = images or photographs()
        for path in paths:
            check_image_file(path)
        files = votes_files(paths, out, method, layer or METHODS[method].layers[0])
        pictures = [picture_file(file, plan, tau, alpha, None, correction) if picture else None for file in files]
        classifier = load_named_model(model, weights, device)
        statistics.check_feasible(plan, tau, alpha, classifier.size**2, test)
        explainer = make_method(method, classifier, layer, **params)
        loaded = [load_image(path, classifier.size) for path in paths]
        targets = [_parse_target(target, classifier, image) for image in loaded]
        asked = [(plan, explainer, image, index, precision) for image, index in zip(loaded, targets, strict=True)]
        begun = [_find_votes(file, run, overwrite) for file, run in zip(files, asked, strict=True)]  # type: ignore[arg-type]
        begun = begun if resume else [None] * len(begun)

    how: Any = {"batch_size": batch_size, "precision": precision, "compile": "auto" if compiled is None else compiled}
    results = []
    with terminal.progress() as track:
        bars = [track(path.name) for path in paths]
        if begun[0] is None:
            bars[0](0, n)  # at once: the first batch of a slow method takes minutes
        subjects = [
            Subject(image, index, path.name, bar)
            for image, index, path, bar in zip(loaded, targets, paths, bars, strict=True)
        ]
        for file, drawn, votes in zip(
            files, pictures, _sample_into(files, subjects, begun, plan, explainer, how), strict=True
        ):
            certificate = votes.certify(tau, alpha, correction=correction)  # type: ignore[arg-type]
            results.append(_draw(certificate, file, drawn))
    terminal.show_results(results, as_json)


@app.command()
def show(
    votes: Annotated[list[Path], typer.Argument(help="Votes files that `certify` left.")],
    tau: Tau = TAU,
    alpha: Alpha = ALPHA,
    level: Levels = None,
    correction: Correction = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder for pictures; default: beside.")] = None,
    picture: Picture = True,
    as_json: Json = False,
) -> None:
    """Certify saved votes again, at another τ, α, correction or levels, without sampling.

    Each certificate keeps its own promise; choosing the most pleasing of many does not. To see all τ at once, use the
    radius map.
    """
    from .. import statistics
    from ..sampling.checkpoint import check_own_names, make_folder, picture_file
    from ..votes import Votes

    statistics.check_tau(tau)
    statistics.check_alpha(alpha)
    if picture and out is not None:
        check_own_names(votes, "votes", "show them apart")
        make_folder(out)
    loaded = [Votes.load(path) for path in votes]
    certificates, pictures = [], []
    for path, one in zip(votes, loaded, strict=True):
        with naming(path):
            certificates.append(one.certify(tau, alpha, levels=level, correction=correction))  # type: ignore[arg-type]
        pictures.append(picture_file(path, one.plan, tau, alpha, level, correction, out) if picture else None)
    results = [_draw(*each) for each in zip(certificates, votes, pictures, strict=True)]
    terminal.show_results(results, as_json)


@app.command()
def report(
    sources: Annotated[list[Path], typer.Argument(help="Votes files, or one study: its file or its folder.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
    tau: Annotated[float | None, typer.Option(help="τ to begin with; default: 0.75, or the study's.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Chance of any false claim; default: 0.001.")] = None,
    level: Levels = None,
    correction: Correction = None,
    limit: Annotated[float, typer.Option(help="MB of votes that may be inside the page; more go beside it.")] = 32,
) -> None:
    """Write an interactive page about saved votes or a study. It asks nothing of the network.

    A page that would be too large loads its votes on demand from a folder beside it, such as report_files/ for
    report.html: keep the two together.
    """
    from ..report import write_page, write_study_page
    from ..report.entries import is_study, open_study

    if limit < 0:
        raise ArgumentError(f"--limit {limit} is negative: give megabytes, 0 to keep all votes beside the page.")
    if any(out.resolve() == source.resolve() for source in sources):
        raise ArgumentError(f"--out {out} is what the page is to be made of: name another file, such as report.html.")
    most = int(1e6 * limit)
    if not any(is_study(path) for path in sources):
        asked = {"tau": tau, "alpha": alpha, "levels": level, "correction": correction}
        settings: Any = {name: value for name, value in asked.items() if value is not None}
        written = write_page(out, _load_each(sources, **settings), **settings, limit=most)
    elif len(sources) > 1:
        raise ArgumentError(f"{sources[0]} and {len(sources) - 1} more: give votes files alone, or one study alone.")
    elif alpha is not None or level or correction:
        raise ArgumentError("--alpha, -K and --correction are a study's own: change the study file, or leave them out.")
    else:
        with terminal.progress("votes") as track:
            written = write_study_page(out, open_study(sources[0]), tau=tau, limit=most, progress=track(str(out)))
    terminal.say_written(written)


@app.command()
def serve(
    page: Annotated[Path, typer.Argument(help="A page that `report` wrote.")] = Path("report.html"),
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes any that is free.")] = 8765,
) -> None:
    """Show a page to browsers on this machine, and to no other, until Ctrl-C."""
    from ..report.page import PageServer

    with PageServer(page, port) as server:
        terminal.say(f"{page} is at {server.url} for this machine alone; Ctrl-C ends it.")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            terminal.say("ended.")


@app.command()
def plan(
    n: Annotated[int | None, typer.Option("-n", "--samples", help="Noisy samples; default: the fewest.")] = None,
    tau: Annotated[float | None, typer.Option(help="Probability to exceed; default: the largest n allows.")] = None,
    radius: Annotated[float | None, typer.Option(help="Radius to certify, instead of τ.")] = None,
    sigma: Sigma = SIGMA,
    alpha: Alpha = ALPHA,
    size: Annotated[str, typer.Option(help="Image size in pixels, such as 224 or 640x480.")] = "224",
    as_json: Json = False,
) -> None:
    """What n samples can certify before drawing any: votes needed, radius, limits."""
    from .plan import find_limits

    width, height = _parse_size(size)
    terminal.show_limits(find_limits(n, tau, radius, sigma, alpha, width, height), as_json)


@app.command()
def models(as_json: Json = False) -> None:
    """List the models that `certify --model` knows by name."""
    from ..models import model_names

    terminal.show_models(model_names(), as_json)


@app.command()
def methods(as_json: Json = False) -> None:
    """List the attribution methods, their layers and parameters."""
    from ..methods import METHODS

    terminal.show_methods(list(METHODS.values()), as_json)


app.command("attack", help=attacks.HELP, short_help="Try to flip pixels, certified or not.")(attacks.attack)
app.command("figure", help=figures.HELP, short_help="Draw the paper's figures from a study.")(figures.figure)
app.add_typer(study.app, name="study")


def main() -> None:
    """Entry point: turns every refusal into one message and an exit code."""
    terminal.print_in_any_encoding()
    terminal.print_warnings_as_notes()
    try:
        app()
    except (PixelcertError, OSError) as error:
        terminal.say_error(str(error))
        sys.exit(REFUSED)


def _check_method(name: str, params: dict[str, Any]) -> None:
    """Refuse a method and parameters that there are for no model."""
    from ..methods import METHODS

    if name not in METHODS:
        raise ArgumentError(f"--method {name} is not known: choose one of {', '.join(METHODS)}.")
    METHODS[name].check_parameters(params)


def _load_each(
    files: list[Path], tau: float = TAU, alpha: float = ALPHA, levels: Sequence[float] = (), correction: Any = None
) -> Iterator[Votes]:
    """Votes one by one, each checked for what is asked of it, so that the error names its file."""
    from .. import statistics
    from ..votes import Votes

    for file in files:
        votes = Votes.load(file)
        with naming(file):
            votes.require_complete()
            test = correction or statistics.default_correction(votes.plan)
            statistics.check_feasible(votes.plan, tau, alpha, votes.pixels, test)
            for level in levels:
                votes.index(level)
        yield votes


def _find_votes(file: Path, run: Question, overwrite: bool) -> Votes | None:
    """Votes of this very run that are already there. Those of another run are refused, unless they may be replaced."""
    from ..sampling.checkpoint import partial_file
    from ..sampling.sample import differences
    from ..votes import Votes

    found = None
    for path in (file, partial_file(file)):
        try:
            votes = Votes.load(path) if path.exists() else None
        except VotesFileError:
            if not overwrite:
                raise
            continue
        if votes is None:
            continue
        if not (changed := differences(votes, *run)):
            found = found or votes
        elif not overwrite:
            remedy = "give the same settings, another --out, or --overwrite"
            raise ArgumentError(f"{path} holds votes of another run ({'; '.join(changed)}): {remedy}.")
    return found


def _sample_into(
    files: list[Path],
    subjects: list[Subject],
    begun: list[Votes | None],
    plan: Plan,
    explainer: Method,
    how: dict[str, Any],
) -> Iterator[Votes]:
    """Votes of every subject in its file, as they are done: those begun are gone on with, the others share batches."""
    from ..sampling.checkpoint import partial_file
    from ..sampling.sample import Interrupted, SamplingError, sample_each

    fresh = [subject for subject, votes in zip(subjects, begun, strict=True) if votes is None]
    sampled = sample_each(plan, explainer, fresh, **how)
    for file, subject, votes in zip(files, subjects, begun, strict=True):
        try:
            if votes is None:
                votes = next(sampled)
            else:
                votes = votes.resume(explainer, subject.image, batch_size=how["batch_size"], progress=subject.progress)
        except (Interrupted, SamplingError) as stop:
            _save_partial(file, stop.votes)
            if isinstance(stop, Interrupted):
                raise typer.Exit(INTERRUPTED) from None
            raise
        votes.save(file)
        partial_file(file).unlink(missing_ok=True)
        yield votes


def _save_partial(file: Path, votes: Votes) -> None:
    """What an interruption or failure leaves goes beside the file, for --resume."""
    from ..sampling.checkpoint import partial_file

    partial = votes.save(partial_file(file))
    counted = f"{votes.counted} of {votes.plan.n} samples"
    terminal.say(f"{counted} are saved in {partial}; the same command with --resume goes on.")


def _draw(certificate: Certificate, votes: Path, picture: Path | None) -> terminal.Result:
    if picture is not None:
        certificate.plot(picture)
    return terminal.Result(certificate, votes, picture)


def _parse_target(text: str | None, model: Classifier, image: Tensor) -> int:
    if text is None:
        return model.predict(image)[0]
    if text.isdecimal():
        return int(text)
    if model.classes and model.classes.count(text) > 1:
        indices = ", ".join(str(index) for index, name in enumerate(model.classes) if name == text)
        raise ArgumentError(f"--target {text!r} is the name of classes {indices}: give the index.")
    if model.classes and text in model.classes:
        return model.classes.index(text)
    raise ArgumentError(f"--target {text!r} is neither an index nor a class name of {model.name}: give its index.")


def _parse_param(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentError(f"--param {text!r} has no value: write NAME=VALUE, such as relu=false.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _parse_size(text: str) -> tuple[int, int]:
    width, by, height = text.partition("x")
    height = height if by else width
    if not width.isdecimal() or not height.isdecimal() or 0 in (int(width), int(height)):
        raise ArgumentError(f"--size {text!r} is not a size: write 224 or 640x480.")
    return int(width), int(height)
