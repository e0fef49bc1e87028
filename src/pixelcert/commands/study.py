"""`pixelcert study`: the work of each command, and the tables it prints."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from ..basics.files import write_atomically
from ..basics.messages import ArgumentError
from ..study.cluster import Cluster
from ..study.job import Job, JobKind, jobs
from ..study.runner import Estimate, Tally
from ..study.study import Study
from ..study.tables import COLUMNS, Line, mean_in_words, summarise
from ..study.templates import template
from . import DONE, INTERRUPTED, REFUSED, terminal

_QUIET = 15.0  # seconds between lines where there is no terminal to draw in


def write_template(file: Path, preset: str) -> None:
    """Write a study file to start from."""
    if file.exists():
        raise ArgumentError(f"{file} exists already: name another file, or remove it.")
    write_atomically(file, template(preset))
    terminal.say(f"{file}: look through it, then `pixelcert study plan {file}` and `pixelcert study run {file}`")


def plan(file: Path, out: Path | None, calibrate: bool, device: str | None) -> None:
    """Show what a study will cost, and what is done."""
    study = Study.open(file, out)
    with terminal.progress("done") as track:
        inventory = study.resolve(device, track)
        estimates = study.estimate(inventory, device=device, calibrate=calibrate, progress=track("calibration"))
    all_jobs = list(jobs(inventory))
    left = sum(one.jobs for one in estimates.values())
    show_plan(all_jobs, len(all_jobs) - left, estimates, study.unreachable(inventory))


def run(
    file: Path,
    out: Path | None,
    device: str | None,
    ray: str | None,
    workers: Mapping[str, float | None],
    retries: int,
    verify: bool,
    undefined: float | None,
) -> int:
    """Do what is not done, write the tables, and show a summary."""
    study = Study.open(file, out)
    cluster = _cluster(ray, device, workers)
    with terminal.progress("done") as track:
        inventory = study.resolve(device, track)
        verified = study.verify(inventory, track("finished files")) if verify else []
    if verified:
        terminal.say(f"{len(verified)} files were damaged and will be made again: {verified[0]} …")
    for note in study.unreachable(inventory):
        terminal.say(f"note: {note}")
    try:
        with live() as watch:
            tally = study.run(inventory, device=device, cluster=cluster, retries=retries, verify=False, watch=watch)
    except KeyboardInterrupt:
        terminal.say("stopped; everything finished is saved, and the same command goes on.")
        return INTERRUPTED
    show_outcome(tally, str(study.folder))
    _show_results(study, undefined, {})
    return REFUSED if tally.failures else DONE


def results(file: Path, out: Path | None, undefined: float | None, point: Mapping[str, Any]) -> None:
    """Write the tables of what is finished, and show a summary."""
    study = Study.open(file, out)
    all_jobs = study.jobs()
    terminal.say(f"{sum(map(study.store.measured, all_jobs))} of {len(all_jobs)} jobs are done.")
    show_notes(((str(job), cause) for job, cause in study.store.failures(all_jobs)), "failed")
    _show_results(study, undefined, point)


def _cluster(ray: str | None, device: str | None, workers: Mapping[str, float | None]) -> Cluster | None:
    """Return where to run; refuse options that would mean nothing there."""
    given: Any = {name: value for name, value in workers.items() if value is not None}
    if ray is None and given:
        raise ArgumentError(
            f"--{next(iter(given))} is about the workers of a cluster: give --ray too, or leave it out."
        )
    if ray is not None and device is not None:
        raise ArgumentError(f"--device {device} is for one process: with --ray, give each worker its GPUs by --gpus.")
    return None if ray is None else Cluster(ray, **given)


def _show_results(study: Study, undefined: float | None, asked: Mapping[str, Any]) -> None:
    means = study.results(undefined)
    point = study.point(**asked)
    terminal.say(f"{study.folder / 'results'}: rows and means, as CSV and Parquet")
    show_summary(summarise(means, **point), point)


def in_words(seconds: float | None) -> str:
    """A duration for a person.

    >>> in_words(90), in_words(7300), in_words(400_000), in_words(None)
    ('1 min 30 s', '2 h 1 min', '4.6 days', 'unknown')
    """
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    if seconds < 86400:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{seconds / 86400:.1f} days"


# ── Plan ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def show_plan(jobs: Sequence[Job], done: int, estimates: Mapping[JobKind, Estimate], notes: Iterable[str]) -> None:
    """Jobs, network runs, disk and time, by model, method and layer, and what is already done."""
    terminal.out.print(f"[bold]{len(jobs)} jobs, {done} done[/]")
    for model in dict.fromkeys(cell.model for cell in estimates):
        table = Table(title=escape(model), title_justify="left", title_style="bold")
        table.add_column("method, layer")
        for heading in ("jobs left", "network runs", "per image", "per grid", "in all"):
            table.add_column(heading, justify="right")
        for method, layer in dict.fromkeys((cell.method, cell.layer) for cell in estimates if cell.model == model):
            where = (model, method, layer)
            here = {cell: one for cell, one in estimates.items() if (cell.model, cell.method, cell.layer) == where}
            table.add_row(escape(f"{method}, {layer}"), *_costs(here))
        terminal.out.print(table)
    possible = [one for one in estimates.values() if not one.refused]
    seconds = [one.seconds * one.sampled for one in possible if one.seconds is not None]
    if seconds:
        terminal.out.print(f"About {in_words(sum(seconds))} on this machine, by a calibration of moments.")
    if possible:
        terminal.out.print(f"Votes to come take about {in_bytes(sum(one.bytes for one in possible))}.")
    refused = {f"{method} at {layer} of {model}": e.refused for (model, method, layer, *_), e in estimates.items()}
    show_notes(((what, why) for what, why in refused.items() if why), "cannot be done")
    for note in notes:
        terminal.err.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)


def _costs(cells: Mapping[JobKind, Estimate]) -> list[str]:
    if any(one.refused for one in cells.values()):
        return [str(sum(one.jobs for one in cells.values())), "", "", "", "cannot be done"]
    each: dict[str, list[str]] = {"image": [], "grid": []}
    for cell, one in cells.items():
        each[cell.scene].append(in_words(one.seconds))
    known = [one.seconds * one.sampled for one in cells.values() if one.seconds is not None]
    return [
        str(sum(one.jobs for one in cells.values())),
        f"{sum(one.forwards for one in cells.values()):_}".replace("_", " "),
        *(", ".join(times) for times in each.values()),
        in_words(sum(known)) if known else "unknown",
    ]


def in_bytes(count: float) -> str:
    """A size for a person.

    >>> in_bytes(1_500_000), in_bytes(117e9)
    ('1.5 MB', '117 GB')
    """
    size, unit = (count / 1e9, "GB") if count >= 1e9 else (count / 1e6, "MB")
    return f"{size:.3g} {unit}"


def show_notes(notes: Iterable[tuple[str, str]], title: str = "note") -> None:
    """What was said of several things, each saying once."""
    by_cause: dict[str, list[str]] = {}
    for what, cause in notes:
        by_cause.setdefault(cause, []).append(what)
    for cause, found in by_cause.items():
        some = "; ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
        terminal.err.print(f"[yellow]{title}:[/] {escape(some)}\n    {escape(cause)}", soft_wrap=True)


# ── Run ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def live() -> Iterator[Callable[[Tally], None]]:
    """A table that follows the run; lines now and then where there is no terminal."""
    if not terminal.err.is_terminal:
        yield _lines()
        return
    with Live(console=terminal.err, refresh_per_second=4, transient=True, vertical_overflow="ellipsis") as view:
        yield lambda tally: view.update(_progress(tally))


def _lines() -> Callable[[Tally], None]:
    last = [time.monotonic()]

    def watch(tally: Tally) -> None:
        if time.monotonic() - last[0] >= _QUIET:
            last[0] = time.monotonic()
            terminal.err.print(escape(_pace(tally)), soft_wrap=True)

    return watch


def _pace(tally: Tally) -> str:
    facts = [f"{tally.done} of {tally.total} jobs", f"{60 * tally.rate:.1f} a minute", f"{in_words(tally.left)} left"]
    if tally.failures:
        facts.append(f"{len(tally.failures)} failed")
    if tally.memory is not None:
        facts.append(f"GPU peak {tally.memory:.1f} GiB")
    return ", ".join(facts)


def _progress(tally: Tally) -> RenderableType:
    layers = list(dict.fromkeys(cell.layer for cell in tally.totals))
    table = Table("model", "method", *layers, "failed", box=None, header_style="dim")
    failed = Counter((job.model.label, job.method) for job, _ in tally.failures.values())
    for model, method in dict.fromkeys((cell.model, cell.method) for cell in tally.totals):
        cells = [_layer_cell(tally, model, method, layer) for layer in layers]
        count = failed[model, method]
        table.add_row(escape(model), escape(method), *cells, f"[red]{count}[/]" if count else "")
    pace = Table.grid(padding=(0, 1))
    pace.add_row(ProgressBar(total=tally.total, completed=tally.done, width=40), escape(_pace(tally)))
    return Group(pace, f"[dim]{escape(tally.doing)}[/]", table)


def _layer_cell(tally: Tally, model: str, method: str, layer: str) -> str:
    here = [cell for cell in tally.totals if (cell.model, cell.method, cell.layer) == (model, method, layer)]
    total, left = (sum(count[cell] for cell in here) for count in (tally.totals, tally.waiting))
    return f"[green]{total} ✓[/]" if not left else f"{total - left} of {total}"


def show_outcome(tally: Tally, folder: str) -> None:
    """How the run ended, and what failed with which cause."""
    took = timedelta(seconds=round(time.monotonic() - tally.started))
    terminal.err.print(f"{tally.done} of {tally.total} jobs are done, {tally.finished} by this run in {took}.")
    show_notes(tally.notes)
    show_notes(((str(job), cause) for job, cause in tally.failures.values()), "failed")
    if tally.failures:
        terminal.err.print(f"Causes are in {escape(folder)}/failures; running the study again tries them again.")


# ── Results ───────────────────────────────────────────────────────────────────────────────────────────────────────


def show_summary(lines: Sequence[Line], setting: Mapping[str, Any]) -> None:
    """One table per model and layer: each method's means, 95 % half-widths and ranks, the best mean rank first."""
    for model, layer in dict.fromkeys((line.model, line.layer) for line in lines):
        table = Table(title=escape(f"{model}, {layer} layer"), title_justify="left", title_style="bold")
        table.add_column("method")
        for measure in COLUMNS:
            table.add_column(f"{measure.title}{' ↓' if measure.best < 0 else ''}", justify="right")
        table.add_column("mean rank", justify="right")
        for line in (line for line in lines if (line.model, line.layer) == (model, layer)):
            cells = [_mean_and_rank(line, measure.metric) for measure in COLUMNS]
            rank = "" if line.mean_rank is None else f"{line.mean_rank:.1f}"
            table.add_row(escape(line.method), *cells, rank)
        terminal.out.print(table)
    names = {"sigma": "σ", "tau": "τ", "level": "K"}
    facts = ", ".join(f"{names.get(name, name)} = {value}" for name, value in setting.items())
    terminal.out.print(
        f"{escape(facts)}. Means over images or grids ± 95 % half-width, # the rank among the methods. certified %: "
        f"pixels that do not abstain. certified GridPG: certified ones that lie in the right cell of a grid, of all "
        f"certified ones. deletion area: mean confidence while certified pixels are deleted, less is more faithful."
    )


def _mean_and_rank(line: Line, metric: str) -> str:
    row = line.means.get(metric)
    if row is None or row["count"] == 0:
        return "[dim]not measured[/]"
    if row["mean"] is None:
        return "[dim]undefined[/]"
    return f"{mean_in_words(row, metric)} [dim]#{line.ranks[metric]}[/]"
