"""ImageNet as it is distributed: its WordNet ids, and the classes of its validation photographs.

Models number the 1000 classes by their sorted WordNet ids (WNIDs). The devkit numbers them in another order, its
ILSVRC2012_ID, so every label here is translated through the WNID.
"""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.io import loadmat

from ..basics.messages import ArgumentError, PixelcertWarning

CLASSES = 1000
SYNSETS = "LOC_synset_mapping.txt"
SOLUTION = "LOC_val_solution.csv"
GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
META = "meta.mat"
LEVELS_UP = 4  # from the photographs in ILSVRC/Data/CLS-LOC/val up to Kaggle's lists, which lie beside ILSVRC/
WNID = re.compile("n[0-9]{8}")  # a WordNet id, such as n01440764
PHOTOGRAPH = re.compile(r"ILSVRC2012_val_([0-9]{8})\.jpe?g", re.IGNORECASE)  # of the validation set, with its number
DEVKITS = (".", "data", "ILSVRC2012_devkit_t12/data")


def read_synsets(path: Path, count: int = CLASSES) -> list[str]:
    """Return the WNIDs at the beginning of the `count` lines of a text file."""
    wnids = [line.replace("\t", " ").partition(" ")[0] for line in _read(path).splitlines()]
    if strange := [(line, wnid) for line, wnid in enumerate(wnids, 1) if not WNID.fullmatch(wnid)]:
        line, wnid = strange[0]
        raise ArgumentError(
            f"synsets={path}, line {line}: begins with {wnid!r}, which is not a WordNet id such as n01440764: give a "
            f"file such as Kaggle's {SYNSETS}."
        )
    if len(wnids) != count or len(set(wnids)) != count:
        raise ArgumentError(
            f"synsets={path} has {len(wnids)} lines with {len(set(wnids))} WordNet ids: give {count} lines, one for "
            f"each class of the model, in its order."
        )
    return wnids


def find_synsets(folder: Path) -> list[str] | None:
    """Return the WNIDs in class order from Kaggle's list in the folder or above it, or None."""
    return read_synsets(path) if (path := _find_above(folder, SYNSETS)) else None


def validation_targets(folder: Path, files: Sequence[str], order: Sequence[str] | None) -> dict[str, int] | None:
    """Return the class of every validation photograph among `files`, or None.

    None means that the files are other photographs, or, with a warning, that no list of their classes is found.
    `order` is the WNIDs in the model's order; by default they are sorted.
    """
    numbers = {file: int(found[1]) for file in files if (found := PHOTOGRAPH.fullmatch(file))}
    if not numbers:
        return None
    solution = _find_above(folder, SOLUTION)
    truths = (place / kit / GROUND_TRUTH for place in (folder, folder.absolute().parent) for kit in DEVKITS)
    if (source := solution or next(filter(Path.is_file, truths), None)) is None:
        warnings.warn(
            f"{folder} looks like ImageNet's validation set, but its classes are not known: put Kaggle's {SOLUTION}, "
            f"or the devkit's {GROUND_TRUTH} and {META}, into it or its parent.",
            PixelcertWarning,
            stacklevel=4,
        )
        return None
    if others := sorted(set(files) - set(numbers)):
        raise ArgumentError(f"{others[0]} in {folder} is not a validation photograph of ImageNet: move it elsewhere.")
    if source == solution:
        wnids = _read_solution(source)
        order = order or find_synsets(folder) or in_order(set(wnids.values()), f"{source} names")
    else:
        by_id = _read_meta(source.with_name(META))
        wnids = _read_ground_truth(source, by_id)
        order = order or sorted(by_id.values())
    if unknown := [file for file, number in numbers.items() if number not in wnids]:
        raise ArgumentError(f"{source} has no class for {unknown[0]}: use the complete file, or move the photograph.")
    rank_of = ranks(order, (wnids[number] for number in numbers.values()), source)
    return {file: rank_of[wnids[number]] for file, number in numbers.items()}


def ranks(order: Sequence[str], used: Iterable[str], source: Path) -> dict[str, int]:
    """Return the class of every name by its place in `order`; refuse names used in `source` that are not there."""
    found = {name: rank for rank, name in enumerate(order)}
    if strange := [name for name in used if name not in found]:
        raise ArgumentError(f"{source} names {strange[0]}, which is not among the synsets: give the model's synsets.")
    return found


def in_order(wnids: Collection[str], subject: str, count: int = CLASSES) -> list[str]:
    """Return the WNIDs of all 1000 classes, or of a model's `count`, sorted; `subject` begins the refusal of others."""
    if len(wnids) not in (CLASSES, count):
        raise ArgumentError(
            f"{subject} {len(wnids)} of ImageNet's 1000 classes ({min(wnids)}, …), too few to tell their indices: "
            f"complete them, or give synsets=FILE, with the 1000 WordNet ids in order, such as Kaggle's {SYNSETS}."
        )
    return sorted(wnids)


def _read_solution(path: Path) -> dict[int, str]:
    """Return WNIDs by number of photograph, from lines such as ``ILSVRC2012_val_00048981,n03995372 85 1 499 272``."""
    wnids = {}
    rows = csv.DictReader(_read(path).splitlines())
    for row in rows:
        found = PHOTOGRAPH.fullmatch(f"{row.get('ImageId')}.JPEG")
        words = (row.get("PredictionString") or "").split()
        if not found or not words or not WNID.fullmatch(words[0]):
            raise ArgumentError(
                f"{path}, line {rows.line_num} is not like ILSVRC2012_val_00048981,n03995372 85 1 499 272: download "
                f"the file again."
            )
        wnids[int(found[1])] = words[0]
    return wnids


def _read_ground_truth(path: Path, by_id: Mapping[str, str]) -> dict[int, str]:
    """Return WNIDs by number of photograph, from a list whose line i is the ILSVRC2012_ID of photograph i."""
    lines = {number: line.strip() for number, line in enumerate(_read(path).splitlines(), 1)}
    for number, identity in lines.items():
        if identity not in by_id:
            raise ArgumentError(
                f"{path}, line {number}: {identity!r} is not an ILSVRC2012_ID of {META}, 1 to {CLASSES}: unpack the "
                f"devkit again."
            )
    return {number: by_id[identity] for number, identity in lines.items()}


def _read_meta(path: Path) -> dict[str, str]:
    """Return WNIDs by ILSVRC2012_ID, only of the leaves: higher ids are of classes that contain others."""
    if not path.is_file():
        raise ArgumentError(f"{path} does not exist: put the devkit's {META} beside {GROUND_TRUTH}.")
    try:
        synsets = np.atleast_1d(loadmat(path, squeeze_me=True)["synsets"])
        wnids = {int(synset["ILSVRC2012_ID"]): str(synset["WNID"]) for synset in synsets}
    except Exception as error:  # SciPy raises errors of any type for other files
        raise ArgumentError(f"{path} cannot be read ({error}): unpack the devkit again.") from error
    leaves = {str(identity): wnid for identity, wnid in wnids.items() if 1 <= identity <= CLASSES}
    if len(set(leaves.values())) != CLASSES or not all(map(WNID.fullmatch, leaves.values())):
        raise ArgumentError(f"{path} has {len(leaves)} classes instead of {CLASSES}: unpack the devkit again.")
    return leaves


def _find_above(folder: Path, name: str) -> Path | None:
    """Return the nearest file of this name, in the folder or above it, or None."""
    folder = folder.absolute()
    return next(filter(Path.is_file, (place / name for place in (folder, *folder.parents[:LEVELS_UP]))), None)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} cannot be read ({error}): check the path, or download the file again.") from error
