"""Choosing: at random, by the seed only, among photographs that every filter gets right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from small_photographs import PALETTE, ColourNet, colour_model, photo, refused
from thoroughness import examples
from torch import Tensor, nn

import pixelcert as pc
from pixelcert.basics.files import sha256
from pixelcert.photographs import (
    Chosen,
    Photograph,
    Selection,
    choose,
    find_photographs,
    read_chosen,
)
from pixelcert.photographs.selection import Purpose, shuffled, stream

SHARED = Path(__file__).resolve().parents[2] / "shared"
needs_photographs = pytest.mark.skipif(
    find_spec("skimage") is None, reason="scikit-image, of pixelcert[demo], has the photographs"
)


# ── Order, filters and grids ───────────────────────────────────────────────────────────────────────────────────────


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


def test_without_filters_every_readable_photograph_is_kept(colours: Path) -> None:
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


def test_images_are_the_first_of_the_pool(colours: Path, everything: list[str]) -> None:
    photographs = find_photographs(colours)
    for images in (1, 7, 90):
        selection = choose(photographs, colours, images=images)
        assert files(selection) == everything[:images]
        assert (selection.images, selection.examined, selection.passed) == (images, images, images)


def test_only_the_seed_decides(colours: Path) -> None:
    photographs = find_photographs(colours)
    chosen = [choose(photographs, colours, images=20, grids=5, seed=seed) for seed in (0, 0, 1, -1, 2**63 - 1)]
    assert chosen[0] == chosen[1] == choose(photographs[::-1], colours, images=20, grids=5)
    assert len({tuple(files(selection)) for selection in chosen}) == 4
    assert len({tuple(grid_files(selection)) for selection in chosen}) == 4
    assert len({tuple(grid.cell for grid in selection.grids) for selection in chosen}) == 4


@pytest.fixture(scope="module")
def everything(colours: Path) -> list[str]:
    """The colours in the order of seed 0."""
    return files(choose(find_photographs(colours), colours))


@settings(max_examples=examples(15))
@given(images=st.integers(0, 30), grids=st.integers(1, 12), m=st.integers(1, 3))
def test_images_and_grids_do_not_depend_on_each_other(
    colours: Path, everything: list[str], images: int, grids: int, m: int
) -> None:
    photographs = find_photographs(colours)
    both = choose(photographs, colours, images=images, grids=grids, m=m)
    assert files(both) == everything[:images]
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
        Image.fromarray(random.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)).save(folder / f"{index:02d}.png")
    for index, content in ((11, b""), (5, b"no image"), (30, (folder / "30.png").read_bytes()[:200])):
        (folder / f"{index:02d}.png").write_bytes(content)
    return folder


UNREADABLE = ("05.png", "11.png", "30.png")
SIZE = 8


@pytest.fixture(scope="module")
def networks() -> list[pc.Classifier]:
    """Two networks that agree often, and not always."""
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE**2, 10)) for _ in range(2)]
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        weights = 0.4 * torch.randn(nets[0][1].weight.shape, generator=random)
        nets[0][1].weight.copy_(weights)
        nets[1][1].weight.copy_(weights + 0.2 * torch.randn(weights.shape, generator=random))
    names = ("net", "changed net")
    return [
        pc.Classifier(net, (0.5,) * 3, (0.25,) * 3, name=name, size=SIZE) for net, name in zip(nets, names, strict=True)
    ]


Predictions = Mapping[str, list[tuple[int, float]]]


@pytest.fixture(scope="module")
def predictions(patterns: Path, networks: list[pc.Classifier]) -> Predictions:
    """Predict each readable pattern with each network, one by one."""
    paths = [path for path in sorted(patterns.iterdir()) if path.name not in UNREADABLE]
    return {path.name: [model.predict(pc.load_image(path, SIZE)) for model in networks] for path in paths}


def labelled_patterns(patterns: Path, predictions: Predictions) -> list[Photograph]:
    """Label the patterns as the first network does, otherwise, or not at all, in turn."""
    photographs = []
    for number, path in enumerate(sorted(patterns.iterdir())):
        answer = predictions.get(path.name, [(0, 0.0)])[0][0]
        photographs.append(Photograph(path.name, (answer, answer, 9 - answer, None)[number % 4]))
    return photographs


@pytest.mark.parametrize(
    ("used", "confidence", "batch_size"),
    [
        *(([0], 0, 1), ([0], 0.6, 7), ([0], 0.75, 100)),
        *(([1], 0, 7), ([1], 0.6, 100), ([1], 0.75, 1)),
        *(([0, 1], 0, 100), ([0, 1], 0.6, 1), ([0, 1], 0.75, 7)),
        *(([1, 0], 0, 1), ([1, 0], 0.6, 7), ([1, 0], 0.75, 100)),
    ],
)
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
    assert selection.request.filters == {model.name: model.weights_hash for model in filters}


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
        ({"images": -1}, "images=-1 is not a whole number from 0"),
        ({"images": 2.5}, "images=2.5 is not a whole number"),
        ({"images": 91}, "images=91 of 90 photographs: ask for fewer"),
        ({"grids": -1}, "grids=-1 is not"),
        ({"m": 0}, "m=0 is not a whole number from 1: use one such as 2"),
        ({"batch_size": 0}, "batch_size=0 is not"),
        ({"seed": 2**63}, "seed=9223372036854775808 is not"),
        ({"confidence": 1.01}, r"confidence=1\.01 is outside \[0, 1\]"),
        ({"confidence": float("nan")}, r"confidence=nan is outside"),
        ({"confidence": "0.9"}, r"confidence='0\.9' is of type str: give a number such as 0\.99"),
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
        ({"filters": ["colours", "colours"]}, "filters has 'colours' 2 times: give each its own name"),
        ({"filters": ["grey"]}, "filters: 'grey' takes 1 channels: use models of RGB images"),
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


# ── Real photographs and weights ───────────────────────────────────────────────────────────────────────────────────


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


@pytest.mark.skipif(not (SHARED / "weights").is_dir(), reason=f"no real weights: {SHARED / 'weights'} is not there")
@pytest.mark.skipif(not (SHARED / "images").is_dir(), reason=f"no photographs: {SHARED / 'images'} is not there")
def test_real_resnet18_filters_photographs() -> None:
    folder = SHARED / "images"
    model = pc.load_model("resnet18", SHARED / "weights" / "resnet18.safetensors", device="cpu")
    photographs = find_photographs(folder, classes=model.classes)
    assert len(photographs) == 400
    selection = choose(photographs, folder, filters=[model], images=3, grids=1, seed=17, batch_size=5)
    assert selection.passed == 4
    ordered = [photographs[index] for index in shuffled(stream(17, Purpose.ORDER), 400)][: selection.examined]
    answers = {one: model.predict(pc.load_image(folder / one.file)) for one in ordered}
    passing = [one for one, (answer, sure) in answers.items() if answer == one.target and sure >= 0.99]
    assert passing == [Photograph(chosen.file, chosen.target) for chosen in selection.photographs]
    sures = [chosen.confidences["resnet18"] for chosen in selection.photographs]
    assert sures == pytest.approx([answers[one][1] for one in passing], abs=1e-5)
