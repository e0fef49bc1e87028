"""A folder of photographs, in any of the usual layouts, as one list of files with their classes."""

from __future__ import annotations

import csv
import os.path
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from ..basics.messages import ArgumentError, check_target, naming
from ..models.classifier import INDEX, class_of_name
from ..models.loading import PHOTOGRAPHS, photograph_folder
from .imagenet import CLASSES, WNID, find_synsets, in_order, ranks, read_synsets, validation_targets

FILE_COLUMNS = ("file", "filename", "image", "path", "name")
LABEL_COLUMNS = ("label", "target", "class", "class_index", "index")


def class_index(label: str, classes: Sequence[str]) -> int:
    """Return the class of a label, which is an index or one of the names."""
    if not INDEX.fullmatch(label):
        return class_of_name(label, classes)
    index = check_target(int(label), len(classes) or None)
    if label in classes and (named := class_of_name(label, classes)) != index:
        raise ArgumentError(
            f"{label} is the index of one class and the name of another (of index {named}): leave classes out to use "
            f"only indices."
        )
    return index


def read_labels(path: Path, folder: Path, classes: Sequence[str]) -> dict[str, int]:
    """Return the class of every file in a CSV file, by its POSIX path relative to `folder`."""
    (_, header), *rows = _read_rows(path) or [(1, [])]
    file_column, label_column = _column(header, FILE_COLUMNS, path), _column(header, LABEL_COLUMNS, path)
    class_of = cache(partial(class_index, classes=classes))  # labels come again and again
    targets: dict[str, int] = {}
    lines: dict[str, int] = {}
    for line, row in rows:
        with naming(f"{path}, line {line}"):
            if len(row) <= max(file_column, label_column):
                raise ArgumentError(f"has {len(row)} of {len(header)} columns: complete it, or delete the line.")
            file = _relative(row[file_column].strip(), folder)
            if file in targets:
                raise ArgumentError(f"{file} is already on line {lines[file]}: list every file once.")
            targets[file] = class_of(row[label_column].strip())
            lines[file] = line
    if not targets:
        raise ArgumentError(f"labels={path} lists no files: give one line per file under the header.")
    return targets


def _read_rows(path: Path) -> list[tuple[int, list[str]]]:
    """Return the rows that are not blank, with their line numbers."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # some spreadsheets write a byte-order mark first
            rows = csv.reader(file, skipinitialspace=True)
            return [(rows.line_num, row) for row in rows if any(map(str.strip, row))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ArgumentError(f"labels={path} cannot be read ({error}): give a CSV file in UTF-8.") from error


def _column(header: list[str], names: Sequence[str], path: Path) -> int:
    """Return the place of the first of `names` that is in the header."""
    columns = [column.strip().lower() for column in header]
    if known := [name for name in names if name in columns]:
        return columns.index(known[0])
    raise ArgumentError(
        f"labels={path} has the columns {', '.join(header) or 'of an empty file'}: name one of them {names[0]!r} (or "
        f"{', '.join(names[1:])}) in the first line, with commas between."
    )


def _relative(file: str, folder: Path) -> str:
    """Return `file` relative to the folder, always spelt alike, so that no file can be listed twice."""
    inside = Path(os.path.relpath(os.path.join(folder, file), folder))
    if not file or inside.parts[:1] == ("..",) or not (folder / inside).is_file():
        raise ArgumentError(
            f"{file or 'a file without a name'} is not in {folder}: correct the path, which is relative to "
            f"that folder, or delete the line."
        )
    return inside.as_posix()


EMBEDDED = "embedded"  # the folder's name for the photographs that come with the demo extra
LABELS = "labels.csv"
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm"}


@dataclass(frozen=True)
class Photograph:
    """A file, as a POSIX path relative to its folder, and its class if that is known."""

    file: str
    target: int | None


def find_photographs(
    folder: str | Path,
    *,
    labels: str | Path | None = None,
    synsets: str | Path | None = None,
    classes: Sequence[str] | None = None,
) -> list[Photograph]:
    """Return the photographs of a folder, sorted by file. The first layout that fits is used:

    1. `labels`, or ``labels.csv`` in the folder: exactly the files that it lists (see `pixelcert.photographs.folder`).
    2. ImageNet's validation set as distributed: ``ILSVRC2012_val_*.JPEG`` side by side, with Kaggle's solution or
       the devkit near by (see `pixelcert.photographs.imagenet`).
    3. One subfolder per class, as torchvision's ImageFolder reads them. Names that are whole numbers are indices.
       Names of `classes` are those classes. WordNet ids are looked up in `synsets`, or ranked if all 1000 are there.
       Any other names are in the order of `classes` when sorted, if there are as many.
    4. Images side by side: without targets.

    Args:
        folder: a path, or "embedded" for the photographs that come with ``pixelcert[demo]`` (for a folder of that
            name, write "./embedded").
        labels: a CSV file that names files and their classes.
        synsets: a text file with a WordNet id first on each line, in the model's order of classes. Kaggle's
            ``LOC_synset_mapping.txt`` is found automatically in the folder or above it.
        classes: names of the model's classes.
    """
    classes = classes or ()
    if folder == EMBEDDED:
        if labels is not None or synsets is not None:
            raise ArgumentError("labels and synsets do not apply to the embedded photographs: leave them out.")
        targets: Mapping[str, int | None] = PHOTOGRAPHS
        _check_count(classes, "the embedded photographs")
    else:
        targets = _read_folder(locate(folder), labels, synsets, classes)
    return [Photograph(file, targets[file]) for file in sorted(targets)]


def unlisted_images(folder: str | Path, photographs: Iterable[Photograph]) -> list[str]:
    """Return the images in the folder, at any depth, that are not among `photographs`."""
    if folder == EMBEDDED:
        return []
    place = locate(folder)
    return sorted(set(_images_in(place, place.rglob("*"))) - {photograph.file for photograph in photographs})


def locate(folder: str | Path) -> Path:
    """Return the path of a folder of photographs; "embedded" is the folder of the embedded ones."""
    if folder == EMBEDDED:
        return photograph_folder()
    if not Path(folder).is_dir():
        problem = "is a file" if Path(folder).is_file() else "does not exist"
        raise ArgumentError(f"folder={folder} {problem}: give a folder of photographs, or {EMBEDDED!r}.")
    return Path(folder)


def _read_folder(
    folder: Path, labels: str | Path | None, synsets: str | Path | None, classes: Sequence[str]
) -> Mapping[str, int | None]:
    """Return the class of each photograph by file, from the first layout that fits."""
    listed = folder / LABELS if labels is None else Path(labels)
    if labels is not None or listed.is_file():
        return read_labels(listed, folder, classes)
    order = None if synsets is None else read_synsets(Path(synsets), len(classes) or CLASSES)
    flat = sorted(_images_in(folder, folder.iterdir()))
    classed = [below for below in _folders_in(folder) if next(_images_in(folder, below.rglob("*")), None)]
    if not flat and not classed:
        raise ArgumentError(f"folder={folder} has no images: give one with files of {', '.join(sorted(SUFFIXES))}.")
    if flat and (truth := validation_targets(folder, flat, order)):
        _check_count(classes, str(folder))
        return truth
    if flat and classed:
        raise ArgumentError(
            f"folder={folder} holds both images ({flat[0]}) and subfolders of images ({classed[0].name}): move one "
            f"kind elsewhere, or list the files to use in labels=FILE.csv with the columns file,label."
        )
    if flat:
        return dict.fromkeys(flat)
    indices = _class_indices(folder, [below.name for below in classed], order, classes)
    return {file: indices[below.name] for below in classed for file in _images_in(folder, below.rglob("*"))}


def _class_indices(
    folder: Path, used: list[str], order: Sequence[str] | None, classes: Sequence[str]
) -> dict[str, int]:
    """Return the class of every subfolder that holds images; empty subfolders count where the order decides."""
    every = [below.name for below in _folders_in(folder)]
    if all(map(INDEX.fullmatch, used)) or set(used) <= set(classes):
        indices = {}
        for name in used:
            with naming(f"the subfolder {name} of {folder}"):
                indices[name] = class_index(name, classes)
        return indices
    if all(map(WNID.fullmatch, used)):
        order = order or _order_of_wnids(folder, list(filter(WNID.fullmatch, every)), len(classes))
        _check_count(classes, str(folder), len(order))
        return ranks(order, used, folder)
    if len(every) == len(classes):
        return ranks(every, used, folder)
    known = f"the model has {len(classes)} classes" if classes else "classes is not given"
    raise ArgumentError(
        f"folder={folder} has {len(every)} subfolders ({', '.join(every[:3])}{', …' if len(every) > 3 else ''}) and "
        f"{known}: give the folder whose subfolders are the classes, name each by its class or index, or give "
        f"labels=FILE.csv with the columns file,label."
    )


def _order_of_wnids(folder: Path, wnids: list[str], count: int) -> list[str]:
    """Return the WordNet ids in the order of the model's `count` classes; `wnids` are those of the subfolders."""
    if len(wnids) < CLASSES and count in (0, CLASSES) and (order := find_synsets(folder)):
        return order
    return in_order(wnids, f"folder={folder} has", count)


def _check_count(classes: Sequence[str], whose: str, count: int = CLASSES) -> None:
    """Refuse class names whose number differs from the number of labelled classes."""
    if classes and len(classes) != count:
        raise ArgumentError(
            f"classes has {len(classes)} names and {whose} has labels of {count} classes: use a model of those "
            f"classes, or give labels=FILE.csv with the model's own."
        )


def _folders_in(folder: Path) -> list[Path]:
    return sorted(below for below in folder.iterdir() if below.is_dir() and not below.name.startswith("."))


def _images_in(folder: Path, paths: Iterable[Path]) -> Iterator[str]:
    """Yield the paths that are images, relative to `folder`; hidden files and folders are left out."""
    for path in paths:
        if path.suffix.lower() in SUFFIXES and path.is_file():
            inside = path.relative_to(folder)
            if not any(part.startswith(".") for part in inside.parts):
                yield inside.as_posix()
