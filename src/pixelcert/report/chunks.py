"""Chunks: the bytes that a page needs only when someone looks at them, inside the page or in a folder beside it.

A browser that opened a page from disk may not read other files, but it may run scripts from there. So a chunk in the
folder is a script of one call, which hands its bytes to the page. Names are digests of contents: a page never
finds another page's chunks, and equal chunks are kept once.
"""

from __future__ import annotations

import re
from base64 import b64encode
from pathlib import Path

from ..digest import sha256
from ..files import write_atomically

LIMIT = 32_000_000  # characters of chunks inside a page; beyond it a browser is slow to open and needs much memory
NAME = re.compile(r"(counts|photo|figure)-[0-9a-f]{20}")


class Chunks:
    """Chunks by name. They stay in memory up to `limit`, and all move to `folder` when they pass it.

    As a context, it takes back what it wrote if the page fails.
    """

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder, self.limit = folder, limit
        self.inside: dict[str, str] = {}
        self.names: set[str] = set()
        self.size = 0  # characters, inside and outside
        self.apart = False
        self._new: list[Path] = []  # files that were not there before

    def __enter__(self) -> Chunks:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            for file in self._new:
                file.unlink(missing_ok=True)
            self._remove_empty_folder()

    def add(self, kind: str, data: bytes) -> str:
        """Keep `data`, and return the name to find it by."""
        name = f"{kind}-{sha256(data)[:20]}"
        assert NAME.fullmatch(name), "a name that serve refuses"
        if name in self.names:
            return name
        text = b64encode(data).decode()
        self.names.add(name)
        self.size += len(text)
        if self.size > self.limit:
            self.apart = True
        self.inside[name] = text
        if self.apart:
            self._move_out()
        return name

    def remove_others(self) -> None:
        """Delete what earlier pages of the same name left in the folder, and nothing else."""
        kept = self.names if self.apart else set()
        for file in self.folder.glob("*.js") if self.folder.is_dir() else ():
            if NAME.fullmatch(file.stem) and file.stem not in kept:
                file.unlink(missing_ok=True)
        self._remove_empty_folder()

    def _remove_empty_folder(self) -> None:
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _move_out(self) -> None:
        for name, text in self.inside.items():
            file = self.folder / f"{name}.js"
            if not file.exists():
                self._new.append(file)
            write_atomically(file, f'pixelcertChunk("{name}","{text}");\n'.encode())
        self.inside.clear()
