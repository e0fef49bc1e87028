"""Selections: grids of distinct classes, random streams that stay what they are, files, and reading again."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_photographs import PALETTE, colour_model, photo, refused, write
from thoroughness import examples

import pixelcert as pc
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

# ── Grids ──────────────────────────────────────────────────────────────────────────────────────────────────────────


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


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(1, 6), st.integers(1, 2))
def test_seats_give_each_grid_distinct_classes_and_no_photograph_twice(targets: list[int], grids: int, m: int) -> None:
    seats = Seats(grids, m)
    for target in targets:
        seats.add(target)
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


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 5), st.integers(1, 2))
def test_more_grids_and_more_photographs_leave_the_first_grids_alone(targets: list[int], grids: int, m: int) -> None:
    few, many = Seats(grids, m), Seats(grids + 3, m)
    for target in targets:
        few.add(target)
        many.add(target)
    if few.classes >= m * m:
        few.fill(stream(5, Purpose.REUSE))
        many.fill(stream(5, Purpose.REUSE))
    assert many.cells()[:grids] == few.cells()


def test_photographs_come_again_only_after_all_others() -> None:
    seats = Seats(10, 2)
    for photograph in range(8):
        seats.add(photograph)
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
    firsts = Counter(shuffled(stream(seed, purpose), 4)[0] for seed in range(1000))
    assert all(195 < firsts[index] < 305 for index in range(4))  # 250 ± 4 standard deviations
    numbers = Counter(drawn(stream(-3, purpose), 2000, 4))
    assert all(420 < numbers[index] < 580 for index in range(4))


# ── Files ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Selection, Path]:
    """A selection of three coloured photographs, of which one file cannot be read."""
    for target in (1, 7):
        photo(tmp_path / "colours" / f"{target}.png", PALETTE[target])
    write(tmp_path / "colours" / "broken.png", "no image")
    options = {"filters": [colour_model()], "confidence": 0.5, "grids": 2, "m": 1, "seed": 6}
    selection = choose(find_photographs(tmp_path / "colours"), tmp_path / "colours", **options)  # type: ignore[arg-type]
    return selection, selection.save(tmp_path / "new" / "selection.json")


def test_saved_selection_is_loaded_as_it_was(saved: tuple[Selection, Path], tmp_path: Path) -> None:
    selection, path = saved
    assert selection.unreadable
    loaded = Selection.load(str(path))
    assert loaded == selection
    assert loaded.save(tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_file_is_readable_and_names_no_folder(saved: tuple[Selection, Path], tmp_path: Path) -> None:
    selection, path = saved
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["kind"] == "pixelcert selection"
    assert content["version"] == 1
    assert "photographs" in content["about"]
    assert content["settings"]["seed"] == 6
    assert content["photographs"][0]["file"] == selection.photographs[0].file
    assert content["grids"][0] == {"cells": [0], "cell": 0}
    assert tmp_path.name not in path.read_text(encoding="utf-8")


WRITTEN_BY_0_1_0 = (
    r'{"kind": "pixelcert selection", "version": 1, '
    r'"about": "The photographs of a study. The first `images` of `photographs` are its images. Every grid has '
    r"the photographs `cells` (counted from 0, laid from left to right, then from top to bottom) and the "
    r'target of its cell `cell`. `digest` is the SHA-256 of a file.", '
    r'"settings": {"seed": 6, "confidence": 0.99, "images": null, "grids": 1, "m": 1, "filters": {"net": '
    r'"ab"}}, '
    r'"photographs": [{"file": "a.png", "digest": "cd", "target": 3, "labelled": true, "confidences": {"net": '
    r"0.995}}, "
    r'{"file": "\u00e9.png", "digest": "ef", "target": null, "labelled": false, "confidences": {}}], '
    r'"images": 1, "grids": [{"cells": [1], "cell": 0}], "examined": 9, "passed": 3, "unreadable": {"c.png": '
    r'"c.png is damaged"}, '
    r'"checksum": "8eff9c4c6e4cc8b51eb2f84d38cf4cbf0b9337b1c51f4ae9a93216efed9cbf5e"}'
)


def test_selection_of_an_older_version_is_loaded(tmp_path: Path) -> None:
    """Version 0.1.0 wrote its checksum over the keys in their order; now they are sorted first."""
    path = tmp_path / "old.json"
    path.write_text(json.dumps(json.loads(WRITTEN_BY_0_1_0), indent=1))
    request = Request(6, 0.99, images=None, grids=1, m=1, filters={"net": "ab"})
    chosen = Chosen("a.png", "cd", 3, labelled=True, confidences={"net": 0.995})
    other = Chosen("é.png", "ef", None, labelled=False, confidences={})
    expected = Selection(request, (chosen, other), 1, (Grid((1,), 0),), 9, 3, {"c.png": "c.png is damaged"})
    assert Selection.load(path) == expected
    path.write_text(path.read_text().replace("0.995", "0.996"))
    with refused("was changed or damaged"):
        Selection.load(path)


def test_odd_file_names_survive(tmp_path: Path) -> None:
    names = ['é "quoted".png', "日本.png", "a,b.png"]
    if os.name == "posix":
        names.append(os.fsdecode(b"\xff.png"))  # no UTF-8, which Linux allows
    for name in names:
        photo(tmp_path / "photos" / name)
    selection = choose(find_photographs(tmp_path / "photos"), tmp_path / "photos")
    assert Selection.load(selection.save(tmp_path / "a.json")) == selection


@settings(max_examples=examples(40))
@given(st.data())
def test_any_change_to_the_contents_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    chosen = Chosen("a.png", "ab" * 32, 3, labelled=True, confidences={"net": 0.995})
    whole = Selection(REQUEST, (chosen, replace(chosen, file="b.png")), 1, (Grid((1,), 0),), 9, 3, {"c.png": "cut"})
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
        ({"kind": "votes"}, "is not a pixelcert selection: give a file that pixelcert wrote"),
        ({"version": 2}, "layout version 2 and this pixelcert reads up to 1: upgrade"),
        ({"version": None}, "layout version None"),
        ({"images": 1}, "was changed or damaged: its contents do not match their checksum: choose again"),
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


REQUEST = Request(seed=0, confidence=0.99, images=None, grids=1, m=1, filters={})


def test_selection_that_contradicts_itself_is_refused() -> None:
    chosen = Chosen("a.png", "", 3, labelled=True, confidences={})
    with refused("images=2 with 1 photographs"):
        Selection(REQUEST, (chosen,), 2, (), 1, 1, {})
    for grid in (Grid((1,), 0), Grid((0,), 1), Grid((0, 0), 0), Grid((-1,), 0)):
        with refused("grids has Grid.*give m² = 1 indices of the 1 photographs"):
            Selection(REQUEST, (chosen,), 1, (grid,), 1, 1, {})


# ── Reading ────────────────────────────────────────────────────────────────────────────────────────────────────────


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
