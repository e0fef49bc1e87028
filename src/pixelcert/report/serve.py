"""Serve: one page, to browsers on this machine alone.

What may be asked for is a table made at the start, and again when the page is written anew. A path that is not in it
does not exist: no path of a request is ever joined to a folder. A request must name this server as its host,
so that no other site's name can be pointed here.
"""

from __future__ import annotations

import os
import stat
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

from ..errors import ArgumentError
from .chunks import NAME
from .page import MARK, folder_of

ADDRESS = "127.0.0.1"
_HTML, _SCRIPT = "text/html; charset=utf-8", "text/javascript; charset=utf-8"
_UNQUOTED = "!*'()"  # which encodeURIComponent leaves as they are
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page's own policy stands in the page
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer(ThreadingHTTPServer):
    """Serves `page` and its chunks until `shutdown`; `url` is where."""

    daemon_threads = True

    def __init__(self, page: str | Path, port: int = 0) -> None:
        if not 0 <= port < 65536:
            raise ArgumentError(f"port={port} is no port: choose one up to 65535, or 0 for any that is free.")
        self._page = Path(page).resolve()  # a link to a page is followed here, once, and none later
        self._lock = Lock()
        self._seen = _state_of(self._page)
        self._files = _files_of(self._page)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise ArgumentError(f"port={port} cannot be opened ({error.strerror}): choose another, or 0.") from error
        self.hosts = {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}
        if self.server_port == 80:
            self.hosts |= {ADDRESS, "localhost"}  # browsers leave the usual port out

    @property
    def files(self) -> dict[str, tuple[Path, str]]:
        """What may be asked for: path → file and type. A page written anew has other chunks."""
        with self._lock:
            if (seen := _state_of(self._page)) != self._seen:
                try:
                    self._files = _files_of(self._page)
                except ArgumentError:  # it is gone, or no page any more
                    self._files = {}
                self._seen = seen
            return self._files

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/"


def _state_of(page: Path) -> tuple[int, ...] | None:
    """Which changes when a page is written anew."""
    try:
        found = page.lstat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _files_of(page: Path) -> dict[str, tuple[Path, str]]:
    """What may be asked for: path → file and type."""
    try:
        with page.open("rb") as file:
            start = file.read(4096)
    except OSError as error:
        raise ArgumentError(f"{page} cannot be read ({error.strerror}): give a page of `pixelcert report`.") from error
    if MARK.encode() not in start:
        raise ArgumentError(f"{page} is not a page that pixelcert wrote: give one of `pixelcert report`.")
    folder = folder_of(page)
    found = {"/": (page, _HTML)}
    if folder.is_dir() and not folder.is_symlink():
        names = (file.stem for file in folder.glob("*.js"))
        found |= {
            f"/{quote(folder.name, safe=_UNQUOTED)}/{name}.js": (folder / f"{name}.js", _SCRIPT)
            for name in names
            if NAME.fullmatch(name)
        }
    return found


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "pixelcert", ""
    protocol_version = "HTTP/1.1"
    timeout = 20  # seconds for which a silent connection is kept

    def parse_request(self) -> bool:
        """Refuse before anything is looked up: other methods, other hosts."""
        if not super().parse_request():
            return False
        if self.command not in ("GET", "HEAD"):
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, HEAD"})
            return False
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
            return False
        return True

    def do_GET(self) -> None:
        found = self.server.files.get(self.path)
        data = None if found is None else _read(found[0])
        if found is None or data is None:
            self._refuse(HTTPStatus.NOT_FOUND)
        else:
            self._answer(HTTPStatus.OK, data, found[1])

    do_HEAD = do_GET  # noqa: N815

    def _refuse(self, status: HTTPStatus, headers: dict[str, str] | None = None) -> None:
        self.close_connection = True  # a body that nobody read may follow
        self._answer(
            status, status.phrase.encode(), "text/plain; charset=utf-8", {"Connection": "close", **(headers or {})}
        )

    def _answer(self, status: HTTPStatus, data: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """The library prints nothing."""


def _read(path: Path) -> bytes | None:
    """A plain file's bytes; None where a link or something else has taken its place."""
    if path.is_symlink():
        return None
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(handle).st_mode) else None
