"""A folder of photographs, in any of the usual layouts, as one list of files with their classes."""

from __future__ import annotations

import csv
import os.path
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from ..basics.messages import ArgumentError
from ..models.loading import PHOTOGRAPHS, photograph_folder
from .imagenet import CLASSES, SYNSETS, find_synsets, is_wnid, read_synsets, validation_targets

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


EMBEDDED = "embedded"  # stands for the photographs that come with the demo extra
LABELS = "labels.csv"
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm"}


@dataclass(frozen=True)
class Photograph:
    """A file, as a POSIX path relative to its folder, and its class where that is known."""

    file: str
    target: int | None


def find_photographs(
    folder: str | Path,
    *,
    labels: str | Path | None = None,
    synsets: str | Path | None = None,
    classes: Sequence[str] | None = None,
) -> list[Photograph]:
    """The photographs of a folder, sorted by file. The first layout that fits is taken:

    1. `labels`, or ``labels.csv`` in the folder: exactly the files that it lists (see `pixelcert.photographs.folder`).
    2. ImageNet's validation set as distributed: ``ILSVRC2012_val_*.JPEG`` side by side, with Kaggle's solution or
       the devkit near by (see `pixelcert.photographs.imagenet`).
    3. One subfolder per class, as torchvision's ImageFolder reads them. Names that are whole numbers are indices;
       names of `classes` are those classes; WordNet ids are looked up in `synsets`, or ranked if all 1000 are there;
       any others are in the order of `classes` when sorted, if there are as many.
    4. Images side by side: without targets.

    Args:
        folder: a path, or "embedded" for the photographs that come with ``pixelcert[demo]`` (for a folder of that
            name, write "./embedded").
        labels: a CSV file that names files and their classes.
        synsets: a text file with a WordNet id first on each line, in the model's order of classes; Kaggle's
            ``LOC_synset_mapping.txt`` is found by itself in the folder or above it.
        classes: names of the model's classes.
    """
    names = ClassNames(classes)
    if folder == EMBEDDED:
        if labels is not None or synsets is not None:
            raise ArgumentError("labels and synsets cannot be given: the embedded photographs bring their own classes.")
        targets: Mapping[str, int | None] = PHOTOGRAPHS
        _check_count(names, "the embedded photographs")
    else:
        targets = _read_folder(locate(folder), labels, synsets, names)
    return [Photograph(file, targets[file]) for file in sorted(targets)]


def unlisted_images(folder: str | Path, photographs: Iterable[Photograph]) -> list[str]:
    """Images in the folder, at any depth, that are not among `photographs`, as where labels do not list them."""
    if folder == EMBEDDED:
        return []
    place = locate(folder)
    return sorted(set(_images_in(place, place.rglob("*"))) - {photograph.file for photograph in photographs})


def locate(folder: str | Path) -> Path:
    """The path of a folder of photographs; "embedded" is where the embedded ones lie."""
    if folder == EMBEDDED:
        return photograph_folder()
    if not Path(folder).is_dir():
        what = "is a file" if Path(folder).is_file() else "does not exist"
        raise ArgumentError(f"folder={folder} {what}: give a folder of photographs, or {EMBEDDED!r}.")
    return Path(folder)


def _read_folder(
    folder: Path, labels: str | Path | None, synsets: str | Path | None, names: ClassNames
) -> Mapping[str, int | None]:
    if labels is None and (folder / LABELS).is_file():
        labels = folder / LABELS
    if labels is not None:
        return read_labels(Path(labels), folder, names)
    order = None if synsets is None else read_synsets(Path(synsets), len(names) if names else CLASSES)
    flat = sorted(_images_in(folder, folder.iterdir()))
    classed = [below for below in _folders_in(folder) if next(_images_in(folder, below.rglob("*")), None)]
    if not flat and not classed:
        raise ArgumentError(f"folder={folder} has no images: give one with files of {', '.join(sorted(SUFFIXES))}.")
    if flat and (truth := validation_targets(folder, flat, order)):
        _check_count(names, str(folder))
        return truth
    if flat and classed:
        raise ArgumentError(
            f"folder={folder} holds both images ({flat[0]}) and subfolders of images ({classed[0].name}): move one "
            f"kind elsewhere, or say what belongs to it in labels=FILE.csv with the columns file,label."
        )
    if flat:
        return dict.fromkeys(flat)
    indices = _class_indices(folder, [below.name for below in classed], order, names)
    return {file: indices[below.name] for below in classed for file in _images_in(folder, below.rglob("*"))}


def _class_indices(folder: Path, used: list[str], order: Sequence[str] | None, names: ClassNames) -> dict[str, int]:
    """The class of every subfolder that holds images. Empty ones count where the order decides."""
    every = [below.name for below in _folders_in(folder)]
    if all(map(is_index, used)) or all(name in names for name in used):
        return {name: names.index(name, f"the subfolder {name} of {folder}") for name in used}
    if all(map(is_wnid, used)):
        return _wnid_indices(folder, used, [name for name in every if is_wnid(name)], order, names)
    if len(every) == len(names):
        return _ranks(folder, used, every)
    known = f"the model has {len(names)} classes" if names else "classes is not given"
    raise ArgumentError(
        f"folder={folder} has {len(every)} subfolders ({', '.join(every[:3])}{', …' if len(every) > 3 else ''}) and "
        f"{known}: give the folder whose subfolders are the classes, name each by its class or index, or give "
        f"labels=FILE.csv with the columns file,label."
    )


def _wnid_indices(
    folder: Path, used: list[str], every: list[str], order: Sequence[str] | None, names: ClassNames
) -> dict[str, int]:
    if order is None and len(every) < CLASSES and len(names) in (0, CLASSES):
        order = find_synsets(folder)
    if order is None and len(every) not in (CLASSES, len(names)):
        raise ArgumentError(
            f"folder={folder} has {len(every)} of ImageNet's 1000 classes, so their names ({used[0]}, …) do not tell "
            f"their indices: give synsets=FILE, with the 1000 WordNet ids in order, such as Kaggle's {SYNSETS}."
        )
    _check_count(names, str(folder), len(order or every))
    return _ranks(folder, used, order or every)


def _ranks(folder: Path, used: list[str], order: Sequence[str]) -> dict[str, int]:
    ranks = {name: rank for rank, name in enumerate(order)}
    if strange := [name for name in used if name not in ranks]:
        raise ArgumentError(
            f"the subfolder {strange[0]} of {folder} is not among the synsets: give the synsets of the model's classes."
        )
    return {name: ranks[name] for name in used}


def _check_count(names: ClassNames, whose: str, count: int = CLASSES) -> None:
    if names and len(names) != count:
        raise ArgumentError(
            f"classes has {len(names)} names and {whose} has labels of {count} classes: use a model of those classes, "
            f"or give labels=FILE.csv in the model's own."
        )


def _folders_in(folder: Path) -> list[Path]:
    return sorted(below for below in folder.iterdir() if below.is_dir() and not below.name.startswith("."))


def _images_in(folder: Path, paths: Iterable[Path]) -> Iterator[str]:
    """Which paths are images, relative to `folder`, leaving out whatever is hidden."""
    for path in paths:
        if path.suffix.lower() in SUFFIXES and path.is_file():
            inside = path.relative_to(folder)
            if not any(part.startswith(".") for part in inside.parts):
                yield inside.as_posix()
