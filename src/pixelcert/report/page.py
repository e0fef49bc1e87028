"""One page: a template, its style and its script, and the data, put together. No network, opens from disk."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from .. import __version__, statistics
from ..errors import ArgumentError
from ..files import write_atomically
from ..plan import ALPHA, TAU, check_levels
from ..progress import Progress
from ..statistics import Correction
from ..study.study import Study
from ..votes import Votes
from .chunks import LIMIT, Chunks
from .data import Index
from .of_study import describe_study, shown_of
from .shown import Shown

MARK = '<meta name="generator" content="pixelcert'  # by which `serve` knows its own pages
PARTS = ("certificate", "state", "words", "drawing", "study", "controls")  # of the script; each uses those before it


class Written(NamedTuple):
    """A page on disk, and the folder with what it loads on demand, if it is too large for one file."""

    page: Path
    folder: Path | None
    entries: int
    page_bytes: int
    folder_bytes: int


def write_page(
    path: str | Path,
    votes: Iterable[Votes],
    *,
    tau: float = TAU,
    alpha: float = ALPHA,
    levels: float | Sequence[float] | None = None,
    correction: Correction | None = None,
    limit: int = LIMIT,
) -> Written:
    """Write the interactive page of `votes` to `path`; refuses a τ that some of them cannot reach.

    Counts of more than `limit` characters go to a folder beside it, ``report_files/`` for ``report.html``.
    """
    path, chosen = Path(path), None if levels is None else check_levels(levels)
    with Chunks(folder_of(path), limit) as chunks:
        index = Index(chunks, (tau,), alpha, correction)
        for one in votes:
            test = correction or statistics.default_correction(one.plan)
            statistics.check_feasible(one.plan, tau, alpha, one.pixels, test)
            index.add(Shown.of(one), chosen)
        return _write(path, chunks, index, {"tau": tau, "study": None}, "Certified explanations")


def write_study_page(
    path: str | Path,
    study: Study,
    *,
    tau: float | None = None,
    limit: int = LIMIT,
    progress: Progress | None = None,
) -> Written:
    """Write the interactive page of what a study has finished: its votes, summary and figures."""
    path, settings = Path(path), study.settings
    tau = study.setting()["tau"] if tau is None else tau
    statistics.check_tau(tau)
    with Chunks(folder_of(path), limit) as chunks:
        index = Index(chunks, (*settings.tau, tau), settings.alpha, settings.correction)
        total = len(study.jobs())
        for done, shown in enumerate(shown_of(study), 1):
            if shown is not None:
                index.add(shown)
            if progress is not None:
                progress(done, total)
        about = {"tau": tau, "study": describe_study(study, chunks)}
        return _write(path, chunks, index, about, f"Certified explanations: {study.folder.name}")


def folder_of(page: Path) -> Path:
    """Where a page's chunks are, if they are not inside."""
    return page.with_name(f"{page.stem}_files")


def _write(path: Path, chunks: Chunks, index: Index, about: dict[str, Any], title: str) -> Written:
    content = {**index.content(), **about, "folder": chunks.folder.name if chunks.apart else None}
    page = compose(title, content, chunks.inside).encode()
    write_atomically(path, page)
    chunks.remove_others()
    return Written(
        path,
        chunks.folder if chunks.apart else None,
        len(content["entries"]),
        len(page),
        chunks.size if chunks.apart else 0,
    )


def compose(title: str, content: dict[str, Any], chunks: dict[str, str]) -> str:
    """HTML of a page. All that comes from votes stands in inert elements, which the script reads as text."""
    if not content["entries"]:
        raise ArgumentError(
            "there are no votes to show: give votes files that `certify` left, or a study that has run."
        )
    style, script = _resource("page.css"), join_script(PARTS)
    blocks = "\n".join(f'<script type="text/plain" id="{name}">{text}</script>' for name, text in chunks.items())
    parts = {
        "policy": escape(_policy(style, script, content["folder"] is not None)),
        "generator": f'{MARK} {__version__}">',
        "title": escape(title),
        "style": style,
        "script": script,
        "index": _inert(content),
        "chunks": blocks,
    }
    before, *pieces = _resource("page.html").split("{{")  # one pass: nothing that is put in is looked at again
    return before + "".join(parts[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces))


def join_script(parts: Iterable[str]) -> str:
    """One script of its parts, in one scope. Modules would be tidier, but a page on disk may not import any."""
    return "\n".join(['"use strict";', *(_resource(f"script/{part}.js") for part in parts)])


def _policy(style: str, script: str, folder: bool) -> str:
    """What the browser lets the page do: run this very script, and with a folder, what that script loads from there."""
    more = " 'strict-dynamic'" if folder else ""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'{more}; style-src '{_hash(style)}'; img-src blob: data:; "
        f"base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _inert(content: dict[str, Any]) -> str:
    """JSON that no HTML parser sees a tag in. Doubles are written so that they come back exactly."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
