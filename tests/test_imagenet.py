"""ImageNet as it is distributed: the classes of its validation photographs, from Kaggle's lists and the devkit's."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from small_photographs import WNIDS, found, photo, refused, write

import pixelcert as pc
from pixelcert.photographs import (
    Photograph,
    find_photographs,
)

RANKS = {1: 999, 2: 0, 3: 512, 7: 512}  # of validation photographs, by number


def validation_folder(folder: Path) -> Path:
    for number in RANKS:
        photo(folder / f"ILSVRC2012_val_{number:08d}.JPEG")
    return folder


def expected_ranks() -> dict[str, int]:
    return {f"ILSVRC2012_val_{number:08d}.JPEG": rank for number, rank in RANKS.items()}


def write_solution(path: Path, classes: int = 1000) -> Path:
    """Write Kaggle's list, in which photographs outside the folder have all the other classes."""
    ranks = {**{100 + rank: rank for rank in range(classes)}, **RANKS}
    lines = [f"ILSVRC2012_val_{number:08d},{WNIDS[rank]} 85 1 499 272 " for number, rank in ranks.items()]
    return write(path, "ImageId,PredictionString", *lines)


@cache
def devkit_meta(classes: int) -> tuple[bytes, list[int]]:
    """Make the devkit's meta.mat, with ILSVRC2012_IDs in another order than WNIDs; return it and the ids by rank."""
    ids = [rank * 7 % classes + 1 for rank in range(classes)]
    names = (
        "ILSVRC2012_ID",
        "WNID",
        "words",
        "gloss",
        "num_children",
        "children",
        "wordnet_height",
        "num_train_images",
    )
    synsets = np.zeros((classes + 2, 1), dtype=[(name, object) for name in names])
    for row, identity in enumerate(sorted(ids)):
        wnid = WNIDS[ids.index(identity)]
        synsets[row, 0] = (identity, wnid, "tench, Tinca tinca", "a fish", 0, np.zeros((0, 0)), 0, 1300)
    for row in (classes, classes + 1):  # classes that contain others, whose WNIDs would shift the ranks
        synsets[row, 0] = (row + 1, f"n0000000{row - classes}", "thing", "a thing", 2, np.array([1, 2]), 1, 0)
    file = io.BytesIO()
    savemat(file, {"synsets": synsets})
    return file.getvalue(), ids


def write_devkit(folder: Path, classes: int = 1000) -> list[int]:
    """Write the devkit's files, and return the ids by rank."""
    meta, ids = devkit_meta(classes)
    truth = [ids[RANKS.get(number, 0) % classes] for number in range(1, 11)]
    write(folder / "ILSVRC2012_validation_ground_truth.txt", *map(str, truth))
    (folder / "meta.mat").write_bytes(meta)
    return ids


@pytest.mark.parametrize("place", ["val", ".", ".."])
def test_kaggles_solution_tells_the_classes(tmp_path: Path, place: str) -> None:
    folder = validation_folder(tmp_path / "root" / "val")
    write_solution(tmp_path / "root" / place / "LOC_val_solution.csv")
    assert found(folder) == expected_ranks()


def test_kaggles_archive_is_understood_as_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = validation_folder(tmp_path / "ILSVRC" / "Data" / "CLS-LOC" / "val")
    write_solution(tmp_path / "LOC_val_solution.csv", classes=3)  # a part of it will do with the list of classes
    write(tmp_path / "LOC_synset_mapping.txt", *(f"{wnid} tench, Tinca tinca" for wnid in WNIDS))
    assert found(folder) == expected_ranks()
    monkeypatch.chdir(folder)
    assert found(".") == expected_ranks()


@pytest.mark.parametrize(
    ("place", "named"),
    [("val", False), ("val/data", False), (".", True), ("data", False), ("ILSVRC2012_devkit_t12/data", True)],
)
def test_devkit_tells_the_classes_through_wordnet_ids(tmp_path: Path, place: str, named: bool) -> None:
    folder = validation_folder(tmp_path / "val")
    ids = write_devkit(tmp_path / place)
    assert ids != sorted(ids)
    assert found(folder, classes=[f"class {rank}" for rank in range(1000)] if named else None) == expected_ranks()


def test_validation_photographs_without_lists_have_no_targets_and_a_warning_says_so(tmp_path: Path) -> None:
    folder = validation_folder(tmp_path)
    with pytest.warns(pc.PixelcertWarning, match="looks like ImageNet's.*LOC_val_solution.csv") as warned:
        photographs = find_photographs(folder)
    assert warned[0].filename == __file__
    assert photographs == [Photograph(file, None) for file in expected_ranks()]


def test_validation_set_with_something_missing_is_refused(tmp_path: Path) -> None:
    folder = validation_folder(tmp_path / "val")
    solution = write_solution(tmp_path / "LOC_val_solution.csv", classes=3)
    with refused(r"LOC_val_solution\.csv names 5 of ImageNet's 1000 classes.*give synsets=FILE"):
        find_photographs(folder)
    write_solution(solution)
    with refused("classes has 10 names and .* has labels of 1000 classes: use a model of those classes"):
        find_photographs(folder, classes=list("abcdefghij"))
    photo(folder / "ILSVRC2012_val_00000099.JPEG")
    with refused(r"has no class for ILSVRC2012_val_00000099\.JPEG: use the complete file"):
        find_photographs(folder)
    photo(folder / "cat.png")
    with refused(r"cat\.png in .* is not a validation photograph of ImageNet: move it"):
        find_photographs(folder)
    write(solution, "ImageId,PredictionString", "ILSVRC2012_val_00000001,n01440764 1", "ILSVRC2012_val_00000002,tench")
    (folder / "cat.png").unlink()
    with refused(r"LOC_val_solution\.csv, line 3 is not like .*: download"):
        find_photographs(folder)


def test_synsets_of_other_classes_are_refused(tmp_path: Path) -> None:
    folder = validation_folder(tmp_path / "val")
    write_solution(tmp_path / "LOC_val_solution.csv")
    others = write(tmp_path / "others.txt", *(f"n{number:08d}" for number in range(1000)))
    with refused(rf"names {WNIDS[999]}, which is not among the synsets"):
        find_photographs(folder, synsets=others)


def test_damaged_devkit_is_refused(tmp_path: Path) -> None:
    folder = validation_folder(tmp_path / "val")
    write_devkit(tmp_path)
    truth = tmp_path / "ILSVRC2012_validation_ground_truth.txt"
    write(truth, "1", "1001")
    with refused(r"ground_truth\.txt, line 2: '1001' is not an ILSVRC2012_ID of meta\.mat, 1 to 1000"):
        find_photographs(folder)
    write(truth, "1", "2", "3")
    with refused(r"has no class for ILSVRC2012_val_00000007\.JPEG"):
        find_photographs(folder)
    write_devkit(tmp_path, classes=990)
    with refused(r"meta\.mat has 992 classes instead of 1000: unpack the devkit again"):
        find_photographs(folder)
    (tmp_path / "meta.mat").write_bytes(b"no matlab")
    with refused(r"meta\.mat cannot be read .*unpack the devkit again"):
        find_photographs(folder)
    (tmp_path / "meta.mat").unlink()
    with refused(r"meta\.mat does not exist: put the devkit's meta\.mat beside"):
        find_photographs(folder)
