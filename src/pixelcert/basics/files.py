"""Files that are whole or absent: arrays and a readable header in one `.safetensors`, written in one step.

The header is one JSON text under the metadata key "pixelcert". One key, because the format does not keep the order of
several, and equal values should make equal files. The header names the kind of file, the version of its layout and a
checksum of the arrays. Any safetensors reader opens the file without this package.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from numbers import Number
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as parse_safetensors
from safetensors.numpy import save as format_safetensors

from .messages import ArgumentError, DiskFullError, PixelcertError, VotesFileError

_LARGEST_ARRAYS = 2**32  # bytes; votes of 100 levels on 1000 × 1000 pixels have 0.8 · 10⁹ with four bytes a count
_LARGEST_HEADER = 100_000_000  # bytes, as the safetensors format has it
_LARGEST_SEALED = 2**28  # bytes; a selection of a million photographs
_DEEPEST = 32  # levels of lists and dicts

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

Arrays = Mapping[str, NDArray[Any]]


def write_arrays(path: str | Path, kind: str, version: int, header: Mapping[str, Any], arrays: Arrays) -> Path:
    """Write `arrays` and `header` to `path`, replacing it in one step."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    header = {"kind": kind, "version": version, **header}
    text = _to_text({**header, "checksum": _checksum(header, arrays)})
    return write_atomically(path, format_safetensors(dict(arrays), metadata={"pixelcert": text}))


def read_arrays(path: str | Path, kind: str, version: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and arrays at `path`; VotesFileError if they are not exactly what was written."""
    data = _read(path, _LARGEST_ARRAYS, VotesFileError)
    try:
        size = int.from_bytes(data[:8], "little")
        if size > min(len(data) - 8, _LARGEST_HEADER):
            raise ValueError(f"a header of {size} bytes in {len(data)}")
        metadata = _parse(data[8 : 8 + size]).get("__metadata__") or {}
        header = dict(_parse(metadata.get("pixelcert", "{}")))
        arrays = parse_safetensors(data) if header else {}  # NumPy cannot hold every foreign file
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise VotesFileError(
            f"{path} is damaged, cut short, or no safetensors file ({error}): sample again."
        ) from error
    if not header:
        raise VotesFileError(f"{path} is a safetensors file, but not one of pixelcert's: give a file of {kind}.")
    if header.get("kind") != kind:
        raise VotesFileError(f"{path} holds {header.get('kind')!r}: give a file of {kind}.")
    _check_version(path, header.get("version"), version, VotesFileError)
    if header.pop("checksum", None) != _checksum(header, arrays):
        raise VotesFileError(f"{path} is damaged: its contents do not match their checksum. Sample again.")
    return header, arrays


def write_atomically(path: str | Path, data: bytes) -> Path:
    """Put `data` at `path` in one step: readers see the old file or the new one, never a part of either."""
    with suppress(FileNotFoundError):  # without locks, another process may sweep the first try away
        return _write(path, data)
    return _write(path, data)


def _write(path: str | Path, data: bytes) -> Path:
    with open_atomically(path) as file:
        file.write(data)
    return Path(path)


@contextmanager
def open_atomically(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file that appears at `path` in one step when the block ends, and not at all if it fails."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _FULL:
            raise disk_full(path.parent, str(error.strerror)) from error
        raise


def check_name(path: Path) -> None:
    """Refuse a name that is too long for the file system, also with the suffix that it has during writing."""
    try:
        with suppress(FileNotFoundError):
            _temporary(path).stat()
    except OSError as error:
        raise ArgumentError(f"{path} cannot be written ({error.strerror}): choose a shorter name.") from error


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def disk_full(folder: Path, why: str) -> DiskFullError:
    return DiskFullError(f"the disk of {folder} is full ({why}): free some room and run again; finished jobs are safe.")


def _read(path: str | Path, most: int, refused: type[PixelcertError]) -> bytes:
    """Return the bytes of a regular file; a pipe would wait for ever, and a device never ends."""
    try:
        about = Path(path).stat()
        if not stat.S_ISREG(about.st_mode):
            raise refused(f"{path} is not a regular file: check the path.")
        if about.st_size > most:
            raise refused(
                f"{path} has {about.st_size} bytes, more than the {most} that pixelcert reads: check the path."
            )
        with Path(path).open("rb") as file:
            return file.read(most)
    except (OSError, ValueError) as error:
        if isinstance(error, PixelcertError):
            raise
        raise refused(f"{path} cannot be read ({getattr(error, 'strerror', error)}): check the path.") from error


def _parse(text: str | bytes) -> Any:
    """Return JSON that names no key twice and is not nested deeper than any header; ValueError for other text."""
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if _is_deeper(value, _DEEPEST):
        raise ValueError("nested too deeply")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict; readers differ in which of two equal keys they believe."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key that is there twice")
    return found


def _is_deeper(value: Any, levels: int) -> bool:
    """Return True if lists and dicts are nested in more than so many levels."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return bool(inner) and (levels == 0 or any(_is_deeper(one, levels - 1) for one in inner))


def _check_version(path: str | Path, found: object, known: int, refused: type[PixelcertError]) -> None:
    if type(found) is not int or not 1 <= found <= known:
        raise refused(f"{path} has layout version {found!r} and this pixelcert reads up to {known}: upgrade pixelcert.")


def _to_text(header: Mapping[str, Any]) -> str:
    return json.dumps(header, indent=1, sort_keys=True)


def _checksum(header: Mapping[str, Any], arrays: Arrays) -> str:
    parts = [_to_text(header).encode()]
    for name, array in sorted(arrays.items()):
        parts += [f"{name} {array.dtype.str} {array.shape}".encode(), array.tobytes()]
    return sha256(*parts)


# ── Sealed JSON ───────────────────────────────────────────────────────────────────────────────────────────────────────


def write_sealed(path: str | Path, kind: str, version: int, content: Mapping[str, Any]) -> Path:
    """Write JSON that people can read, with a checksum that shows any change. Equal contents make equal files."""
    headed = {"kind": kind, "version": version, **content}
    return write_atomically(path, json.dumps({**headed, "checksum": digest_of(headed)}, indent=1).encode())


def read_sealed(path: str | Path, kind: str, version: int, remedy: str) -> dict[str, Any]:
    """Return what `write_sealed` wrote, without its head; ArgumentError with the remedy for anything else."""
    data = _read(path, _LARGEST_SEALED, ArgumentError)
    try:
        content = _parse(data)
        json.dumps(content, allow_nan=False)
    except ValueError as error:
        raise ArgumentError(f"{path} is damaged, cut short, or no JSON file ({error}): {remedy}.") from error
    if not isinstance(content, dict) or content.get("kind", kind) != kind:  # before 0.2.0 some had no kind
        raise ArgumentError(f"{path} is not a {kind}: give a file that pixelcert wrote as one.")
    _check_version(path, content.get("version", version), version, ArgumentError)
    checksum = content.pop("checksum", None)
    if checksum not in (digest_of(content), sha256(json.dumps(content, indent=1).encode())):  # selections before 0.2.0
        raise ArgumentError(f"{path} was changed or damaged: its contents do not match their checksum: {remedy}.")
    return {name: value for name, value in content.items() if name not in ("kind", "version")}


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a value as JSON, whatever the order of its keys."""
    return sha256(json.dumps(value, sort_keys=True).encode())


# ── Values ────────────────────────────────────────────────────────────────────────────────────────────────────────────

PLAIN = (bool, int, float, str, type(None))


def plain(value: Any, levels: int = _DEEPEST - 8) -> Any:
    """Return `value` in a form that JSON can hold: numbers and strings unchanged, arrays by digest, the rest by name.

    It never uses `repr`, which may hold an address that changes from one process to the next. Lists and dicts in more
    than so many `levels` of others, such as one in itself, are known by name only.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))  # JSON has no NaN and no ∞
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Mapping) and levels:
        return {str(key): plain(one, levels - 1) for key, one in value.items()}
    if isinstance(value, (list, tuple)) and levels:
        return [plain(one, levels - 1) for one in value]
    if isinstance(value, np.generic):
        return plain(value.item()) if not isinstance(value, np.longdouble) else str(value)
    if isinstance(value, Number):  # Decimal, Fraction, complex
        return str(value)
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):  # a tensor: torch is not imported here
        array = np.asarray(value if isinstance(value, np.ndarray) else value.detach().cpu().double())
        return f"{value.dtype} {array.shape} {sha256(array.tobytes())[:12]}"
    return getattr(value, "__qualname__", type(value).__qualname__)


def sha256(*parts: bytes | memoryview) -> str:
    """Return the hexadecimal SHA-256 of the concatenated parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
