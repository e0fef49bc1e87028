"""One page: written to disk, and served to browsers on this machine only."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Sequence
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from .. import __version__, statistics
from ..basics.files import write_atomically
from ..basics.messages import ArgumentError, Progress, check_whole
from ..plan import ALPHA, TAU, Correction, Criterion, check_levels
from ..study.study import Study
from ..votes import Votes
from .contents import Index
from .entries import LIMIT, NAME, Chunks, describe_study, votes_of

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
    """Write the interactive page of `votes` to `path`; refuse a τ that some of them cannot reach.

    If the counts have more than `limit` characters, they go to a folder beside it, ``report_files/`` for
    ``report.html``.
    """
    path, chosen = Path(path), None if levels is None else check_levels(levels)
    with Chunks(folder_of(path), limit) as chunks:
        criterion = Criterion(tau, alpha, correction)
        index = Index(chunks, (criterion.tau,), criterion)
        for one in votes:
            statistics.check_feasible(one.plan, criterion, one.pixels)
            index.add(one, chosen)
        return _write(path, chunks, index, {"tau": criterion.tau, "study": None}, "Certified explanations")


def write_study_page(
    path: str | Path, study: Study, *, tau: float | None = None, limit: int = LIMIT, progress: Progress | None = None
) -> Written:
    """Write the interactive page of a study's finished part: its votes, summary and figures."""
    path, settings = Path(path), study.settings
    tau = study.point()["tau"] if tau is None else tau
    criterion = settings.criterion(tau)
    with Chunks(folder_of(path), limit) as chunks:
        index = Index(chunks, (*settings.tau, criterion.tau), criterion)
        total = len(study.jobs())
        for done, votes in enumerate(votes_of(study), 1):
            if votes is not None:
                index.add(votes)
            if progress is not None:
                progress(done, total)
        about = {"tau": criterion.tau, "study": describe_study(study, chunks)}
        return _write(path, chunks, index, about, f"Certified explanations: {study.folder.name}")


def folder_of(page: Path) -> Path:
    """Return the folder of a page's chunks, if they are not inside the page."""
    return page.with_name(f"{page.stem}_files")


def _write(path: Path, chunks: Chunks, index: Index, about: dict[str, Any], title: str) -> Written:
    content = {**index.content(), **about, "folder": chunks.apart and chunks.apart.name}
    page = compose(title, content, chunks.inside).encode()
    write_atomically(path, page)
    return Written(path, chunks.apart, len(content["entries"]), len(page), chunks.size if chunks.apart else 0)


def compose(title: str, content: dict[str, Any], chunks: dict[str, str]) -> str:
    """Return the HTML of a page. Everything from votes is in inert elements, which the script reads as text."""
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
    # In one pass, so that the text put in is not searched again.
    return re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], _resource("page.html"))


def join_script(parts: Iterable[str]) -> str:
    """Join the parts into one script with one scope. Modules would be tidier, but a page on disk may not import any."""
    return "\n".join(['"use strict";', *(_resource(f"script/{part}.js") for part in parts)])


def _policy(style: str, script: str, folder: bool) -> str:
    """Allow the page's own script and, with a folder, the chunks that the script loads from there; forbid the rest."""
    more = " 'strict-dynamic'" if folder else ""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'{more}; style-src '{_hash(style)}'; img-src blob: data:; "
        f"base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _inert(content: dict[str, Any]) -> str:
    """Return JSON in which no HTML parser sees a tag. Doubles come back exactly."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


ADDRESS = "127.0.0.1"
_HTML, _SCRIPT = "text/html; charset=utf-8", "text/javascript; charset=utf-8"
_UNQUOTED = "!*'()"  # encodeURIComponent leaves them as they are
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the rest of the policy is in the page
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer(ThreadingHTTPServer):
    """A server of `page` and its chunks at `url`, until `shutdown`."""

    daemon_threads = True

    def __init__(self, page: str | Path, port: int = 0) -> None:
        check_whole("port", port, 0, 65535, example=8765)
        self.page = Path(page).resolve()  # the only time that a link is followed
        _check_page(self.page)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise ArgumentError(f"port={port} cannot be opened ({error.strerror}): choose another, or 0.") from error
        self.url = f"http://{ADDRESS}:{self.server_port}/"
        self.hosts = {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}
        if self.server_port == 80:
            self.hosts |= {ADDRESS, "localhost"}  # browsers omit the usual port

    def find(self, path: str) -> tuple[bytes, str] | None:
        """Return the bytes and the type of the page or a chunk of it; None for every other path."""
        folder, name = folder_of(self.page), path.rpartition("/")[2].removesuffix(".js")
        try:
            _check_page(self.page)
        except ArgumentError:  # the file is gone, or is not a page any more
            return None
        if path == "/":
            data, kind = _read(self.page), _HTML
        elif NAME.fullmatch(name) and path == f"/{quote(folder.name, safe=_UNQUOTED)}/{name}.js":
            data, kind = None if folder.is_symlink() else _read(folder / f"{name}.js"), _SCRIPT
        else:
            return None
        return None if data is None else (data, kind)


def _check_page(page: Path) -> None:
    """Refuse a file that is not a page of ours."""
    try:
        with page.open("rb") as file:
            start = file.read(4096)
    except OSError as error:
        raise ArgumentError(f"{page} cannot be read ({error.strerror}): give a page of `pixelcert report`.") from error
    if MARK.encode() not in start:
        raise ArgumentError(f"{page} is not a page that pixelcert wrote: give one of `pixelcert report`.")


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "pixelcert", ""
    protocol_version = "HTTP/1.1"
    timeout = 20  # seconds for which a silent connection is kept

    def parse_request(self) -> bool:
        """Refuse other methods and other hosts before anything is looked up."""
        if not super().parse_request():
            return False
        if self.command not in ("GET", "HEAD"):
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, Allow="GET, HEAD")
            return False
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
            return False
        return True

    def do_GET(self) -> None:
        if found := self.server.find(self.path):
            self._answer(HTTPStatus.OK, *found)
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    do_HEAD = do_GET  # noqa: N815

    def _refuse(self, status: HTTPStatus, **headers: str) -> None:
        self.close_connection = True  # because an unread body may follow
        self._answer(status, status.phrase.encode(), "text/plain; charset=utf-8", Connection="close", **headers)

    def _answer(self, status: HTTPStatus, data: bytes, kind: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Print nothing."""


def _read(path: Path) -> bytes | None:
    """Return a plain file's bytes; None if a link or something else has taken its place."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(handle).st_mode) and not path.is_symlink() else None
