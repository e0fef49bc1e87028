"""Data: which photographs a folder holds, which of them are chosen, and that they stay the same."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat
from small_networks import SIZE, small_model
from torch import Tensor, nn

import pixelcert as pc
from pixelcert.basics.files import sha256
from pixelcert.photographs import (
    Chosen,
    Grid,
    Photograph,
    Request,
    Selection,
    choose,
    compose_grid,
    find_photographs,
    read_chosen,
)
from pixelcert.photographs.selection import Purpose, Seats, drawn, shuffled, stream

SHARED = Path(__file__).resolve().parents[2] / "shared"
WNIDS = [f"n{1_000_000 + 37 * rank:08d}" for rank in range(1000)]  # in sorted order: the index is the rank
needs_photographs = pytest.mark.skipif(
    find_spec("skimage") is None, reason="scikit-image, of pixelcert[demo], has the photographs"
)


def photo(path: Path, colour: Sequence[int] = (10, 200, 90), size: int = 8) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size, size), tuple(colour)).save(path)
    return path


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def found(folder: str | Path, **options: object) -> dict[str, int | None]:
    photographs = find_photographs(folder, **options)  # type: ignore[arg-type]
    assert [photograph.file for photograph in photographs] == sorted(photograph.file for photograph in photographs)
    return {photograph.file: photograph.target for photograph in photographs}


def refused(match: str) -> pytest.RaisesExc:
    return pytest.raises(pc.ArgumentError, match=match)


# ── Plain folders ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_plain_folder_has_no_targets(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "c.jpeg", "d.WebP", "e.bmp", "f.tif", "g.TIFF", "h.ppm"):
        photo(tmp_path / name)
    for name in ("notes.txt", "a.npy", "movie.gif"):
        (tmp_path / name).write_bytes(b"")
    photo(tmp_path / ".hidden.png")
    photo(tmp_path / ".thumbnails" / "a.png")
    (tmp_path / "empty").mkdir()
    names = ["a.JPG", "b.png", "c.jpeg", "d.WebP", "e.bmp", "f.tif", "g.TIFF", "h.ppm"]
    assert find_photographs(str(tmp_path)) == [Photograph(name, None) for name in names]


def test_folder_without_images_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "below" / "notes.txt", "nothing")
    with refused(rf"folder={re.escape(str(tmp_path))} has no images: give one with files of \.bmp"):
        find_photographs(tmp_path)


def test_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with refused("nowhere does not exist: give a folder"):
        find_photographs(tmp_path / "nowhere")
    with refused("a.png is a file: give a folder"):
        find_photographs(photo(tmp_path / "a.png"))


def test_images_beside_subfolders_of_images_are_refused(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    photo(tmp_path / "7" / "b.png")
    with refused(r"both images \(a\.png\) and subfolders of images \(7\): move"):
        find_photographs(tmp_path)


# ── Lists of labels ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def two(tmp_path: Path) -> Path:
    photo(tmp_path / "a.png")
    photo(tmp_path / "deep" / "b.png")
    photo(tmp_path / "not listed.png")
    return tmp_path


@pytest.mark.parametrize("file_column", ["file", "filename", "Image", "PATH", " name "])
@pytest.mark.parametrize("label_column", ["label", "Target", "class", "class_index", "INDEX"])
def test_labels_in_the_folder_are_read(two: Path, file_column: str, label_column: str) -> None:
    write(two / "labels.csv", f"author,{label_column},{file_column}", "me,3,deep/b.png", "", ' you , 12 ,"./a.png"')
    assert found(two) == {"a.png": 12, "deep/b.png": 3}


def test_labels_given_come_before_those_in_the_folder(two: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    write(two / "labels.csv", "file,label", "a.png,1")
    other = write(tmp_path_factory.mktemp("elsewhere") / "mine.csv", "file,label", "deep/b.png,2", f"{two / 'a.png'},3")
    assert found(two, labels=other) == {"a.png": 3, "deep/b.png": 2}


def test_labels_may_be_names(two: Path) -> None:
    write(two / "labels.csv", "file,label", 'a.png,"cat, tiger"', "deep/b.png,0")
    assert found(two, classes=["dog", "cat, tiger"]) == {"a.png": 1, "deep/b.png": 0}


def test_columns_with_two_meanings_are_read_in_the_documented_order(two: Path) -> None:
    write(two / "labels.csv", "index,name,file,label", "0,cat,a.png,5")
    assert found(two) == {"a.png": 5}


def test_a_spreadsheets_mark_does_not_hide_the_first_column(two: Path) -> None:
    (two / "labels.csv").write_bytes("\ufefffile,label\r\na.png,5\r\n".encode())
    assert found(two) == {"a.png": 5}


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["file,label", "a.png,1", "c.png,2"], r"labels\.csv, line 3: c\.png is not in .*: correct the path"),
        (["file,label", "../a.png,1"], r"line 2: \.\./a\.png is not in"),
        (["file,label", "deep,1"], r"line 2: deep is not in"),
        (["file,label", ",1"], r"line 2: a file without a name is not in"),
        (["file,label", "a.png,1", "", "./a.png,1"], r"line 4: a\.png is already on line 2: list every file once"),
        (["file,label", "a.png,cta"], r"line 2: 'cta' is not a class: did you mean 'cat'"),
        (["file,label", "a.png,xyz"], r"line 2: 'xyz' is not a class: use the index"),
        (["file,label", "a.png,"], r"line 2: '' is not a class"),
        (["file,label", "a.png,1.0"], r"line 2: '1\.0' is not a class"),
        (["file,label", "a.png,-1"], r"line 2: '-1' is not a class"),
        (["file,label", "a.png,4"], r"line 2: 4 is not a class: the model's are 0 to 3"),
        (["file,label", "a.png,crane"], r"line 2: 'crane' is the name of the classes \[2, 3\]: use the index"),
        (["file,label", "a.png"], r"line 2: has 1 of 2 columns: complete it"),
        (["file,label"], r"lists no files: give one line per file"),
        (["file,author", "a.png,me"], r"columns file, author: name one of them 'label' \(or target, class"),
        (["file;label", "a.png;1"], r"columns file;label: name one of them 'file'.* with commas"),
        (["a.png,1"], r"columns a\.png, 1: name one of them 'file'"),
        ([""], r"columns of an empty file"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(two: Path, lines: list[str], told: str) -> None:
    write(two / "labels.csv", *lines)
    with refused(told):
        find_photographs(two, classes=["dog", "cat", "crane", "crane"])


def test_files_outside_the_folder_are_refused(two: Path) -> None:
    write(two / "deep" / "labels.csv", "file,label", "../a.png,1")
    with refused(r"line 2: \.\./a\.png is not in .*deep: correct the path"):
        find_photographs(two / "deep")


def test_names_without_classes_are_refused(two: Path) -> None:
    write(two / "labels.csv", "file,label", "a.png,cat")
    with refused("line 2: 'cat' is not a class: use indices, or give classes"):
        find_photographs(two)


def test_number_that_is_the_name_of_another_class_is_refused(two: Path) -> None:
    write(two / "labels.csv", "file,label", "a.png,1")
    with refused("line 2: 1 is the index of one class and the name of another .*index 0.*: leave classes out"):
        find_photographs(two, classes=["1", "2"])
    assert found(two, classes=["0", "1"]) == found(two) == {"a.png": 1}


def test_labels_that_cannot_be_read_are_refused(two: Path) -> None:
    with refused("labels=nowhere.csv cannot be read"):
        find_photographs(two, labels="nowhere.csv")
    (two / "labels.csv").write_bytes(b"file,label\n\xff\xfe.png,1\n")
    with refused("labels.csv cannot be read .*UTF-8"):
        find_photographs(two)


# ── ImageNet's validation set ─────────────────────────────────────────────────────────────────────────────────────

RANKS = {1: 999, 2: 0, 3: 512, 7: 512}  # of validation photographs, by number


def validation_folder(folder: Path) -> Path:
    for number in RANKS:
        photo(folder / f"ILSVRC2012_val_{number:08d}.JPEG")
    return folder


def expected_ranks() -> dict[str, int]:
    return {f"ILSVRC2012_val_{number:08d}.JPEG": rank for number, rank in RANKS.items()}


def write_solution(path: Path, classes: int = 1000) -> Path:
    """Kaggle's list, in which the photographs beyond the folder's carry all the other classes."""
    ranks = {**{100 + rank: rank for rank in range(classes)}, **RANKS}
    lines = [f"ILSVRC2012_val_{number:08d},{WNIDS[rank]} 85 1 499 272 " for number, rank in ranks.items()]
    return write(path, "ImageId,PredictionString", *lines)


def write_devkit(folder: Path, classes: int = 1000) -> list[int]:
    """The devkit's files, with ILSVRC2012_IDs in another order than WNIDs; returns the ids by rank."""
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
    folder.mkdir(parents=True, exist_ok=True)
    savemat(folder / "meta.mat", {"synsets": synsets})
    truth = [ids[RANKS.get(number, 0) % classes] for number in range(1, 11)]
    write(folder / "ILSVRC2012_validation_ground_truth.txt", *map(str, truth))
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


@pytest.mark.parametrize("place", ["val", "val/data", ".", "data", "ILSVRC2012_devkit_t12/data"])
def test_devkit_tells_the_classes_through_wordnet_ids(tmp_path: Path, place: str) -> None:
    folder = validation_folder(tmp_path / "val")
    ids = write_devkit(tmp_path / place)
    assert ids != sorted(ids)
    assert found(folder) == expected_ranks()
    assert found(folder, classes=[f"class {rank}" for rank in range(1000)]) == expected_ranks()


def test_validation_photographs_alone_have_no_targets_and_a_warning_says_so(tmp_path: Path) -> None:
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
    with refused(r"cat\.png in .* is no validation photograph of ImageNet: move it"):
        find_photographs(folder)
    write(solution, "ImageId,PredictionString", "ILSVRC2012_val_00000001,n01440764 1", "ILSVRC2012_val_00000002,tench")
    (folder / "cat.png").unlink()
    with refused(r"LOC_val_solution\.csv, line 3: is not like .*: download"):
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
    with refused(r"meta\.mat has 992 classes in place of 1000: unpack the devkit again"):
        find_photographs(folder)
    (tmp_path / "meta.mat").write_bytes(b"no matlab")
    with refused(r"meta\.mat cannot be read .*unpack the devkit again"):
        find_photographs(folder)
    (tmp_path / "meta.mat").unlink()
    with refused(r"meta\.mat does not exist: put the devkit's meta\.mat beside"):
        find_photographs(folder)


# ── Subfolders ────────────────────────────────────────────────────────────────────────────────────────────────────


def folders(root: Path, *names: str) -> Path:
    for name in names:
        photo(root / name / "a.png")
    return root


def test_folders_of_whole_numbers_are_indices(tmp_path: Path) -> None:
    folders(tmp_path, "3", "10", "007", "10/deeper")
    photo(tmp_path / "3" / ".cache" / "b.png")
    (tmp_path / "empty").mkdir()
    expected = {"007/a.png": 7, "10/a.png": 10, "10/deeper/a.png": 10, "3/a.png": 3}
    assert found(tmp_path) == expected
    assert found(tmp_path, classes=[f"class {index}" for index in range(11)]) == expected
    with refused("the subfolder 10 of .*: 10 is not a class: the model's are 0 to 9"):
        find_photographs(tmp_path, classes=[f"class {index}" for index in range(10)])


def test_folders_of_class_names_are_those_classes(tmp_path: Path) -> None:
    folders(tmp_path, "tiger cat", "dog")
    assert found(tmp_path, classes=["zebra", "tiger cat", "dog"]) == {"dog/a.png": 2, "tiger cat/a.png": 1}
    with refused("the subfolder dog of .*: 'dog' is the name of the classes"):
        find_photographs(tmp_path, classes=["tiger cat", "dog", "dog"])


def test_folders_of_all_wordnet_ids_are_ranked(tmp_path: Path) -> None:
    for wnid in WNIDS:
        (tmp_path / wnid).mkdir()
    folders(tmp_path, WNIDS[998], WNIDS[4])
    assert found(tmp_path) == {f"{WNIDS[4]}/a.png": 4, f"{WNIDS[998]}/a.png": 998}


def test_folders_of_some_wordnet_ids_need_synsets(tmp_path: Path) -> None:
    root = folders(tmp_path / "a" / "b" / "val", WNIDS[998], WNIDS[4])
    with refused(r"has 2 of ImageNet's 1000 classes.*give synsets=FILE.*LOC_synset_mapping\.txt"):
        find_photographs(root)
    lines = [f"{wnid}\ttench" if rank % 2 else f"{wnid} tench, fish" for rank, wnid in enumerate(WNIDS)]
    expected = {f"{WNIDS[4]}/a.png": 4, f"{WNIDS[998]}/a.png": 998}
    assert found(root, synsets=write(tmp_path / "mine.txt", *lines)) == expected
    assert found(root, synsets=write(tmp_path / "mine.txt", *reversed(lines))) == {
        file: 999 - rank for file, rank in expected.items()
    }
    for place in (root, root.parent, root.parent.parent):
        path = write(place / "LOC_synset_mapping.txt", *lines)
        assert found(root) == found(root, classes=[f"class {rank}" for rank in range(1000)]) == expected
        path.unlink()


def test_folders_of_a_smaller_models_wordnet_ids_are_ranked(tmp_path: Path) -> None:
    write(tmp_path / "LOC_synset_mapping.txt", *WNIDS)
    root = folders(tmp_path / "imagenette", WNIDS[998], WNIDS[4])
    assert found(root, classes=["tench", "parachute"]) == {f"{WNIDS[4]}/a.png": 0, f"{WNIDS[998]}/a.png": 1}
    with refused("has 2 of ImageNet's 1000 classes"):
        find_photographs(root, classes=["tench", "parachute", "horn"])


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (WNIDS[:999], "has 999 lines with 999 WordNet ids: give 1000 lines"),
        ([*WNIDS[:999], WNIDS[0]], "has 1000 lines with 999 WordNet ids"),
        ([WNIDS[0], "", *WNIDS[1:]], "line 2: begins with '', which is no WordNet id"),
        (["tench", *WNIDS], "line 1: begins with 'tench', which is no WordNet id such as n01440764"),
        ([f"n{number:08d}" for number in range(1000)], f"subfolder {WNIDS[4]} of .* is not among the synsets"),
    ],
)
def test_synsets_that_cannot_be_used_are_refused(tmp_path: Path, lines: list[str], told: str) -> None:
    root = folders(tmp_path / "val", WNIDS[4])
    with refused(told):
        find_photographs(root, synsets=write(tmp_path / "synsets.txt", *lines))
    with refused("nowhere cannot be read"):
        find_photographs(root, synsets=tmp_path / "nowhere")


def test_other_folders_are_in_sorted_order_if_there_are_as_many_as_classes(tmp_path: Path) -> None:
    folders(tmp_path, "zoo", "Ape")
    (tmp_path / "bee").mkdir()
    assert found(tmp_path, classes=["x", "y", "z"]) == {"Ape/a.png": 0, "zoo/a.png": 2}
    with refused(r"has 3 subfolders \(Ape, bee, zoo\) and the model has 2 classes: give the folder whose"):
        find_photographs(tmp_path, classes=["x", "y"])
    with refused("and classes is not given: "):
        find_photographs(tmp_path)


# ── The embedded photographs ──────────────────────────────────────────────────────────────────────────────────────


@needs_photographs
def test_embedded_photographs_have_their_classes() -> None:
    from pixelcert.models.loading import photographs

    names = pc.load_model("resnet18", None, device="cpu").classes
    assert names is not None
    targets = found("embedded", classes=names)
    assert {file: names[target] for file, target in targets.items() if target is not None} == {
        "camera.png": "tripod",
        "chelsea.png": "tiger cat",
        "coffee.png": "espresso",
        "rocket.jpg": "missile",
    }
    assert [path.name for path in photographs()] == ["coffee.png", "chelsea.png"]
    assert all(path.is_file() for path in photographs(targets))
    with refused("labels and synsets cannot be given"):
        find_photographs("embedded", labels="labels.csv")
    with refused("classes has 2 names and the embedded photographs"):
        find_photographs("embedded", classes=["x", "y"])


@needs_photographs
def test_embedded_photographs_are_chosen_and_read() -> None:
    photographs = [one for one in find_photographs("embedded") if one.file != "camera.png"]
    selection = choose(photographs, "embedded", images=3)
    assert {chosen.file for chosen in selection.photographs} == {"chelsea.png", "coffee.png", "rocket.jpg"}
    assert read_chosen("embedded", selection.photographs[0], 32).shape == (3, 32, 32)


@needs_photographs
def test_grey_photograph_is_converted_with_a_warning() -> None:
    with pytest.warns(pc.PixelcertWarning, match=r"camera\.png is grey"):
        (chosen,) = choose([Photograph("camera.png", 872)], "embedded").photographs
    with pytest.warns(pc.PixelcertWarning, match=r"camera\.png is grey"):
        assert read_chosen("embedded", chosen, 32).shape == (3, 32, 32)


def test_folder_named_embedded_can_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo(tmp_path / "embedded" / "a.png")
    monkeypatch.chdir(tmp_path)
    assert found("./embedded") == {"a.png": None}


# ── Grids ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("m", [1, 2, 3])
def test_grid_is_laid_row_by_row(m: int) -> None:
    images = [torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(cell)) for cell in range(m * m)]
    grid = compose_grid(images, m)
    assert grid.shape == (3, 4 * m, 5 * m)
    for cell, image in enumerate(images):
        row, column = divmod(cell, m)
        assert torch.equal(grid[:, 4 * row : 4 * row + 4, 5 * column : 5 * column + 5], image)


def test_grid_of_the_wrong_images_is_refused() -> None:
    with refused("m=2 with 3 images: give m² images"):
        compose_grid([torch.zeros(3, 4, 4)] * 3, 2)
    with refused("m=0 with 0 images"):
        compose_grid([], 0)
    with refused(r"shapes \[\(3, 4, 4\), \(3, 4, 5\)\]: give all of them"):
        compose_grid([torch.zeros(3, 4, 4)] * 3 + [torch.zeros(3, 4, 5)], 2)
    with refused(r"shapes \[\(4, 4\)\]"):
        compose_grid([torch.zeros(4, 4)], 1)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(1, 6), st.integers(1, 2))
def test_seats_give_each_grid_distinct_classes_and_no_photograph_twice(targets: list[int], grids: int, m: int) -> None:
    seats = Seats(grids, m)
    for photograph, target in enumerate(targets):
        seats.add(photograph, target)
    before = seats.cells()
    used = [photograph for grid in before for photograph in grid]
    assert len(used) == len(set(used))
    assert seats.full == all(len(grid) == m * m for grid in before)
    for cells in before:
        assert len({targets[photograph] for photograph in cells}) == len(cells)
    if seats.classes == len(set(targets)) >= m * m:
        seats.fill(stream(0, Purpose.REUSE))
        assert seats.full
        for cells, begun in zip(seats.cells(), before, strict=True):
            assert cells[: len(begun)] == begun
            assert len({targets[photograph] for photograph in cells}) == len(cells) == m * m


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 5), st.integers(1, 2))
def test_more_grids_and_more_photographs_leave_the_first_grids_alone(targets: list[int], grids: int, m: int) -> None:
    few, many = Seats(grids, m), Seats(grids + 3, m)
    for photograph, target in enumerate(targets):
        few.add(photograph, target)
        many.add(photograph, target)
    if few.classes >= m * m:
        few.fill(stream(5, Purpose.REUSE))
        many.fill(stream(5, Purpose.REUSE))
    assert many.cells()[:grids] == few.cells()


def test_photographs_come_again_only_after_all_others() -> None:
    seats = Seats(10, 2)
    for photograph in range(8):
        seats.add(photograph, photograph)
    seats.fill(stream(0, Purpose.REUSE))
    for first in range(0, 10, 2):  # two grids use all eight
        assert sorted(seats.cells()[first] + seats.cells()[first + 1]) == list(range(8))
    assert len({frozenset(cells) for cells in seats.cells()}) > 2


def test_streams_stay_what_they_are() -> None:
    """A selection can be made again with any version of NumPy and of this library."""
    assert shuffled(stream(0, Purpose.ORDER), 8) == [3, 2, 1, 6, 0, 7, 4, 5]
    assert drawn(stream(0, Purpose.CELLS), 8, 4) == [1, 0, 2, 2, 2, 2, 1, 0]


@pytest.mark.parametrize("purpose", Purpose)
def test_streams_are_even(purpose: Purpose) -> None:
    firsts = Counter(shuffled(stream(seed, purpose), 4)[0] for seed in range(2000))
    assert all(420 < firsts[index] < 580 for index in range(4))  # 500 ± 4 standard deviations
    numbers = Counter(drawn(stream(-3, purpose), 2000, 4))
    assert all(420 < numbers[index] < 580 for index in range(4))


# ── Choosing ──────────────────────────────────────────────────────────────────────────────────────────────────────

PALETTE = [[r, g, b] for r in (0, 127, 255) for g in (0, 127, 255) for b in (0, 255)]  # 18 classes of colours


class ColourNet(nn.Module):
    """The class whose colour is nearest to the image's mean, the surer the nearer."""

    def __init__(self, strength: float = 200) -> None:
        super().__init__()
        self.colours = nn.Parameter(torch.tensor(PALETTE) / 255)
        self.strength = strength

    def forward(self, images: Tensor) -> Tensor:
        return -self.strength * (images.mean(dim=(2, 3))[:, None] - self.colours).square().sum(dim=2)


def colour_model(name: str = "colours", **options: float) -> pc.Classifier:
    return pc.Classifier(ColourNet(**options), (0, 0, 0), (1, 1, 1), name=name, size=8)


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 images, five of each colour."""
    folder = tmp_path_factory.mktemp("colours")
    for index in range(90):
        photo(folder / str(index % 18) / f"{index:02d}.png", PALETTE[index % 18])
    return folder


def unlabelled(photographs: Sequence[Photograph]) -> list[Photograph]:
    return [replace(photograph, target=None) for photograph in photographs]


def files(selection: Selection) -> list[str]:
    return [chosen.file for chosen in selection.photographs[: selection.images]]


def grid_files(selection: Selection) -> list[tuple[tuple[str, ...], int]]:
    return [(tuple(selection.photographs[i].file for i in grid.cells), grid.cell) for grid in selection.grids]


def test_without_filters_everything_readable_is_kept(colours: Path) -> None:
    photographs = find_photographs(colours)
    selection = choose(photographs, colours)
    assert sorted(files(selection)) == [photograph.file for photograph in photographs]
    assert files(selection) != sorted(files(selection))
    assert (selection.images, selection.examined, selection.passed) == (90, 90, 90)
    targets = {photograph.file: photograph.target for photograph in photographs}
    for chosen in selection.photographs:
        assert chosen == Chosen(
            chosen.file,
            sha256((colours / chosen.file).read_bytes()),
            targets[chosen.file],
            labelled=True,
            confidences={},
        )


def test_images_are_the_first_of_the_pool(colours: Path) -> None:
    photographs = find_photographs(colours)
    everything = choose(photographs, colours)
    for images in (1, 7, 90):
        selection = choose(photographs, colours, images=images)
        assert files(selection) == files(everything)[:images]
        assert (selection.images, selection.examined, selection.passed) == (images, images, images)


def test_seed_alone_decides(colours: Path) -> None:
    photographs = find_photographs(colours)
    chosen = [choose(photographs, colours, images=20, grids=5, seed=seed) for seed in (0, 0, 1, -1, 2**63 - 1)]
    assert chosen[0] == chosen[1] == choose(photographs[::-1], colours, images=20, grids=5)
    assert len({tuple(files(selection)) for selection in chosen}) == 4
    assert len({tuple(grid_files(selection)) for selection in chosen}) == 4
    assert len({tuple(grid.cell for grid in selection.grids) for selection in chosen}) == 4


@settings(max_examples=15, deadline=None)
@given(images=st.integers(0, 30), grids=st.integers(1, 12), m=st.integers(1, 3))
def test_images_and_grids_do_not_depend_on_each_other(colours: Path, images: int, grids: int, m: int) -> None:
    photographs = find_photographs(colours)
    both = choose(photographs, colours, images=images, grids=grids, m=m)
    assert files(both) == files(choose(photographs, colours))[:images]
    assert grid_files(both) == grid_files(choose(photographs, colours, images=0, grids=grids, m=m))
    assert grid_files(both) == grid_files(choose(photographs, colours, grids=grids + 2, m=m))[:grids]


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("labelled", [True, False])
def test_grids_are_of_distinct_classes(colours: Path, m: int, labelled: bool) -> None:
    photographs = find_photographs(colours)
    filters = () if labelled else (colour_model(),)
    given = photographs if labelled else unlabelled(photographs)
    selection = choose(given, colours, filters=filters, images=0, grids=30, m=m)
    assert len(selection.grids) == 30
    truth = {photograph.file: photograph.target for photograph in photographs}
    times: Counter[int] = Counter()
    for grid in selection.grids:
        targets = [selection.photographs[index].target for index in grid.cells]
        assert targets == [truth[selection.photographs[index].file] for index in grid.cells]
        assert len(set(targets)) == len(targets) == m * m
        times.update(grid.cells)
    assert {grid.cell for grid in selection.grids} == set(range(m * m))
    assert all(chosen.labelled == labelled for chosen in selection.photographs)
    assert set(times) == set(range(len(selection.photographs))), "nothing is kept that is not used"
    assert max(times.values()) - min(times.values()) <= 2, "all are used about equally"


def test_photographs_are_used_once_while_there_are_enough(colours: Path) -> None:
    selection = choose(find_photographs(colours), colours, images=0, grids=9, m=3)
    used = [index for grid in selection.grids for index in grid.cells]
    assert len(used) == len(set(used)) == 81


@pytest.fixture(scope="module")
def patterns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 coloured patterns, of which three files cannot be read."""
    folder, random = tmp_path_factory.mktemp("patterns"), np.random.default_rng(0)
    for index in range(40):
        blocks = np.kron(random.integers(0, 256, (4, 4, 3)), np.ones((SIZE // 4, SIZE // 4, 1)))
        Image.fromarray(blocks.astype(np.uint8)).save(folder / f"{index:02d}.png")
    for index, content in ((11, b""), (5, b"no image"), (30, (folder / "30.png").read_bytes()[:200])):
        (folder / f"{index:02d}.png").write_bytes(content)
    return folder


UNREADABLE = ("05.png", "11.png", "30.png")


@pytest.fixture(scope="module")
def networks() -> list[pc.Classifier]:
    """Two networks that agree often, and not always."""
    first, second = small_model("resnet"), small_model("resnet")
    second.name = "changed resnet"
    with torch.no_grad():
        for parameter in second.net.parameters():
            parameter += (
                0.05
                * parameter.std().nan_to_num()
                * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
            )
    return [first, second]


Predictions = Mapping[str, list[tuple[int, float]]]


@pytest.fixture(scope="module")
def predictions(patterns: Path, networks: list[pc.Classifier]) -> Predictions:
    """What each network says of each readable pattern, one by one."""
    paths = [path for path in sorted(patterns.iterdir()) if path.name not in UNREADABLE]
    return {path.name: [model.predict(pc.load_image(path, SIZE)) for model in networks] for path in paths}


def labelled_patterns(patterns: Path, predictions: Predictions) -> list[Photograph]:
    """Labels that the networks get right, wrong, and that are not given, in turn."""
    photographs = []
    for number, path in enumerate(sorted(patterns.iterdir())):
        answer = predictions.get(path.name, [(0, 0.0)])[0][0]
        photographs.append(Photograph(path.name, (answer, answer, 9 - answer, None)[number % 4]))
    return photographs


@pytest.mark.parametrize("used", [[0], [1], [0, 1], [1, 0]])
@pytest.mark.parametrize("confidence", [0, 0.6, 0.75])
@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_filter_keeps_what_every_model_gets_right_with_confidence(
    patterns: Path,
    networks: list[pc.Classifier],
    predictions: Predictions,
    used: list[int],
    confidence: float,
    batch_size: int,
) -> None:
    expected = {}
    photographs = labelled_patterns(patterns, predictions)
    for photograph in photographs:
        answers = [predictions[photograph.file][index] for index in used if photograph.file in predictions]
        classes = {answer for answer, _ in answers} | ({photograph.target} - {None})
        if answers and len(classes) == 1 and min(sure for _, sure in answers) >= confidence:
            expected[photograph.file] = (answers[0][0], photograph.target is not None, [sure for _, sure in answers])
    filters = [networks[index] for index in used]
    selection = choose(photographs, patterns, filters=filters, confidence=confidence, batch_size=batch_size)
    assert {chosen.file for chosen in selection.photographs} == set(expected)
    assert 0 < len(expected) < 37
    for chosen in selection.photographs:
        target, labelled, sure = expected[chosen.file]
        assert (chosen.target, chosen.labelled) == (target, labelled)
        assert list(chosen.confidences) == [model.name for model in filters]
        assert list(chosen.confidences.values()) == pytest.approx(sure, abs=1e-5)
    assert (selection.examined, selection.passed) == (40, len(expected))
    assert selection.settings.filters == {model.name: model.weights_hash for model in filters}


@pytest.mark.parametrize("images", [1, 5, 9])
def test_choice_does_not_depend_on_the_batch_size(
    patterns: Path, networks: list[pc.Classifier], predictions: Predictions, images: int
) -> None:
    options = {"filters": networks, "confidence": 0.6, "images": images, "grids": 2, "m": 1}
    photographs = labelled_patterns(patterns, predictions)
    chosen = [choose(photographs, patterns, batch_size=size, **options) for size in (1, 2, 8, 40)]  # type: ignore[arg-type]
    for selection in chosen:
        assert files(selection) == files(chosen[0])
        assert selection.grids == chosen[0].grids
        assert (selection.examined, selection.passed) == (chosen[0].examined, chosen[0].passed)
        assert selection.unreadable == chosen[0].unreadable
    assert chosen[0].passed == max(images, 2)
    assert chosen[0].examined < 40


def test_each_filter_sees_photographs_at_its_own_size(tmp_path: Path) -> None:
    seen: list[tuple[str, tuple[int, ...]]] = []

    class Watching(ColourNet):
        def forward(self, images: Tensor) -> Tensor:
            seen.append((self.label, tuple(images.shape)))
            return super().forward(images)

    models = []
    for size in (8, 16):
        net = Watching()
        net.label = f"at {size}"
        classes = [str(colour) for colour in PALETTE]
        models.append(pc.Classifier(net, (0, 0, 0), (1, 1, 1), name=net.label, size=size, classes=classes))
    photo(tmp_path / "a.png", PALETTE[3], size=40)
    selection = choose(find_photographs(tmp_path), tmp_path, filters=models)
    assert selection.photographs[0].target == 3
    assert seen == [("at 8", (1, 3, 8, 8)), ("at 16", (1, 3, 16, 16))]


def test_unreadable_files_are_left_out_and_listed_with_their_cause(patterns: Path) -> None:
    photographs = [*find_photographs(patterns), Photograph("gone.png", None)]
    selection = choose(photographs, patterns)
    assert {chosen.file for chosen in selection.photographs}.isdisjoint(UNREADABLE)
    assert (selection.examined, selection.passed) == (41, 37)
    assert sorted(selection.unreadable) == [*UNREADABLE, "gone.png"]
    assert selection.unreadable["05.png"].startswith("05.png is not an image that Pillow can read")
    assert selection.unreadable["30.png"].startswith("30.png is damaged")
    assert selection.unreadable["gone.png"].startswith("gone.png cannot be read (No such file")
    assert str(patterns) not in "".join(selection.unreadable.values()), "causes name no machine's folders"


def test_progress_counts_to_what_is_wanted(colours: Path) -> None:
    photographs = find_photographs(colours)
    calls: list[tuple[int, int]] = []
    choose(photographs, colours, images=5, grids=2, m=1, progress=lambda *call: calls.append(call))
    assert calls == [(done, 5) for done in range(1, 6)]
    calls.clear()
    choose(photographs, colours, progress=lambda *call: calls.append(call))
    assert calls == [(done, 90) for done in range(1, 91)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"images": -1}, "images=-1 is not a whole number of 0 or more"),
        ({"images": 2.5}, "images=2.5 is not a whole number"),
        ({"images": 91}, "images=91 of 90 photographs: ask for fewer"),
        ({"grids": -1}, "grids=-1 is not"),
        ({"m": 0}, "m=0 is not a whole number of 1 or more"),
        ({"batch_size": 0}, "batch_size=0 is not"),
        ({"seed": 2**63}, "seed=9223372036854775808 is not"),
        ({"confidence": 1.01}, r"confidence=1\.01 is outside \[0, 1\]"),
        ({"confidence": float("nan")}, r"confidence=nan is outside"),
        ({"images": 0}, "images=0 and grids=0 choose nothing"),
        (
            {"grids": 1, "m": 5},
            "grids=1 with m=5 need 25 distinct classes, and the photographs have 18: use a smaller m",
        ),
        ({"folder": "nowhere"}, "folder=nowhere does not exist"),
        ({"photographs": []}, "photographs is empty"),
        ({"photographs": [Photograph("a", 1)] * 2}, "photographs has a 2 times"),
        (
            {"photographs": [Photograph("a", 1), Photograph("b", None)], "grids": 1, "m": 1},
            "grids=1 need distinct classes",
        ),
        (
            {"photographs": [Photograph("a", 18)], "filters": ["colours"]},
            "a has the target 18 and the filter 'colours'",
        ),
        ({"filters": ["colours", "colours"]}, "filters has 'colours' twice: name them apart"),
        ({"filters": ["grey"]}, "filters has 'grey', which takes 1 channels: use models of RGB images"),
    ],
)
def test_arguments_without_a_meaning_are_refused_before_any_file_is_read(
    colours: Path, options: dict[str, object], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    grey = pc.Classifier(nn.Flatten(), (0,), (1,), name="grey", size=2)
    models = {"grey": grey, "colours": colour_model()}
    given: dict[str, object] = {"photographs": find_photographs(colours), "folder": colours, **options}
    given["filters"] = [models[str(name)] for name in given.get("filters", ())]  # type: ignore[attr-defined]
    monkeypatch.setattr("pixelcert.photographs.choosing.read_file", lambda *_: pytest.fail("a file was read"))
    with refused(told):
        choose(**given)  # type: ignore[arg-type]


def test_whole_numbers_of_numpy_are_taken(colours: Path, tmp_path: Path) -> None:
    photographs = find_photographs(colours)
    selection = choose(photographs, colours, images=np.int64(3), grids=np.int32(2), seed=np.uint8(4))  # type: ignore[arg-type]
    assert selection == choose(photographs, colours, images=3, grids=2, seed=4)
    assert Selection.load(selection.save(tmp_path / "a.json")) == selection


def test_too_few_that_pass_are_refused_with_their_number(patterns: Path, colours: Path) -> None:
    with refused(r"images=38: only 37 of 40 photographs pass \(3 cannot be read\): repair files, ask for fewer images"):
        choose(find_photographs(patterns), patterns, images=38)
    weak = colour_model("weak", strength=0.1)
    told = (
        r"only 0 of 90 photographs pass, with confidence 0\.99 in the right class by weak: lower confidence, use other"
    )
    with refused(rf"images=3: {told}"):
        choose(find_photographs(colours), colours, filters=[weak], images=3)
    with refused(rf"images=None: {told}"):
        choose(find_photographs(colours), colours, filters=[weak])


def test_too_few_classes_that_pass_are_refused_with_their_number(colours: Path) -> None:
    wrong = [
        replace(photograph, target=photograph.target if photograph.target in (1, 4, 7) else 0)
        for photograph in find_photographs(colours)
        if photograph.target is not None
    ]  # four classes are named, all of which are there, but none of class 2, 3, 5, … is what it is said to be
    assert len(choose(wrong, colours, filters=[colour_model()], grids=2, m=2).grids) == 2
    with refused("grids=1 with m=2 need 4 distinct classes: only 15 of 85 photographs pass, .*, of 3 classes: lower"):
        choose([one for one in wrong if not one.file.startswith("0/")], colours, filters=[colour_model()], grids=1)


# ── Real weights ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(not (SHARED / "weights").is_dir(), reason=f"no real weights: {SHARED / 'weights'} is not there")
@pytest.mark.skipif(not (SHARED / "images").is_dir(), reason=f"no photographs: {SHARED / 'images'} is not there")
def test_real_resnet18_filters_photographs() -> None:
    model = pc.load_model("resnet18", SHARED / "weights" / "resnet18.safetensors", device="cpu")
    photographs = find_photographs(SHARED / "images", classes=model.classes)
    assert len(photographs) == 400
    selection = choose(photographs, SHARED / "images", filters=[model], images=6, grids=2, seed=1)
    assert selection.passed == 8
    targets = {photograph.file: photograph.target for photograph in photographs}
    for chosen in selection.photographs:
        answer, sure = model.predict(read_chosen(SHARED / "images", chosen))
        assert answer == chosen.target == targets[chosen.file]
        assert sure >= 0.99
        assert chosen.confidences["resnet18"] == pytest.approx(sure, abs=1e-5)
    ordered = [photographs[index] for index in shuffled(stream(1, Purpose.ORDER), 400)][: selection.examined]
    answers = {one.file: model.predict(pc.load_image(SHARED / "images" / one.file)) for one in ordered}
    passing = [one.file for one in ordered if answers[one.file][0] == one.target and answers[one.file][1] >= 0.99]
    assert passing == [chosen.file for chosen in selection.photographs]


# ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def saved(patterns: Path, networks: list[pc.Classifier], tmp_path: Path) -> tuple[Selection, Path]:
    options = {"filters": networks, "confidence": 0.5, "grids": 3, "m": 1, "seed": 6}
    selection = choose(unlabelled(find_photographs(patterns)), patterns, **options)  # type: ignore[arg-type]
    return selection, selection.save(tmp_path / "new" / "selection.json")


def test_saved_selection_is_loaded_as_it_was(saved: tuple[Selection, Path], tmp_path: Path) -> None:
    selection, path = saved
    assert selection.unreadable
    loaded = Selection.load(str(path))
    assert loaded == selection
    assert loaded.save(tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_file_is_readable_and_names_no_folder(saved: tuple[Selection, Path], patterns: Path) -> None:
    selection, path = saved
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["kind"] == "pixelcert selection"
    assert content["version"] == 1
    assert "photographs" in content["about"]
    assert content["settings"]["seed"] == 6
    assert content["photographs"][0]["file"] == selection.photographs[0].file
    assert content["grids"][0] == {"cells": [0], "cell": 0}
    assert patterns.name not in path.read_text(encoding="utf-8")


def test_odd_file_names_survive(tmp_path: Path) -> None:
    names = ['é "quoted".png', "日本.png", "a,b.png"]
    if os.name == "posix":
        names.append(os.fsdecode(b"\xff.png"))  # no UTF-8, which Linux allows
    for name in names:
        photo(tmp_path / "photos" / name)
    selection = choose(find_photographs(tmp_path / "photos"), tmp_path / "photos")
    assert Selection.load(selection.save(tmp_path / "a.json")) == selection


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_change_to_the_contents_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    chosen = Chosen("a.png", "ab" * 32, 3, labelled=True, confidences={"net": 0.995})
    whole = Selection(SETTINGS, (chosen, replace(chosen, file="b.png")), 1, (Grid((1,), 0),), 9, 3, {"c.png": "cut"})
    path = whole.save(tmp_path_factory.mktemp("changed") / "a.json")
    text = path.read_bytes()
    position = data.draw(st.integers(0, len(text) - 2))
    character = data.draw(st.integers(0, 255))
    path.write_bytes(text[:position] + bytes([character]) + text[position + 1 :])
    with contextlib.suppress(pc.ArgumentError):
        assert Selection.load(path) == whole  # blanks between values may change
    path.write_bytes(text[:position])
    with refused("damaged, cut short, or no JSON"):
        Selection.load(path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "votes"}, "is not a pixelcert selection: give a file that Selection.save wrote"),
        ({"version": 2}, "layout version 2 and this pixelcert reads up to 1: upgrade"),
        ({"version": None}, "layout version None"),
        ({"images": 2}, "was changed or damaged: its contents do not match their checksum. Choose again"),
        ({"checksum": None}, "do not match their checksum"),
        ({"extra": 1}, "do not match their checksum"),
    ],
)
def test_foreign_files_are_refused(saved: tuple[Selection, Path], change: dict[str, object], told: str) -> None:
    _, path = saved
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}))
    with refused(told):
        Selection.load(path)


def test_file_that_is_no_selection_is_refused(tmp_path: Path) -> None:
    with refused("nowhere cannot be read .*check the path"):
        Selection.load(tmp_path / "nowhere")
    with refused("is not a pixelcert selection"):
        Selection.load(write(tmp_path / "list.json", "[]"))


SETTINGS = Request(seed=0, confidence=0.99, images=None, grids=1, m=1, filters={})


def test_selection_that_contradicts_itself_is_refused() -> None:
    chosen = Chosen("a.png", "", 3, labelled=True, confidences={})
    with refused("images=2 with 1 photographs"):
        Selection(SETTINGS, (chosen,), 2, (), 1, 1, {})
    for grid in (Grid((1,), 0), Grid((0,), 1), Grid((0, 0), 0), Grid((-1,), 0)):
        with refused("grids has Grid.*give m² = 1 indices of the 1 photographs"):
            Selection(SETTINGS, (chosen,), 1, (grid,), 1, 1, {})


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def one(tmp_path: Path) -> Callable[[], Chosen]:
    photo(tmp_path / "deep" / "a.png", (1, 2, 3), size=50)
    return lambda: choose([Photograph("deep/a.png", 3)], tmp_path).photographs[0]


def test_chosen_photograph_is_read_as_load_image_reads_it(one: Callable[[], Chosen], tmp_path: Path) -> None:
    for size in (224, 16, None):
        assert torch.equal(read_chosen(tmp_path, one(), size), pc.load_image(tmp_path / "deep" / "a.png", size))


def test_changed_file_is_refused(one: Callable[[], Chosen], tmp_path: Path) -> None:
    chosen = one()
    photo(tmp_path / "deep" / "a.png", (1, 2, 4), size=50)
    with refused(
        r"deep/a\.png in folder=.* has changed since it was chosen .*: put the old file back, or choose again"
    ):
        read_chosen(tmp_path, chosen, 32)
    (tmp_path / "deep" / "a.png").unlink()
    with pytest.raises(pc.ImageError, match=r"deep/a\.png cannot be read \(No such file.*check that the folder"):
        read_chosen(tmp_path, chosen, 32)


def test_open_files_are_read_like_paths(tmp_path: Path) -> None:
    path = photo(tmp_path / "a.png", size=30)
    with path.open("rb") as file:
        assert torch.equal(pc.load_image(file, 16), pc.load_image(path, 16))
    write(path, "no image")
    with path.open("rb") as file, pytest.raises(pc.ImageError, match=re.escape(f"{path} is not an image")):
        pc.load_image(file)
