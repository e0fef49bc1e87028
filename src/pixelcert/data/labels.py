"""Labels: a CSV file that says which files there are and of which class, and the names that classes go by.

The file has a header with one column of files (``file``, ``filename``, ``image``, ``path`` or ``name``, relative to the
folder of photographs) and one of labels (``label``, ``target``, ``class``, ``class_index`` or ``index``): a class's
index, or its name. Where several fit, the one named first here is taken; other columns are left alone.
"""

from __future__ import annotations

import csv
import os.path
import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from ..errors import ArgumentError

FILE_COLUMNS = ("file", "filename", "image", "path", "name")
LABEL_COLUMNS = ("label", "target", "class", "class_index", "index")


def is_index(label: str) -> bool:
    return re.fullmatch("[0-9]{1,9}", label) is not None


class ClassNames:
    """The names of a model's classes, if it has any, to find an index by."""

    def __init__(self, classes: Sequence[str] | None) -> None:
        self._classes = tuple(classes or ())
        self._indices: dict[str, list[int]] = {}
        for index, name in enumerate(self._classes):
            self._indices.setdefault(name, []).append(index)

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, name: object) -> bool:
        return name in self._indices

    def index(self, label: str, where: str) -> int:
        """The class that `label` means, as an index or a name; `where` it stands is for the error."""
        found = self._indices.get(label, [])
        if len(found) > 1:
            raise ArgumentError(f"{where}: {label!r} is the name of the classes {found}: use the index of one.")
        if not is_index(label):
            if found:
                return found[0]
            raise ArgumentError(f"{where}: {label!r} is not a class: {self._remedy(label)}.")
        index = int(label)
        if self._classes and index >= len(self):
            raise ArgumentError(f"{where}: {label} is not a class: the model's are 0 to {len(self) - 1}.")
        if found and found[0] != index:
            raise ArgumentError(
                f"{where}: {label} is the index of one class and the name of another (of index {found[0]}): leave "
                f"classes out to use indices alone."
            )
        return index

    def _remedy(self, label: str) -> str:
        if not self._classes:
            return "use indices, or give classes, the names of the model's classes"
        near = get_close_matches(label, self._indices, n=3)
        return f"did you mean {' or '.join(map(repr, near))}?" if near else "use the index, or the model's own name"


def read_labels(path: Path, folder: Path, names: ClassNames) -> dict[str, int]:
    """The class of every file that the CSV file lists, by its POSIX path relative to `folder`."""
    (_, header), *rows = _read_rows(path) or [(1, [])]
    file_column, label_column = _column(header, FILE_COLUMNS, path), _column(header, LABEL_COLUMNS, path)
    targets: dict[str, int] = {}
    lines: dict[str, int] = {}
    for line, row in rows:
        where = f"{path}, line {line}"
        if len(row) <= max(file_column, label_column):
            raise ArgumentError(f"{where}: has {len(row)} of {len(header)} columns: complete it, or delete the line.")
        file = _relative(row[file_column].strip(), folder, where)
        if file in targets:
            raise ArgumentError(f"{where}: {file} is already on line {lines[file]}: list every file once.")
        targets[file] = names.index(row[label_column].strip(), where)
        lines[file] = line
    if not targets:
        raise ArgumentError(f"labels={path} lists no files: give one line per file under the header.")
    return targets


def _read_rows(path: Path) -> list[tuple[int, list[str]]]:
    """The rows that are not blank, with their line numbers."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets begin their files with a mark
            rows = csv.reader(file, skipinitialspace=True)
            return [(rows.line_num, row) for row in rows if any(map(str.strip, row))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ArgumentError(f"labels={path} cannot be read ({error}): give a CSV file in UTF-8.") from error


def _column(header: list[str], names: Sequence[str], path: Path) -> int:
    columns = [column.strip().lower() for column in header]
    for name in names:
        if name in columns:
            return columns.index(name)
    raise ArgumentError(
        f"labels={path} has the columns {', '.join(header) or 'of an empty file'}: name one of them {names[0]!r} (or "
        f"{', '.join(names[1:])}) in the first line, with commas between."
    )


def _relative(file: str, folder: Path, where: str) -> str:
    """`file`, written in one way only, so that no file can be listed twice."""
    inside = Path(os.path.relpath(os.path.join(folder, file), folder))
    if not file or inside.parts[:1] == ("..",) or not (folder / inside).is_file():
        raise ArgumentError(
            f"{where}: {file or 'a file without a name'} is not in {folder}: correct the path, which is relative to "
            f"that folder, or delete the line."
        )
    return inside.as_posix()
