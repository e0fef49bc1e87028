"""The command line: every command with its options, in the order of the help.

Each command hands its options to a module of this folder, which is imported when the command runs, so that `--help`
answers at once. It returns an exit code, or None for success.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from ..figures.registry import FIGURES
from ..plan import ALPHA, LEVELS, SIGMA, TAU, Criterion, N, Plan
from . import terminal

app = Typer(
    cls=terminal.Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Which pixels of an image explanation can you trust?",
    epilog="Exit codes: 0 done, 1 refused or failed with a message, 2 wrong usage, 3 a certificate is broken or "
    "refuted, 130 interrupted (votes are saved).",
)
study = Typer(no_args_is_help=True, help="Many methods on many images: plan, run, resume, sum up.")
app.add_typer(study, name="study")


def main() -> None:
    """Run the command line."""
    terminal.run(app)


VotesFiles = Annotated[list[Path], Argument(help="Votes files that `certify` wrote.")]
Weights = Annotated[str, Option(help="DEFAULT, none, or a .safetensors or .pth file.")]
ModelOfVotes = Annotated[str | None, Option("--model", help="As in `certify`; default: the one that the votes name.")]
ImagesOfVotes = Annotated[
    list[Path] | None, Option("--image", help="Photographs that votes do not hold; may be repeated.")
]
Levels = Annotated[list[float] | None, Option("-K", "--level", help="K in percent; may be repeated.")]
Sigma = Annotated[float, Option(help="Standard deviation of the noise.")]
Tau = Annotated[float, Option(help="Probability that a label must exceed; the radius is σ·Φ⁻¹(τ).")]
Alpha = Annotated[float, Option(help="Chance of any false claim in a map.")]
Correction = Annotated[str | None, Option(help="holm (default), bonferroni, joint, reference or none.")]
Device = Annotated[str | None, Option(help="cpu, cuda, …; default: a GPU if there is one.")]
Picture = Annotated[bool, Option(help="Draw a picture beside each votes file.")]
Json = Annotated[bool, Option("--json", help="Print JSON instead of tables.")]
StudyFile = Annotated[Path, Argument(help="The study file, in TOML.")]
Folder = Annotated[Path | None, Option("-o", "--out", help="Votes and tables; default: beside the study file.")]
Undefined = Annotated[float | None, Option(help="Value for an undefined GridPG, such as the paper's 0.")]
StudySigma = Annotated[float | None, Option(help="Noise; default: the study's first.")]
StudySamples = Annotated[int | None, Option("-n", "--samples", help="Noisy samples; default: the study's first.")]
StudyPreset = Annotated[str | None, Option(help="Preset; default: the study's first.")]
StudyTau = Annotated[float | None, Option(help="τ; default: that of the deletion test.")]
StudyLevel = Annotated[float | None, Option("-K", "--level", help="K in percent; default: the study's middle level.")]


# ── One image ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def certify(
    images: Annotated[list[Path] | None, Argument(help="Image files; none: the embedded photographs.")] = None,
    model: Annotated[str, Option(help="One of `pixelcert models`, or package.module:function.")] = "efficientnet_lite0",
    weights: Weights = "DEFAULT",
    method: Annotated[str, Option(help="One of `pixelcert methods`.")] = "grad_cam",
    layer: Annotated[str | None, Option(help="input, final or a module's name.")] = None,
    param: Annotated[list[str] | None, Option(help="A parameter of the method, NAME=VALUE.")] = None,
    target: Annotated[str | None, Option(help="Class to explain, index or name; default: the predicted one.")] = None,
    level: Levels = None,
    sigma: Sigma = SIGMA,
    n: Annotated[int, Option("-n", "--samples", help="Noisy samples.")] = N,
    tau: Tau = TAU,
    alpha: Alpha = ALPHA,
    correction: Correction = None,
    preset: Annotated[str, Option(help="default, or reference: the published code's ranking and test.")] = "default",
    sign: Annotated[str | None, Option(help="Rank the map signed, absolute or positive.")] = None,
    seed: Annotated[
        int | None, Option(help="Seed of the noise, to repeat a run; default: a fresh, secret one.")
    ] = None,
    out: Annotated[Path, Option("-o", "--out", help="Folder for votes and pictures.")] = Path("out"),
    batch_size: Annotated[int | None, Option(help="Noisy images at once; default: automatic.")] = None,
    device: Device = None,
    precision: Annotated[str, Option(help="float32, tf32, bfloat16; auto: the fastest suitable one.")] = "auto",
    compiled: Annotated[
        bool | None, Option("--compile/--no-compile", help="Compile the network; default: if it saves time.")
    ] = None,
    resume: Annotated[bool, Option("--resume", help="Reuse or continue the votes in the folder.")] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace votes of other settings in the folder.")] = False,
    picture: Picture = True,
    as_json: Json = False,
) -> int:
    """Certify photographs: from image files to votes, certificates and pictures."""
    plan = Plan.make(preset=preset, sign=sign, sigma=sigma, n=n, levels=level or LEVELS, seed=seed)  # type: ignore[arg-type]
    criterion = Criterion(tau, alpha, correction).for_plan(plan)  # type: ignore[arg-type]
    with terminal.loading("Loading model and images"):
        from .certify import ModelOptions, Output, Prepared, Tuning

        explainer = ModelOptions(model, weights, device), method, layer, param or ()
        tuning = Tuning(batch_size, precision, "auto" if compiled is None else compiled)
        output = Output(out, picture, resume, overwrite)
        prepared = Prepared(images or (), target, *explainer, plan, criterion, tuning, output)
    return prepared.run(as_json)


@app.command()
def show(
    votes: VotesFiles,
    tau: Tau = TAU,
    alpha: Alpha = ALPHA,
    level: Levels = None,
    correction: Correction = None,
    out: Annotated[Path | None, Option("-o", "--out", help="Folder for pictures; default: beside the votes.")] = None,
    picture: Picture = True,
    as_json: Json = False,
) -> None:
    """Certify saved votes again, at another τ, α, correction or levels, without sampling.

    Each certificate keeps its own promise, but the best one chosen from many does not. To see all τ at once, use the
    radius map.
    """
    criterion = Criterion(tau, alpha, correction)  # type: ignore[arg-type]
    from .votes import show, show_results

    show_results(show(votes, criterion, level, out, picture), as_json)


@app.command()
def attack(
    votes: VotesFiles,
    model: ModelOfVotes = None,
    weights: Weights = "DEFAULT",
    image: ImagesOfVotes = None,
    level: Annotated[float | None, Option("-K", "--level", help="K in percent; default: the middle.")] = None,
    pixels: Annotated[int | None, Option(help="Pixels per kind to attack one by one; default: all at once.")] = None,
    radius: Annotated[list[float] | None, Option(help="ℓ2 norms; may be repeated; default: R, 2R, 4R, 8R.")] = None,
    tau: Annotated[float, Option(help="τ of the certificate that is attacked.")] = TAU,
    alpha: Annotated[float, Option(help="α of the certificate, and of the attack's test.")] = ALPHA,
    correction: Correction = None,
    steps: Annotated[int, Option(help="Steps of each attack.")] = 30,
    draws: Annotated[int, Option(help="Noisy copies for each step.")] = 16,
    samples: Annotated[int, Option("-n", "--samples", help="Fresh noisy copies that judge each change.")] = 1000,
    gradient: Annotated[str, Option(help="pathwise, stein (for any explainer), or auto.")] = "auto",
    seed: Annotated[int | None, Option(help="Seed of the attack, to repeat it; default: a fresh one.")] = None,
    out: Annotated[Path | None, Option("-o", "--out", help="Folder for perturbations and pictures.")] = None,
    batch_size: Annotated[int | None, Option(help="Fresh copies at once; default: automatic.")] = None,
    device: Device = None,
    as_json: Json = False,
) -> int:
    """Try to flip pixels, certified or not.

    The attack changes the image a little, inside the certified radius and beyond, and counts with fresh noise how many
    pixels of the smoothed map flipped.

    Exit code 3: a certified pixel provably flipped inside its radius, or was below τ to begin with; a sound certificate
    rules out both.
    """
    criterion = Criterion(tau, alpha, correction)  # type: ignore[arg-type]
    with terminal.loading("Loading votes, model and images"):
        from .attack import Effort, ModelOptions, prepare, run

        effort = Effort(steps, draws, samples, gradient, seed, batch_size)  # type: ignore[arg-type]
        named = ModelOptions(model or "", weights, device)
        attacks = prepare(votes, image or (), named, criterion, level, pixels, radius, effort, out)
    return run(attacks, out, as_json)


@app.command()
def verify(
    votes: VotesFiles,
    model: ModelOfVotes = None,
    weights: Weights = "DEFAULT",
    image: ImagesOfVotes = None,
    tau: Tau = TAU,
    alpha: Alpha = ALPHA,
    correction: Correction = None,
    samples: Annotated[int | None, Option("-n", "--samples", help="Fresh copies; default: as many as voted.")] = None,
    seed: Annotated[int | None, Option(help="Seed of the fresh noise, to repeat a run; default: drawn.")] = None,
    device: Device = None,
    as_json: Json = False,
) -> int:
    """Sample somebody's votes again, with the recorded seed and with a fresh one.

    The same votes must come out, and every certified label must hold in the fresh copies. A new process explains these,
    one by one and in shuffled order. What is found may refute a certificate; nothing proves it right.

    Exit code 3: a certified label has a share below τ, or votes do not come out again on the same kind of machine.
    """
    criterion = Criterion(tau, alpha, correction)  # type: ignore[arg-type]
    from .verify import ModelOptions, run

    return run(votes, image or (), ModelOptions(model or "", weights, device), criterion, samples, seed, as_json)


# ── Before and after ──────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def plan(
    n: Annotated[int | None, Option("-n", "--samples", help="Noisy samples; default: the fewest.")] = None,
    tau: Annotated[float | None, Option(help="Probability to exceed; default: the largest that n allows.")] = None,
    radius: Annotated[float | None, Option(help="Radius to certify, instead of τ.")] = None,
    sigma: Sigma = SIGMA,
    alpha: Alpha = ALPHA,
    size: Annotated[str, Option(help="Image size in pixels, such as 224 or 640x480.")] = "224",
    as_json: Json = False,
) -> None:
    """Show what n samples can certify before drawing any: votes needed, radius, limits."""
    from .plan import find_limits, parse_size, show

    show(find_limits(n, tau, radius, sigma, alpha, parse_size(size)), as_json)


@app.command()
def models(as_json: Json = False) -> None:
    """List the models that `certify --model` knows by name."""
    from .certify import list_models

    list_models(as_json)


@app.command()
def methods(as_json: Json = False) -> None:
    """List the attribution methods, their layers and parameters."""
    from .certify import list_methods

    list_methods(as_json)


@app.command()
def report(
    sources: Annotated[list[Path], Argument(help="Votes files, or one study: its file or its folder.")],
    out: Annotated[Path, Option("-o", "--out", help="The page to write.")] = Path("report.html"),
    tau: Annotated[float | None, Option(help=f"τ to begin with; default: {TAU}, or the study's.")] = None,
    alpha: Annotated[float | None, Option(help=f"Chance of any false claim; default: {ALPHA}.")] = None,
    level: Levels = None,
    correction: Correction = None,
    limit: Annotated[float, Option(help="MB of votes that may be inside the page; more go beside it.")] = 32,
) -> None:
    """Write an interactive page about saved votes or a study. It loads nothing from the internet.

    A page that would be too large loads its votes on demand from a folder beside it, such as report_files/ for
    report.html: keep the two together.
    """
    from .report import write

    write(sources, out, limit, tau=tau, alpha=alpha, levels=level, correction=correction)


@app.command()
def serve(
    page: Annotated[Path, Argument(help="A page that `report` wrote.")] = Path("report.html"),
    port: Annotated[int, Option(help="Port on this machine; 0 takes any that is free.")] = 8765,
) -> None:
    """Serve a page to browsers on this machine only, until Ctrl-C."""
    from .report import serve

    serve(page, port)


FIGURE_HELP = "Draw the paper's figures from a study's results.\n\nNames:\n\n" + "\n\n".join(
    f"{name}: {figure.about}" for name, figure in FIGURES.items()
)


@app.command(help=FIGURE_HELP, short_help="Draw the paper's figures from a study.")
def figure(
    name: Annotated[str | None, Argument(help="One of the names above, or all; none: list them.")] = None,
    file: Annotated[Path | None, Argument(metavar="STUDY", help="The study file, in TOML.")] = None,
    out: Annotated[Path | None, Option("-o", "--out", help="Default: figures/ in the study's folder.")] = None,
    folder: Annotated[Path | None, Option(help="The study's own folder, if not beside its file.")] = None,
    kinds: Annotated[list[str] | None, Option("--format", help="pdf or png; default: both.")] = None,
    model: Annotated[str | None, Option(help="Default: all, or the first for maps.")] = None,
    layer: Annotated[str | None, Option(help="Default: all, or each method's own for maps.")] = None,
    method: Annotated[list[str] | None, Option(help="May be repeated; default: all, or the paper's.")] = None,
    image: Annotated[str | None, Option(help="A photograph's file name; default: the first.")] = None,
    sigma: StudySigma = None,
    n: StudySamples = None,
    preset: StudyPreset = None,
    tau: StudyTau = None,
    level: StudyLevel = None,
) -> None:
    from .report import draw_figures

    point = {"sigma": sigma, "n": n, "preset": preset, "tau": tau, "level": level}
    view = {"model": model, "layer": layer, "methods": tuple(method or ()), "image": image, **point}
    draw_figures(name, file, folder, view, out, kinds or [])


# ── Studies ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@study.command("init")
def study_init(
    file: StudyFile = Path("study.toml"),
    preset: Annotated[str, Option(help="demo: minutes on a laptop; paper: the paper's whole setting.")] = "demo",
) -> None:
    """Write a study file with comments, to start from."""
    from .study import write_template

    write_template(file, preset)


@study.command("plan")
def study_plan(
    file: StudyFile,
    out: Folder = None,
    calibrate: Annotated[bool, Option(help="Time each method for a moment on this machine.")] = True,
    device: Device = None,
) -> None:
    """Show jobs, network runs, estimated time and disk, and what is already done."""
    from .study import Study, plan

    plan(Study.open(file, out), calibrate, device)


@study.command("run")
def study_run(
    file: StudyFile,
    out: Folder = None,
    device: Device = None,
    ray: Annotated[str | None, Option(help="auto, or the address of a Ray cluster.")] = None,
    cpus: Annotated[float | None, Option(help="CPU cores per worker, with --ray; default: 1.")] = None,
    gpus: Annotated[float | None, Option(help="GPUs per worker, with --ray; default: 1 if there are any.")] = None,
    workers: Annotated[int | None, Option(help="Workers, with --ray; default: as many as fit.")] = None,
    retries: Annotated[int, Option(min=0, help="How often a failed job is tried again.")] = 1,
    verify: Annotated[bool, Option(help="Read all finished files first and redo damaged ones.")] = True,
    undefined: Undefined = None,
) -> int:
    """Do every job that is not done, then write the tables and show a summary.

    Stop it whenever you like, and run it again to go on. Several processes may run the same study at once.
    """
    from .study import Study, find_cluster, run

    opened, cluster = Study.open(file, out), find_cluster(ray, device, cpus=cpus, gpus=gpus, workers=workers)
    return run(opened, cluster, device, retries, verify, undefined)


@study.command("results")
def study_results(
    file: StudyFile,
    out: Folder = None,
    sigma: StudySigma = None,
    n: StudySamples = None,
    preset: StudyPreset = None,
    tau: StudyTau = None,
    level: StudyLevel = None,
    undefined: Undefined = None,
) -> None:
    """Write tidy tables (CSV and Parquet) of what is finished, and show a summary."""
    from .study import Study, results

    results(Study.open(file, out), undefined, sigma=sigma, n=n, preset=preset, tau=tau, level=level)
