"""`pixelcert study`: parse, call the library, print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import terminal
from ..errors import ArgumentError

if TYPE_CHECKING:
    from .cluster import Cluster
    from .study import Study

REFUSED, INTERRUPTED = 1, 130

app = typer.Typer(no_args_is_help=True, help="Many methods on many images: plan, run, resume, sum up.")

StudyFile = Annotated[Path, typer.Argument(help="The study file, in TOML.")]
Folder = Annotated[Path | None, typer.Option("-o", "--out", help="Folder for votes and tables; default: beside.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, …; default: a GPU if there is one.")]


@app.command()
def init(
    file: StudyFile = Path("study.toml"),
    preset: Annotated[str, typer.Option(help="demo: minutes on a laptop; paper: the paper's whole setting.")] = "demo",
) -> None:
    """Write a study file with comments, to start from."""
    from ..files import write_atomically
    from .templates import template

    if file.exists():
        raise ArgumentError(f"{file} exists already: name another file, or remove it.")
    write_atomically(file, template(preset))
    terminal.say(f"{file}: look through it, then `pixelcert study plan {file}` and `pixelcert study run {file}`")


@app.command()
def plan(
    file: StudyFile,
    out: Folder = None,
    calibrate: Annotated[bool, typer.Option(help="Time each method for a moment on this machine.")] = True,
    device: Device = None,
) -> None:
    """Show jobs, network runs, estimated time and disk, and what is already done."""
    from . import display
    from .job import jobs
    from .study import Study

    study = Study.open(file, out)
    with terminal.progress("done") as track:
        resolved = study.resolve(device, track)
        estimates = study.estimate(resolved, device=device, calibrate=calibrate, progress=track("calibration"))
    all_jobs = list(jobs(resolved))
    left = sum(one.jobs for one in estimates.values())
    display.show_plan(all_jobs, len(all_jobs) - left, estimates, study.unreachable(resolved))


@app.command()
def run(
    file: StudyFile,
    out: Folder = None,
    device: Device = None,
    ray: Annotated[str | None, typer.Option(help="auto, or the address of a Ray cluster.")] = None,
    cpus: Annotated[float | None, typer.Option(help="CPU cores per worker, with --ray; default: 1.")] = None,
    gpus: Annotated[
        float | None, typer.Option(help="GPUs per worker, with --ray; default: 1 if there are any.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Workers, with --ray; default: as many as fit.")] = None,
    retries: Annotated[int, typer.Option(min=0, help="How often a failed job is tried again.")] = 1,
    verify: Annotated[bool, typer.Option(help="Read all finished files first and redo damaged ones.")] = True,
    undefined: Annotated[float | None, typer.Option(help="Stands for an undefined GridPG; the paper's is 0.")] = None,
) -> None:
    """Do every job that is not done, then write the tables and show a summary.

    Stop it whenever you like, and run it again to go on. Several processes may run the same study at once.
    """
    from . import display
    from .study import Study

    study = Study.open(file, out)
    cluster = _cluster(ray, device, cpus=cpus, gpus=gpus, workers=workers)
    with terminal.progress("done") as track:
        resolved = study.resolve(device, track)
        verified = study.verify(resolved, track("finished files")) if verify else []
    if verified:
        terminal.say(f"{len(verified)} files were damaged and will be made again: {verified[0]} …")
    for note in study.unreachable(resolved):
        terminal.say(f"note: {note}")
    try:
        with display.live() as watch:
            tally = study.run(resolved, device=device, cluster=cluster, retries=retries, verify=False, watch=watch)
    except KeyboardInterrupt:
        terminal.say("stopped; everything finished is saved, and the same command goes on.")
        raise typer.Exit(INTERRUPTED) from None
    display.show_outcome(tally, str(study.folder))
    _show_results(study, undefined)
    if tally.failures:
        raise typer.Exit(REFUSED)


@app.command()
def results(
    file: StudyFile,
    out: Folder = None,
    sigma: Annotated[float | None, typer.Option(help="Noise to summarise; default: the study's first.")] = None,
    n: Annotated[int | None, typer.Option("-n", "--samples", help="Samples; default: the study's first.")] = None,
    preset: Annotated[str | None, typer.Option(help="Preset; default: the study's first.")] = None,
    tau: Annotated[float | None, typer.Option(help="Default: that of the deletion test.")] = None,
    level: Annotated[float | None, typer.Option("-K", "--level", help="Default: the study's middle level.")] = None,
    undefined: Annotated[float | None, typer.Option(help="Stands for an undefined GridPG; the paper's is 0.")] = None,
) -> None:
    """Write tidy tables (CSV and Parquet) of what is finished, and show a summary."""
    from . import display
    from .study import Study

    study = Study.open(file, out)
    jobs = study.jobs()
    terminal.say(f"{sum(map(study.store.measured, jobs))} of {len(jobs)} jobs are done.")
    display.show_notes(((str(job), cause) for job, cause in study.store.failures(jobs)), "failed")
    _show_results(study, undefined, sigma=sigma, n=n, preset=preset, tau=tau, level=level)


def _cluster(ray: str | None, device: str | None, **asked: float | None) -> Cluster | None:
    """Where to run; options that would mean nothing there are refused."""
    from .cluster import Cluster

    given = {name: value for name, value in asked.items() if value is not None}
    if ray is None and given:
        raise ArgumentError(
            f"--{next(iter(given))} is about the workers of a cluster: give --ray too, or leave it out."
        )
    if ray is not None and device is not None:
        raise ArgumentError(f"--device {device} is for one process: with --ray, give each worker its GPUs by --gpus.")
    return None if ray is None else Cluster(ray, **given)  # type: ignore[arg-type]


def _show_results(study: Study, undefined: float | None, **asked: Any) -> None:
    from . import display
    from .summary import summarise

    means = study.results(undefined)
    setting = study.setting(**asked)
    terminal.say(f"{study.folder / 'results'}: rows and means, as CSV and Parquet")
    display.show_summary(summarise(means, **setting), setting)
