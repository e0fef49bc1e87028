"""`pixelcert study`: the work of each command, and the tables it prints."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from ..basics.files import write_atomically
from ..basics.messages import ArgumentError
from ..study.cluster import Cluster
from ..study.inventory import Inventory
from ..study.job import JobKind, jobs
from ..study.runner import Estimate, Tally
from ..study.study import Study as Study
from ..study.tables import COLUMNS, Line, point_in_words, summarise
from ..study.templates import template
from ..votes import title_of
from . import terminal

_QUIET = 15.0  # seconds between lines where there is no terminal to draw in


def write_template(file: Path, preset: str) -> None:
    """Write a study file to start from."""
    if file.exists():
        raise ArgumentError(f"{file} exists already: name another file, or remove it.")
    write_atomically(file, template(preset))
    terminal.say(f"{file}: look through it, then `pixelcert study plan {file}` and `pixelcert study run {file}`")


def plan(study: Study, calibrate: bool, device: str | None) -> None:
    """Show what a study will cost, and what is done."""
    with terminal.progress("done") as track:
        inventory = study.resolve(device, track)
        estimates = study.estimate(inventory, device=device, calibrate=calibrate, progress=track("calibration"))
    all_jobs = list(jobs(inventory))
    left = sum(one.jobs for one in estimates.values())
    terminal.out.print(f"[bold]{len(all_jobs)} jobs, {len(all_jobs) - left} done[/]")
    show_estimates(estimates)
    terminal.note(*study.unreachable(inventory))


def run(
    study: Study, cluster: Cluster | None, device: str | None, retries: int, verify: bool, undefined: float | None
) -> int:
    """Do what is not done, write the tables, and show a summary."""
    with terminal.progress("done") as track:
        inventory = study.resolve(device, track)
        damaged = study.verify(inventory, track("finished files")) if verify else []
    if damaged:
        terminal.say(f"{len(damaged)} files were damaged and will be made again: {damaged[0]} …")
    terminal.note(*study.unreachable(inventory))
    try:
        with live() as watch:
            tally = study.run(inventory, device=device, cluster=cluster, retries=retries, verify=False, watch=watch)
    except KeyboardInterrupt:
        terminal.say("stopped; finished jobs are saved: run the same command to continue.")
        return terminal.INTERRUPTED
    show_outcome(tally, study.folder)
    _show_results(study, undefined, inventory)
    return terminal.REFUSED if tally.failures else terminal.DONE


def results(study: Study, undefined: float | None, **asked: Any) -> None:
    """Write the tables of what is finished, and show a summary of the point that is asked for."""
    all_jobs = study.jobs()
    terminal.say(f"{sum(map(study.store.measured, all_jobs))} of {len(all_jobs)} jobs are done.")
    show_notes(((str(job), cause) for job, cause in study.store.failures(all_jobs)), "failed")
    _show_results(study, undefined, **asked)


def find_cluster(ray: str | None, device: str | None, **workers: Any) -> Cluster | None:
    """Return the cluster that the options name, if any; refuse options that do not apply."""
    given = {name: value for name, value in workers.items() if value is not None}
    if ray is None and given:
        raise ArgumentError(
            f"--{next(iter(given))} applies only to the workers of a cluster: add --ray, or leave it out."
        )
    if ray is not None and device is not None:
        raise ArgumentError(f"--device {device} is for one process: with --ray, give each worker its GPUs by --gpus.")
    return None if ray is None else Cluster(ray, **given)


def _show_results(study: Study, undefined: float | None, inventory: Inventory | None = None, **asked: Any) -> None:
    means = study.results(undefined, inventory)
    point = study.point(**asked)
    terminal.say(f"{study.folder / 'results'}: rows and means, as CSV and Parquet")
    show_summary(summarise(means, **point), point)


def in_words(seconds: float | None) -> str:
    """Return a duration in words.

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


def show_estimates(estimates: Mapping[JobKind, Estimate]) -> None:
    """Print jobs, network runs and time by model, method and layer, then the sums and the impossible jobs."""
    for model in dict.fromkeys(kind.model for kind in estimates):
        table = terminal.table(model, "method, layer", "jobs left", "network runs", "per image", "per grid", "in all")
        of_model = {kind: one for kind, one in estimates.items() if kind.model == model}
        for where in dict.fromkeys((kind.method, kind.layer) for kind in of_model):
            here = {kind: one for kind, one in of_model.items() if (kind.method, kind.layer) == where}
            table.add_row(escape(", ".join(where)), *_costs(here))
        terminal.out.print(table)
    possible = [one for one in estimates.values() if not one.refused]
    if seconds := _known_seconds(possible):
        terminal.out.print(f"About {in_words(sum(seconds))} on this machine, by a short calibration.")
    if possible:
        terminal.out.print(f"New votes will take about {decimal(sum(one.bytes for one in possible))}.")
    refused = {title_of(kind.method, kind.layer, kind.model): one.refused for kind, one in estimates.items()}
    show_notes(((what, why) for what, why in refused.items() if why), "cannot be done")


def _costs(estimates: Mapping[JobKind, Estimate]) -> list[str]:
    """Return the cells of one method at one layer."""
    left = str(sum(one.jobs for one in estimates.values()))
    if any(one.refused for one in estimates.values()):
        return [left, "", "", "", "cannot be done"]
    runs = f"{sum(one.passes for one in estimates.values()):_}".replace("_", " ")
    image, grid = (
        ", ".join(in_words(one.seconds) for kind, one in estimates.items() if kind.scene == scene)
        for scene in ("image", "grid")
    )
    known = _known_seconds(estimates.values())
    return [left, runs, image, grid, in_words(sum(known) if known else None)]


def _known_seconds(estimates: Iterable[Estimate]) -> list[float]:
    """Return the seconds of all jobs of each estimate, as far as known."""
    return [one.seconds * one.sampled for one in estimates if one.seconds is not None]


def show_notes(notes: Iterable[tuple[str, str]], title: str = "note") -> None:
    """Print notes grouped by cause, so that each cause is printed once."""
    by_cause: dict[str, list[str]] = {}
    for what, cause in notes:
        by_cause.setdefault(cause, []).append(what)
    for cause, found in by_cause.items():
        some = "; ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
        terminal.err.print(f"[yellow]{title}:[/] {escape(some)}\n    {escape(cause)}", soft_wrap=True)


# ── Run ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def live() -> Iterator[Callable[[Tally], None]]:
    """Show a table that follows the run, or a line now and then where there is no terminal."""
    last = time.monotonic()

    def print_pace(tally: Tally) -> None:
        nonlocal last
        if time.monotonic() - last >= _QUIET:
            last = time.monotonic()
            terminal.say(_pace(tally))

    if not terminal.err.is_terminal:
        yield print_pace
        return
    with Live(console=terminal.err, refresh_per_second=4, transient=True, vertical_overflow="ellipsis") as view:
        yield lambda tally: view.update(_progress(tally))


def _pace(tally: Tally) -> str:
    facts = [f"{tally.done} of {tally.total} jobs", f"{60 * tally.rate:.1f} a minute", f"{in_words(tally.left)} left"]
    if tally.failures:
        facts.append(f"{len(tally.failures)} failed")
    if tally.memory is not None:
        facts.append(f"GPU peak {tally.memory:.1f} GiB")
    return ", ".join(facts)


def _progress(tally: Tally) -> RenderableType:
    layers = list(dict.fromkeys(kind.layer for kind in tally.totals))
    table = Table("model", "method", *layers, "failed", box=None, header_style="dim")
    failed = Counter((job.model.name, job.method) for job, _ in tally.failures.values())
    for model, method in dict.fromkeys((kind.model, kind.method) for kind in tally.totals):
        cells = [_layer_cell(tally, model, method, layer) for layer in layers]
        count = failed[model, method]
        table.add_row(escape(model), escape(method), *cells, f"[red]{count}[/]" if count else "")
    pace = Table.grid(padding=(0, 1))
    pace.add_row(ProgressBar(total=tally.total, completed=tally.done, width=40), escape(_pace(tally)))
    return Group(pace, f"[dim]{escape(tally.doing)}[/]", table)


def _layer_cell(tally: Tally, model: str, method: str, layer: str) -> str:
    here = [kind for kind in tally.totals if (kind.model, kind.method, kind.layer) == (model, method, layer)]
    total, left = (sum(count[kind] for kind in here) for count in (tally.totals, tally.waiting))
    return f"[green]{total} ✓[/]" if not left else f"{total - left} of {total}"


def show_outcome(tally: Tally, folder: Path) -> None:
    """Print how the run ended, and the causes of failures."""
    took = in_words(time.monotonic() - tally.started)
    terminal.say(f"{tally.done} of {tally.total} jobs are done, {tally.finished} by this run in {took}.")
    show_notes(tally.notes)
    show_notes(((str(job), cause) for job, cause in tally.failures.values()), "failed")
    if tally.failures:
        terminal.say(f"The causes are in {folder}/failures: run the study again to retry these jobs.")


# ── Results ───────────────────────────────────────────────────────────────────────────────────────────────────────


def show_summary(lines: Sequence[Line], point: Mapping[str, Any]) -> None:
    """Print a table for each model and layer: every method's means and ranks, the best mean rank first."""
    headings = ["method", *(f"{column.title}{' ↓' if column.best < 0 else ''}" for column in COLUMNS), "mean rank"]
    for (model, layer), methods in groupby(lines, lambda line: (line.model, line.layer)):
        table = terminal.table(f"{model}, {layer} layer", *headings)
        for line in methods:
            shown = [line.cell(column.metric) for column in COLUMNS]
            cells = [f"{mean} [dim]{rank}[/]" if rank else f"[dim]{mean}[/]" for mean, rank in shown]
            rank = "" if line.mean_rank is None else f"{line.mean_rank:.1f}"
            table.add_row(escape(line.method), *cells, rank)
        terminal.out.print(table)
    terminal.out.print(
        f"{escape(point_in_words(point))}. Means over images or grids ± 95 % half-width, # the rank among the "
        f"methods. certified %: pixels that do not abstain. certified GridPG: share of the pixels certified 1 that "
        f"lies in the right cell of a grid. deletion area: mean confidence while certified pixels are deleted, "
        f"less is more faithful."
    )
