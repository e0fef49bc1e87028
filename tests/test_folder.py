"""Folders of photographs: every layout, lists of labels, and the embedded photographs."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from small_photographs import WNIDS, found, photo, refused, write

import pixelcert as pc
from pixelcert.photographs import (
    Photograph,
    find_photographs,
)

needs_photographs = pytest.mark.skipif(
    find_spec("skimage") is None, reason="scikit-image, of pixelcert[demo], has the photographs"
)


# ── Plain folders ──────────────────────────────────────────────────────────────────────────────────────────────────


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


# ── Lists of labels ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def two(tmp_path: Path) -> Path:
    photo(tmp_path / "a.png")
    photo(tmp_path / "deep" / "b.png")
    photo(tmp_path / "not listed.png")
    return tmp_path


@pytest.mark.parametrize(
    ("file_column", "label_column"),
    [("file", "Target"), ("filename", "label"), ("Image", "class"), ("PATH", "INDEX"), (" name ", "class_index")],
)
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
        (["file,label", "a.png,4"], r"line 2: target=4 is out of range: the model has classes 0 to 3"),
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


# ── Subfolders ─────────────────────────────────────────────────────────────────────────────────────────────────────


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
    with refused("the subfolder 10 of .*: target=10 is out of range: the model has classes 0 to 9"):
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
        ([WNIDS[0], "", *WNIDS[1:]], "line 2: begins with '', which is not a WordNet id"),
        (["tench", *WNIDS], "line 1: begins with 'tench', which is not a WordNet id such as n01440764"),
        (
            [f"n{number:08d}" for number in range(1000)],
            f"val names {WNIDS[4]}, which is not among the synsets: give the model's synsets",
        ),
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


# ── The embedded photographs ───────────────────────────────────────────────────────────────────────────────────────


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
    with refused("labels and synsets do not apply to the embedded photographs: leave them out"):
        find_photographs("embedded", labels="labels.csv")
    with refused("classes has 2 names and the embedded photographs"):
        find_photographs("embedded", classes=["x", "y"])


def test_folder_named_embedded_can_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo(tmp_path / "embedded" / "a.png")
    monkeypatch.chdir(tmp_path)
    assert found("./embedded") == {"a.png": None}
