"""ImageNet as it is distributed: WordNet ids, and where the classes of the validation photographs are written.

Models number the 1000 classes by their sorted WordNet ids (WNIDs). The devkit numbers them in another order, its
ILSVRC2012_ID, so every label here goes through the WNID.
"""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..basics.messages import ArgumentError, PixelcertWarning

CLASSES = 1000
SYNSETS = "LOC_synset_mapping.txt"
SOLUTION = "LOC_val_solution.csv"
GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
META = "meta.mat"
LEVELS_UP = 4  # Kaggle's archive has its lists beside ILSVRC/, and the photographs in ILSVRC/Data/CLS-LOC/val
DEVKITS = (".", "data", "ILSVRC2012_devkit_t12/data")


def is_wnid(name: str) -> bool:
    return re.fullmatch("n[0-9]{8}", name) is not None


def read_synsets(path: Path, count: int = CLASSES) -> list[str]:
    """The WNIDs in a text file, which begin its `count` lines."""
    wnids = []
    for number, line in enumerate(_read(path).splitlines(), 1):
        wnids.append(wnid := line.replace("\t", " ").partition(" ")[0])
        if not is_wnid(wnid):
            raise ArgumentError(
                f"synsets={path}, line {number}: begins with {wnid!r}, which is no WordNet id such as n01440764: give "
                f"a file such as Kaggle's {SYNSETS}."
            )
    if len(wnids) != count or len(set(wnids)) != count:
        raise ArgumentError(
            f"synsets={path} has {len(wnids)} lines with {len(set(wnids))} WordNet ids: give {count} lines, one for "
            f"each class of the model, in its order."
        )
    return wnids


def find_synsets(folder: Path) -> list[str] | None:
    """The WNIDs in class order, from Kaggle's list in the folder or above it."""
    path = _first_file(place / SYNSETS for place in _upwards(folder))
    return None if path is None else read_synsets(path)


def validation_targets(folder: Path, files: Sequence[str], order: Sequence[str] | None) -> dict[str, int] | None:
    """The class of every validation photograph among `files`; None if they are others, or nothing tells the classes.

    `order` is the WNIDs in the model's order; by default they are sorted.
    """
    numbers = {file: int(found[1]) for file in files if (found := _validation_name(file))}
    if not numbers:
        return None
    solution = _first_file(place / SOLUTION for place in _upwards(folder))
    truth = _first_file(place / kit / GROUND_TRUTH for place in (folder, folder.absolute().parent) for kit in DEVKITS)
    source = solution or truth
    if source is None:
        warnings.warn(
            f"{folder} looks like ImageNet's validation set, but its classes are not known: put Kaggle's {SOLUTION}, "
            f"or the devkit's {GROUND_TRUTH} and {META}, into it or its parent.",
            PixelcertWarning,
            stacklevel=4,
        )
        return None
    if others := sorted(set(files) - set(numbers)):
        raise ArgumentError(f"{others[0]} in {folder} is no validation photograph of ImageNet: move it elsewhere.")
    if solution is not None:
        wnids = _read_solution(solution)
        order = order or find_synsets(folder) or _all_classes(wnids.values(), solution)
    else:
        by_id = _read_meta(source.with_name(META))
        wnids = _read_ground_truth(source, by_id)
        order = order or sorted(by_id.values())
    return _to_indices(numbers, wnids, order, source)


def _to_indices(
    numbers: Mapping[str, int], wnids: Mapping[int, str], order: Sequence[str], source: Path
) -> dict[str, int]:
    if unknown := [file for file, number in numbers.items() if number not in wnids]:
        raise ArgumentError(f"{source} has no class for {unknown[0]}: use the complete file, or move the photograph.")
    ranks = {wnid: rank for rank, wnid in enumerate(order)}
    if strange := [wnids[number] for number in numbers.values() if wnids[number] not in ranks]:
        raise ArgumentError(f"{source} names {strange[0]}, which is not among the synsets: give the model's synsets.")
    return {file: ranks[wnids[number]] for file, number in numbers.items()}


def _all_classes(wnids: Iterable[str], source: Path) -> list[str]:
    """The 1000 WNIDs, sorted, from a list of labels that has them all."""
    order = sorted(set(wnids))
    if len(order) != CLASSES:
        raise ArgumentError(
            f"{source} names {len(order)} of ImageNet's 1000 classes, which does not tell their indices: complete it, "
            f"or give synsets=FILE, with the 1000 WordNet ids in order, such as Kaggle's {SYNSETS}."
        )
    return order


def _read_solution(path: Path) -> dict[int, str]:
    """Kaggle's lines, such as ``ILSVRC2012_val_00048981,n03995372 85 1 499 272``: WNIDs by number of photograph."""
    wnids = {}
    rows = csv.DictReader(_read(path).splitlines())
    for row in rows:
        found = _validation_name(f"{row.get('ImageId')}.JPEG")
        words = (row.get("PredictionString") or "").split()
        if not found or not words or not is_wnid(words[0]):
            raise ArgumentError(
                f"{path}, line {rows.line_num}: is not like ILSVRC2012_val_00048981,n03995372 85 1 499 272: download "
                f"the file again."
            )
        wnids[int(found[1])] = words[0]
    return wnids


def _read_ground_truth(path: Path, by_id: Mapping[int, str]) -> dict[int, str]:
    """The devkit's list, where line i is the ILSVRC2012_ID of photograph i: WNIDs by number of photograph."""
    wnids = {}
    for number, line in enumerate(_read(path).splitlines(), 1):
        identity = line.strip()
        if not (identity.isdecimal() and int(identity) in by_id):
            raise ArgumentError(
                f"{path}, line {number}: {identity!r} is not an ILSVRC2012_ID of {META}, 1 to {CLASSES}: unpack the "
                f"devkit again."
            )
        wnids[number] = by_id[int(identity)]
    return wnids


def _read_meta(path: Path) -> dict[int, str]:
    """WNIDs by ILSVRC2012_ID, of the leaves alone: higher ids are of classes that contain others."""
    from scipy.io import loadmat

    if not path.is_file():
        raise ArgumentError(f"{path} does not exist: put the devkit's {META} beside {GROUND_TRUTH}.")
    try:
        synsets = np.atleast_1d(loadmat(path, squeeze_me=True)["synsets"])
        wnids = {int(synset["ILSVRC2012_ID"]): str(synset["WNID"]) for synset in synsets}
    except Exception as error:  # what is no such file makes SciPy raise anything
        raise ArgumentError(f"{path} cannot be read ({error}): unpack the devkit again.") from error
    leaves = {identity: wnid for identity, wnid in wnids.items() if 1 <= identity <= CLASSES}
    if len(set(leaves.values())) != CLASSES or not all(map(is_wnid, leaves.values())):
        raise ArgumentError(f"{path} has {len(leaves)} classes in place of {CLASSES}: unpack the devkit again.")
    return leaves


def _validation_name(file: str) -> re.Match[str] | None:
    return re.fullmatch(r"ILSVRC2012_val_([0-9]{8})\.jpe?g", file, re.IGNORECASE)


def _upwards(folder: Path) -> Iterator[Path]:
    folder = folder.absolute()
    yield folder
    yield from folder.parents[:LEVELS_UP]


def _first_file(paths: Iterable[Path]) -> Path | None:
    return next((path for path in paths if path.is_file()), None)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} cannot be read ({error}): check the path, or download the file again.") from error
