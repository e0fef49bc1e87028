"""Terminal: the two consoles, everything that commands print to them, and how a command ends.

Results go to `out`, as tables or JSON. Progress, notes and errors go to `err`.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column, Table
from typer.core import TyperGroup

from ..basics.messages import PixelcertError, Progress, Track

DONE, REFUSED, BROKEN = 0, 1, 3
INTERRUPTED = 130  # the shell's own code for a program that Ctrl-C ended

# Our letters and signs, and what stands for each where a terminal cannot show it.
_SIGNS = "σ     τ   α     δ     Φ   ℓ × · …   ≤  ≥  ±   →  – — − ⁻  ¹ ²  √    ✓"
_WORDS = "sigma tau alpha delta Phi l x * ... <= >= +/- -> - - - ^- 1 ^2 sqrt done"
IN_ASCII = {**dict(zip(_SIGNS.split(), _WORDS.split(), strict=True)), "↓": "(less is better)"}

out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


# ── How a command ends ────────────────────────────────────────────────────────────────────────────────────────────────


class Commands(TyperGroup):
    """A group of commands that may return exit codes. Ctrl-C always ends with a message and an exit code."""

    def invoke(self, ctx: Any) -> None:
        try:
            code = super().invoke(ctx)
        except KeyboardInterrupt:
            say("interrupted.")
            code = INTERRUPTED
        raise typer.Exit(code or DONE)


def run(app: Callable[[], object]) -> None:
    """Run the command line: every refusal becomes one message and an exit code, every warning a note."""
    _print_in_any_encoding()
    warnings.showwarning = lambda message, *_, **__: note(str(message))
    try:
        app()
    except (PixelcertError, OSError) as error:
        err.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(REFUSED)


@contextmanager
def loading(text: str) -> Iterator[None]:
    """Show `text` while votes, models and images load. Errors name options as they are typed."""
    with status(text):
        try:
            yield
        except PixelcertError as error:
            in_options = re.sub(r"\b(method|target|weights)(=|:? (?=['\"]))", r"--\1 ", str(error))
            raise type(error)(in_options) from error


def _print_in_any_encoding() -> None:
    """Print in ASCII the letters that the terminal's encoding lacks: our own signs as words, all others as escapes."""

    def in_ascii(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError), "nothing is decoded here"
        letters = error.object[error.start : error.end]
        shown = (IN_ASCII.get(letter) or letter.encode("ascii", "backslashreplace").decode() for letter in letters)
        return "".join(shown), error.end

    codecs.register_error("pixelcert", in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="pixelcert")


# ── Words and tables ──────────────────────────────────────────────────────────────────────────────────────────────────


def say(text: str) -> None:
    """Print a line that is no result."""
    err.print(escape(text), soft_wrap=True)


def note(*texts: str) -> None:
    """Print notes, a line each."""
    for text in texts:
        err.print(f"[yellow]note:[/] {escape(text)}", soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a result as JSON."""
    out.print_json(json.dumps(value), highlight=False, ensure_ascii=out.options.ascii_only)


def print_path(path: object) -> None:
    """Print a file's path on a line of its own, unbroken, to be copied."""
    out.print(f"  {escape(str(path))}", soft_wrap=True)


def table(title: str, *headings: str, words: int = 0) -> Table:
    """Make a titled table: numbers stand to the right, and the column number `words` to the left."""
    columns = (Column(heading, justify="left" if place == words else "right") for place, heading in enumerate(headings))
    return Table(*columns, title=escape(title), title_justify="left", title_style="bold")


# ── Progress ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def status(text: str) -> Any:
    """Show `text` beside a spinner, inside the block."""
    return err.status(text, spinner="line" if err.options.ascii_only else "dots")


@contextmanager
def progress(unit: str = "samples") -> Iterator[Track]:
    """Show bars with the time left. ``track(name)`` makes a callback; its bar appears when it is first called."""
    counted = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Bars(*counted, TextColumn(f"{unit}, left"), TimeRemainingColumn(), console=err) as bars:

        def track(name: str) -> Progress:
            task = bars.add_task(name, total=None, visible=False)  # until its first callback
            return lambda done, total: bars.update(task, completed=done, total=total, visible=True)

        yield track
