"""What the command line prints: progress, tables in plain words, JSON, notes and errors."""

from __future__ import annotations

import codecs
import io
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from ..report import Written


# What stands for our letters and signs where a terminal cannot show them.
IN_ASCII = {
    "σ": "sigma",
    "τ": "tau",
    "α": "alpha",
    "δ": "delta",
    "Φ": "Phi",
    "ℓ": "l",
    "×": "x",
    "·": "*",
    "…": "...",
    "≤": "<=",
    "≥": ">=",
    "±": "+/-",
    "→": "->",
    "–": "-",
    "—": "-",
    "−": "-",
    "⁻": "^-",
    "¹": "1",
    "²": "^2",
    "√": "sqrt",
    "✓": "done",
    "↓": "(less is better)",
}

out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


def say(text: str) -> None:
    err.print(escape(text), soft_wrap=True)


def say_error(text: str) -> None:
    err.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)


def say_written(page: Written) -> None:
    """Which files a report is, and how large."""
    say(f"{page.page}: {page.entries} maps, {page.page_bytes / 1e6:.1f} MB")
    if page.folder is not None:
        say(f"{page.folder}: {page.folder_bytes / 1e6:.1f} MB that the page loads on demand; keep it beside the page.")


def print_in_any_encoding() -> None:
    """Have what a terminal's encoding lacks written in ASCII: our own signs in words, all else as an escape."""

    def in_ascii(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError), "nothing is decoded here"
        letters = error.object[error.start : error.end]
        shown = (IN_ASCII.get(letter) or letter.encode("ascii", "backslashreplace").decode() for letter in letters)
        return "".join(shown), error.end

    codecs.register_error("pixelcert", in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="pixelcert")


def print_warnings_as_notes() -> None:
    def note(message: Warning | str, *_: Any, **__: Any) -> None:
        err.print(f"[yellow]note:[/] {escape(str(message))}", soft_wrap=True)

    warnings.showwarning = note


def status(text: str) -> AbstractContextManager[object]:
    return err.status(text, spinner="line" if err.options.ascii_only else "dots")


@contextmanager
def progress(unit: str = "samples") -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Bars with the time left: ``track(name)`` makes a callback for the library, and its bar when first called."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit}, left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as bars:

        def track(name: str) -> Callable[[int, int], None]:
            tasks: list[TaskID] = []

            def update(done: int, total: int) -> None:
                tasks[:] = tasks or [bars.add_task(name, total=None)]
                bars.update(tasks[0], completed=done, total=total)

            return update

        yield track


def print_json(value: Any) -> None:
    out.print_json(json.dumps(value), highlight=False, ensure_ascii=out.options.ascii_only)
