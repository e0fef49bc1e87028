"""Jobs: how many and in which order, keys that follow the question and nothing else, and what a study file meant."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_studies import CLASSES, FACTS, GRID, IMAGE, PHOTOS, SIZE, job, photographs, small_study, vit
from thoroughness import examples

import pixelcert as pc
from pixelcert.image import resize_image
from pixelcert.photographs import Chosen, Grid, Request, Selection, choosing
from pixelcert.photographs.selection import compose_grid
from pixelcert.study.inventory import FILE, Inventory, Noise, _keep_first
from pixelcert.study.job import Scene, jobs, scenes
from pixelcert.study.settings import Settings

MODELS = {"tiny": {"model": "small_studies:tiny"}}


def selection(images: int = 2, grids: tuple[Grid, ...] = (Grid((3, 0, 1, 2), 2),)) -> Selection:
    return Selection(Request(0, 0.99, images, len(grids), 2, {}), PHOTOS, images, grids, 4, 4, {})


def planned(chosen: Selection | None = None, streams: bool = True, **changes: Any) -> list[pc.study.job.Job]:
    """The jobs of a study of two models, without loading one."""
    asked = {"models": ["mine", "other"], "methods": ["grad", "few"], "method": {"few": {"method": "rise", "masks": 3}}}
    study = Settings.model_validate({**asked, **changes})
    facts = {name: replace(FACTS, name=name, model=name) for name in study.models}
    return list(jobs(Inventory(study, facts, chosen or selection(), Noise(study.seed or 0, streams))))


def keys(**changes: Any) -> list[str]:
    return [one.key for one in planned(**changes)]


# ── How many, and in which order ──────────────────────────────────────────────────────────────────────────────────


def test_there_is_one_job_for_every_combination_in_the_order_of_the_file():
    found = planned(layers=["final", "input"], presets=["reference", "default"], sigma=[0.25, 0.15], n=[200, 100])
    expected = [
        (model, method, layer, preset, sigma, n, scene)
        for model in ("mine", "other")
        for method in ("grad", "few")
        for layer in ("final", "input")
        for scene in ("0.png", "1.png", "grid 0")
        for preset in ("reference", "default")
        for sigma in (0.25, 0.15)
        for n in (200, 100)
    ]
    told = [
        (one.model.name, one.method, one.layer, one.preset, one.plan.sigma, one.plan.n, one.scene.name) for one in found
    ]
    assert told == expected
    assert len({one.key for one in found}) == len(found) == 192


def test_each_model_and_each_explainer_is_needed_once():
    found = planned(presets=["reference", "default"], sigma=[0.25, 0.15])
    for need in (lambda one: one.model, lambda one: (one.model, one.method, one.layer)):
        in_turn = [who for who, _ in groupby(found, need)]
        assert len(in_turn) == len(set(in_turn))


def test_plan_of_a_job_is_that_of_its_preset():
    for one in planned(presets=["reference", "default"], sigma=0.25, n=120, levels=[30, 5], seed=9):
        assert one.plan == pc.Plan.make(preset=one.preset, sigma=0.25, n=120, levels=(30, 5), seed=9)


def test_variant_has_its_bases_parameters_and_its_own():
    few = next(one for one in planned() if one.method == "few")
    assert few.base == "rise"
    assert few.params == {**pc.METHODS["rise"].parameters(), "masks": 3}


def test_job_in_words_names_all_that_sets_it_apart():
    text = str(job(plan=pc.Plan(sigma=0.25, n=30)))
    for word in ("mine", "few masks", "input", "grid 0", "0.25", "30", "default"):
        assert word in text


# ── Scenes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_scenes_are_the_images_and_then_the_grids():
    chosen = selection(images=2, grids=(Grid((3, 0, 1, 2), 2), Grid((0, 1, 2, 3), 0)))
    assert list(scenes(chosen)) == [
        Scene("0.png", (PHOTOS[0],)),
        Scene("1.png", (PHOTOS[1],)),
        Scene("grid 0", (PHOTOS[3], PHOTOS[0], PHOTOS[1], PHOTOS[2]), 2, 2),
        Scene("grid 1", PHOTOS, 2, 0),
    ]
    assert [scene.kind for scene in scenes(chosen)] == ["image", "image", "grid", "grid"]


def test_photographs_that_are_in_grids_alone_are_no_images():
    assert [scene.name for scene in scenes(selection(images=0))] == ["grid 0"]


def test_class_explained_is_that_of_the_photograph_in_the_cell():
    for scene in scenes(selection(grids=(Grid((3, 0, 1, 2), 2),))):
        assert scene.explained.target == {"0.png": 100, "1.png": 101, "grid 0": 101}[scene.name]


# ── Keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def grid_with(index: int, **changes: Any) -> Scene:
    """The grid, with one photograph changed."""
    photos = [replace(photo, **changes) if place == index else photo for place, photo in enumerate(PHOTOS)]
    return replace(GRID, photographs=tuple(photos))


DIFFERENT = {
    "model": {"model": replace(FACTS, model="resnet50")},
    "weights": {"model": replace(FACTS, weights="cd" * 32)},
    "size of the photographs in the grid": {"model": replace(FACTS, cell_size=16)},
    "size of the grid": {"model": replace(FACTS, grid_size=24)},
    "method": {"base": "occlusion"},
    "parameter": {"params": {"masks": 4}},
    "name of a parameter": {"params": {"window": 3}},
    "no parameter": {"params": {}},
    "layer": {"layer": "final"},
    "precision": {"precision": "bfloat16"},
    "another precision": {"precision": "float32"},
    **{
        name: {"plan": replace(job().plan, **{name: value})}
        for name, value in {
            "sigma": 0.25,
            "n": 31,
            "levels": (50, 5),
            "seed": 1,
            "sign": "absolute",
            "rule": "percentile",
            "guess": 10,
        }.items()
    },
    "order of levels": {"plan": replace(job().plan, levels=(10, 50))},
    **{f"photograph {index}": {"scene": grid_with(index, digest="e" * 64)} for index in range(4)},
    "order of photographs": {"scene": replace(GRID, photographs=(PHOTOS[2], PHOTOS[1], PHOTOS[0], PHOTOS[3]))},
    "cell": {"scene": replace(grid_with(2, target=101), cell=2)},  # the same class in another cell
    "target": {"scene": grid_with(1, target=7)},
    "no target": {"scene": grid_with(1, target=None)},
    "image": {"scene": IMAGE},
    "size of the image": {"scene": IMAGE, "model": replace(FACTS, image_size=16)},
    "target of the image": {"scene": Scene("0.png", (replace(PHOTOS[0], target=7),))},
    "file of the image": {"scene": Scene("0.png", (replace(PHOTOS[0], digest="e" * 64),))},
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_key_changes_with_all_that_the_answer_depends_on(what):
    other = job(**DIFFERENT[what]).key
    assert other != job().key
    assert [name for name in DIFFERENT if job(**DIFFERENT[name]).key == other] == [what]


def test_key_changes_with_the_version_of_pixelcert(monkeypatch):
    before = job().key
    monkeypatch.setattr("pixelcert.study.job.ALGORITHM", "99.0")
    assert job().key != before


SAME = {
    "name of the model": {"model": replace(FACTS, name="another")},
    "label of the method": {"method": "another"},
    "name of the preset": {"preset": "reference"},
    "size of the model's images, on a grid": {"model": replace(FACTS, image_size=64)},
    "name of the scene": {"scene": replace(GRID, name="grid 7")},
    **{f"name of photograph {index}": {"scene": grid_with(index, file="moved/cat.png")} for index in range(4)},
    "class of a photograph that is not explained": {"scene": grid_with(0, target=7)},
    "who knew the class": {"scene": grid_with(1, labelled=False, confidences={"resnet18": 0.999})},
}


@pytest.mark.parametrize("what", SAME)
def test_key_does_not_change_with_what_the_answer_does_not_depend_on(what):
    assert job(**SAME[what]).key == job().key


def test_key_of_an_image_does_not_depend_on_the_grids():
    image = job(scene=IMAGE)
    assert replace(image, model=replace(FACTS, cell_size=32, grid_size=64)).key == image.key


plans = st.builds(
    pc.Plan,
    sigma=st.floats(0.01, 1),
    n=st.integers(10, 10_000),
    levels=st.lists(st.integers(1, 99) | st.floats(0.1, 99), min_size=1, unique=True).map(tuple),
    seed=st.integers(-(2**63), 2**63 - 1),
    sign=st.sampled_from(["signed", "absolute", "positive"]),
    rule=st.sampled_from(["rank", "percentile"]),
    guess=st.sampled_from([0, 10]),
)


@given(plans, plans)
@settings(deadline=None)
def test_keys_are_equal_exactly_if_the_plans_are(one, other):
    assert (job(plan=one).key == job(plan=other).key) == (one == other)
    assert job(plan=replace(one)).key == job(plan=one).key


@given(st.dictionaries(st.text(max_size=3), st.integers() | st.floats() | st.booleans() | st.text(max_size=3)))
@settings(max_examples=examples(30), deadline=None)
def test_key_does_not_depend_on_the_order_of_the_parameters(params):
    assert job(params=params).key == job(params=dict(reversed(params.items()))).key


def test_keys_are_those_of_the_first_release():
    """Or no process would find the files of another one, and no study those of an earlier version."""
    without = replace(job().plan, streams=False)
    assert job(plan=without).key == "39bbf86d93bbefb842fb8071df8780fe"
    assert job(plan=without, scene=IMAGE).key == "1f1bf66fb20bbcddc7fe27fd14f48250"
    assert job().key != job(plan=without).key


def test_key_is_a_name_for_files_that_no_longer_changes():
    assert set(job().key) <= set("0123456789abcdef")
    assert len(job().key) == 32
    assert job().key == job().key


@pytest.mark.parametrize(
    "changes",
    [
        {"tau": [0.6, 0.9]},
        {"alpha": 0.05},
        {"correction": "joint"},
        {"deletion": []},
        {"compile": True},
        {"compile": False},
        {"precision": "auto", "compile": "auto"},
        {"images": {"folder": "elsewhere", "labels": "l.csv"}},
        {"images": {"confidence": 0.5, "seed": 3}},
        {
            "method": {
                "few": {"method": "rise", "masks": 3, "probability": pc.METHODS["rise"].parameters()["probability"]}
            }
        },
    ],
    ids=str,
)
def test_settings_that_leave_the_votes_alone_leave_the_keys_alone(changes):
    assert keys(**changes) == keys()


@pytest.mark.parametrize(
    "changes",
    [
        {"sigma": 0.25},
        {"n": 200},
        {"levels": [50, 5]},
        {"seed": 1},
        {"sign": "absolute"},
        {"precision": "bfloat16"},
        {"presets": "reference"},
        {"layers": "features"},
        {"method": {"few": {"method": "rise", "masks": 4}}, "methods": ["few"]},
    ],
    ids=str,
)
def test_settings_that_change_the_votes_change_every_key(changes):
    assert not set(keys(**changes)) & set(keys())


def test_label_may_be_changed_where_its_table_names_the_same(tmp_path):
    tables = {"model": {"mine": {"model": "small_studies:tiny"}}, "method": {"gradient": {"method": "grad"}}}
    before = small_study(tmp_path)
    before.resolve()
    keys_before = [one.key for one in before.jobs()]
    after = small_study(tmp_path, models=["mine"], methods=["gradient"], **tables)
    after.resolve()
    assert [one.key for one in after.jobs()] == keys_before


def test_keys_do_not_depend_on_where_the_files_are_or_what_they_are_called(tmp_path):
    """Nor on which of them were chosen first."""
    one = small_study(tmp_path / "one", grids={"count": 1})
    one.resolve()
    photos = photographs(tmp_path / "two" / "far" / "pictures")
    (photos / "labels.csv").unlink()
    lines = ["file,label"]
    for number, label in enumerate((3, 1, 4, 5)):
        (photos / f"{number}.png").rename(photos / f"{9 - number} cat.png")
        lines.append(f"{9 - number} cat.png,{label}")
    (photos / "names.csv").write_text("\n".join(lines))
    images = {"folder": "far/pictures", "labels": "far/pictures/names.csv"}
    two = small_study(tmp_path / "two", images=images)
    two.resolve()
    images_of_one = {one.key for one in one.jobs() if one.scene.kind == "image"}
    assert {one.key for one in two.jobs()} == images_of_one
    assert len(images_of_one) == 4


# ── What the file meant ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_resolved_is_read_back_as_it_was(tmp_path):
    study = small_study(tmp_path, grids={"count": 2, "side": 2}, presets=["default", "reference"])
    inventory = study.resolve()
    again = Inventory.load(study.folder)
    assert again.settings == inventory.settings
    assert again.models == inventory.models
    assert asdict(again.selection) == asdict(inventory.selection)
    assert [one.key for one in jobs(again)] == [one.key for one in jobs(inventory)]


def test_choice_of_photographs_is_kept_although_more_have_come(tmp_path):
    photographs(tmp_path / "photos", labels=range(9))
    images = {"folder": "photos", "count": 3}
    first = small_study(tmp_path, images=images).resolve().selection
    photographs(tmp_path / "photos", labels=range(9), seed=5)
    shutil.copy(tmp_path / "photos" / "0.png", tmp_path / "photos" / "more.png")
    assert small_study(tmp_path, images=images, sigma=0.3, tau=0.65).resolve().selection == first
    assert len(list((tmp_path / "study").glob("selection-*.json"))) == 1


@pytest.mark.parametrize("changes", [{"count": 2}, {"seed": 1}, {"filter": ["tiny"], "confidence": 0}])
def test_other_choice_is_another_file_and_the_first_stays(tmp_path, changes):
    photographs(tmp_path / "photos", labels=[None] * 5)
    images = {"folder": "photos", "count": 3}
    small_study(tmp_path, images=images).resolve()
    (first,) = (tmp_path / "study").glob("selection-*.json")
    before = first.read_bytes()
    small_study(tmp_path, images={**images, **changes}).resolve()
    assert len(list((tmp_path / "study").glob("selection-*.json"))) == 2
    assert first.read_bytes() == before


def test_filter_of_other_weights_chooses_anew(tmp_path):
    photographs(tmp_path / "photos", labels=[None] * 5)
    images = {"folder": "photos", "filter": ["judge"], "confidence": 0}
    chosen = [
        small_study(tmp_path, images=images, model={**MODELS, "judge": {"model": f"small_studies:{judge}"}}).resolve()
        for judge in ("tiny", "crooked", "tiny")
    ]
    assert len(list((tmp_path / "study").glob("selection-*.json"))) == 2
    assert chosen[0].selection == chosen[2].selection != chosen[1].selection


def test_filter_of_another_size_chooses_anew(tmp_path):
    """It judges photographs at its size, so that it may judge otherwise."""
    photographs(tmp_path / "photos", labels=[None] * 5)
    images = {"folder": "photos", "filter": ["judge"], "confidence": 0}
    for size in (24, 48):
        judge = {"model": "small_studies:crooked", "size": size}
        small_study(tmp_path, images=images, model={**MODELS, "judge": judge}).resolve()
    assert len(list((tmp_path / "study").glob("selection-*.json"))) == 2


def test_labels_may_be_names_of_the_models_classes(tmp_path):
    photos = photographs(tmp_path / "photos")
    lines = [f'{number}.png,"{CLASSES[label]}"' for number, label in enumerate((7, 2, 9, 0))]
    (photos / "labels.csv").write_text("\n".join(["file,label", *lines]))
    chosen = small_study(tmp_path).resolve().selection.photographs
    assert {photo.file: photo.target for photo in chosen} == {"0.png": 7, "1.png": 2, "2.png": 9, "3.png": 0}


def test_other_grids_are_another_choice(tmp_path):
    for grids in ({"count": 1}, {"count": 2}, {"count": 2, "cell": 12}):  # the last is the second, drawn smaller
        small_study(tmp_path, grids=grids).resolve()
    assert len(list((tmp_path / "study").glob("selection-*.json"))) == 2


@pytest.mark.parametrize("damage", ["{", "{}", '{"settings": 3}', "[]"])
def test_damaged_notes_are_refused_with_how_to_mend_them(tmp_path, damage):
    study = small_study(tmp_path)
    study.resolve()
    (study.folder / FILE).write_text(damage)
    with pytest.raises(pc.ArgumentError, match=r"(?s)resolved\.json is damaged .*`pixelcert study plan` repairs it"):
        study.jobs()
    study.resolve()
    assert study.jobs()


def test_n_too_small_for_the_lowest_tau_is_refused_before_anything_is_sampled(tmp_path):
    with pytest.raises(pc.InfeasibleError, match=r"images of tiny: n=25 .*at least 26"):
        small_study(tmp_path, n=[40, 25]).resolve()
    with pytest.raises(pc.InfeasibleError, match=r"grids of tiny: n=27 .*at least 29"):
        small_study(tmp_path, n=27, grids={"count": 1}).resolve()
    assert small_study(tmp_path, n=26, tau=[0.9, 0.6]).resolve()
    no_images = {"folder": "photos", "count": 0}
    assert small_study(tmp_path, n=25, images=no_images, grids={"count": 1, "cell": 8}).resolve()


def test_photographs_that_are_not_certified_do_not_count_for_what_n_can_reach(tmp_path):
    """Grids of 16 × 16 need 25 samples at τ = 0.6, and images of 24 × 24, of which there are none, 26."""
    study = small_study(tmp_path, n=25, images={"folder": "photos", "count": 0}, grids={"count": 1, "cell": 8})
    assert study.unreachable(study.resolve()) == []


def test_model_that_only_filters_does_not_count_for_what_n_can_reach(tmp_path):
    photographs(tmp_path / "photos", labels=[None] * 4)
    models = {**MODELS, "large": {"model": "small_studies:tiny", "size": 240}}
    images = {"folder": "photos", "filter": ["large"], "confidence": 0}
    study = small_study(tmp_path, n=26, images=images, model=models)
    assert study.unreachable(study.resolve()) == []


def test_tau_that_n_cannot_reach_is_told_with_the_n_that_can(tmp_path):
    study = small_study(tmp_path, n=[40, 100], tau=[0.6, 0.75, 0.7], presets=["default", "reference"])
    notes = study.unreachable(study.resolve())
    assert len(notes) == 2
    assert "n = 40 can certify nothing at tau = 0.75 (preset default)" in notes[0]
    assert "Raise n to 47" in notes[0]
    assert "n = 40 can certify nothing at tau = 0.7, 0.75 (preset reference)" in notes[1]


@pytest.mark.parametrize(("cell", "needed"), [(8, 47), (24, 51), (40, 55)])
def test_tau_that_n_cannot_reach_is_told_with_the_n_for_the_largest_map(tmp_path, cell, needed):
    study = small_study(tmp_path, tau=[0.6, 0.75], grids={"count": 1, "cell": cell})
    (note,) = study.unreachable(study.resolve())
    assert f"Raise n to {needed} " in note


def test_random_weights_are_the_same_whenever_they_are_loaded(tmp_path):
    """Or no second process, and no second run, could do the jobs of the first."""
    model = {"random": {"model": "shufflenet_v2_x0_5", "weights": "none", "size": 32}}
    first, second = (
        small_study(tmp_path / folder, models=["random"], model=model).resolve().models["random"].weights
        for folder in ("one", "two")
    )
    assert first == second


# ── Sizes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("model", "size", "cell", "expected"),
    [
        ("tiny", None, None, (24, 24, 48)),  # takes any size
        ("tiny", 16, None, (16, 16, 32)),
        ("tiny", None, 8, (24, 8, 16)),
        ("resnet", 32, 48, (32, 48, 96)),
        ("vgg", None, None, (64, 64, 128)),  # its head slides
        ("vit", None, None, (64, 64, 64)),  # sees the grid resized
        ("vit", None, 32, (64, 32, 64)),  # which just fits
    ],
)
def test_sizes_of_images_photographs_and_grids(tmp_path, model, size, cell, expected):
    tables = {model: {"model": f"small_studies:{model}"} | ({"size": size} if size else {})}
    grids = {"count": 1} | ({"cell": cell} if cell else {})
    study = small_study(tmp_path, models=[model], model=tables, grids=grids, n=60)
    facts = study.resolve().models[model]
    assert (facts.image_size, facts.cell_size, facts.grid_size) == expected
    for one in study.jobs():
        sizes = (one.size, one.photograph_size)
        assert sizes == ((expected[0], expected[0]) if one.scene.kind == "image" else (expected[2], expected[1]))


def test_without_grids_no_model_is_tried_on_one(tmp_path):
    assert small_study(tmp_path).resolve().models["tiny"].grid_size == 0


@pytest.mark.parametrize(("model", "size"), [("vgg", 80), ("vit", 64)])
def test_votes_and_certificate_of_a_grid_are_of_the_size_that_the_model_sees(tmp_path, model, size):
    images = {"folder": "photos", "count": 0}
    tables = {model: {"model": f"small_studies:{model}"}}
    study = small_study(tmp_path, models=[model], model=tables, images=images, grids={"count": 1, "cell": 40})
    worker = study.worker(study.resolve())
    (one,) = study.jobs()
    photos = [pc.load_image(tmp_path / "photos" / chosen.file, 40) for chosen in one.scene.photographs]
    mosaic = compose_grid(photos, 2)
    seen = mosaic if size == 80 else resize_image(mosaic, size)
    assert torch.equal(worker.materials.image(one), seen)
    assert worker.materials.explainer(one).model.size == size
    assert ("sliding head" in worker.materials.explainer(one).model.name) == (model == "vgg")
    worker.do(one)
    votes = study.store.load_votes(one)
    assert votes.size == (size, size)
    assert votes.certify(0.6).space.startswith(f"{size} × {size} × 3 values")


def test_grid_that_the_model_sees_too_small_to_cut_into_cells_is_refused_before_sampling(tmp_path):
    """64 pixels are not three cells; the pointing game would fail after all grids have been sampled."""
    photographs(tmp_path / "photos", labels=range(9))
    images, grids = {"folder": "photos", "count": 0}, {"count": 1, "side": 3}
    study = small_study(
        tmp_path, models=["vit"], model={"vit": {"model": "small_studies:vit"}}, images=images, grids=grids
    )
    with pytest.raises(pc.PixelcertError, match="3"):
        study.resolve()


def named_vit() -> pc.Classifier:
    model = vit()
    model.classes = CLASSES
    return model


@pytest.mark.parametrize("model", ["small_studies:vit", "test_study_jobs:named_vit"])
def test_size_that_the_model_does_not_take_is_refused_before_sampling(tmp_path, model):
    study = small_study(tmp_path, models=["vit"], model={"vit": {"model": model, "size": 48}})
    with pytest.raises(pc.PixelcertError, match="48"):
        study.resolve()


def test_filter_judges_photographs_at_the_size_that_the_study_gives_it(tmp_path, monkeypatch):
    sizes = []
    judge = choosing._filtered
    monkeypatch.setattr(
        "pixelcert.photographs.choosing._filtered",
        lambda chosen, *how: sizes.extend(size for _, images in chosen for size in images) or judge(chosen, *how),
    )
    photographs(tmp_path / "photos", labels=[None] * 4)
    images = {"folder": "photos", "filter": ["tiny"], "confidence": 0}
    small_study(tmp_path, images=images, model={"tiny": {"model": "small_studies:tiny", "size": 32}}).resolve()
    assert set(sizes) == {32}


# ── Doing one ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_model_whose_weights_changed_since_the_plan_is_refused(tmp_path):
    study = small_study(tmp_path)
    inventory = study.resolve()
    facts = replace(inventory.models["tiny"], weights="ab" * 32)
    worker = study.worker(replace(inventory, models={"tiny": facts}))
    (one, *_) = jobs(inventory)
    with pytest.raises(pc.ModelError, match="weights of tiny are not those of the plan"):
        worker.do(one)


def test_photograph_that_changed_since_it_was_chosen_fails_its_jobs_alone(tmp_path):
    study = small_study(tmp_path)
    study.resolve()
    shutil.copy(tmp_path / "photos" / "1.png", tmp_path / "photos" / "0.png")
    tally = study.run(retries=0)
    assert tally.done == 3
    ((failed, cause),) = tally.failures.values()
    assert failed.scene.name == "0.png"
    assert "has changed since it was chosen" in cause
    assert list(study.store.failures(study.jobs())) == [(failed, cause)]
    assert json.loads(study.store.failure_file(failed).read_text())["title"] == str(failed)


def test_image_is_the_photograph_at_the_models_size(tmp_path):
    photographs(tmp_path / "photos", size=40)
    study = small_study(tmp_path)
    worker = study.worker(study.resolve())
    for one in study.jobs():
        assert torch.equal(worker.materials.image(one), pc.load_image(tmp_path / "photos" / one.scene.name, SIZE))


def test_chosen_photographs_know_their_digests(tmp_path):
    chosen: tuple[Chosen, ...] = small_study(tmp_path).resolve().selection.photographs
    assert len(chosen) == 4
    for photo in chosen:
        assert photo.digest == sha256((tmp_path / "photos" / photo.file).read_bytes()).hexdigest()


# ── Photographs that change ───────────────────────────────────────────────────────────────────────────────────────


def test_labels_that_changed_since_the_choice_are_refused_and_may_be_chosen_again(tmp_path):
    study = small_study(tmp_path)
    study.resolve()
    labels = study.base / "photos" / "labels.csv"
    before = labels.read_text()
    labels.write_text(before.replace(",3", ",2", 1))
    with pytest.raises(pc.ArgumentError, match=r"have changed since selection-.* put them back, or delete that file"):
        study.resolve()
    labels.write_text(before)
    study.resolve()
    labels.write_text(before.replace(",3", ",2", 1))
    for file in study.folder.glob("selection-*"):
        file.unlink()
    assert study.resolve().selection.photographs


# ── The seed ──────────────────────────────────────────────────────────────────────────────────────────────────────


def seeds_from(patch: pytest.MonkeyPatch, *seeds: int) -> None:
    """Let the operating system draw these seeds."""
    drawn = iter(seeds)
    patch.setattr("pixelcert.plan.secrets", SimpleNamespace(randbits=lambda bits: next(drawn)))


def seed_file(folder: Any) -> Any:
    (file,) = folder.glob("seed-*.json")
    return file


def test_photographs_that_are_chosen_anew_get_another_seed(tmp_path, monkeypatch):
    """Or they could be fitted to the one that is known."""
    seeds_from(monkeypatch, 5, 6)
    study = small_study(tmp_path)
    before = study.resolve()
    photographs(tmp_path / "other", seed=9)
    shutil.copy(tmp_path / "other" / "0.png", tmp_path / "photos" / "0.png")
    (study.folder / before.selection_file).unlink()  # as its error says
    assert (before.noise.seed, study.resolve().noise.seed) == (5, 6)


def test_a_study_draws_one_seed_once(tmp_path, monkeypatch):
    seeds_from(monkeypatch, 2**63 - 1)
    inventory = small_study(tmp_path).resolve()
    assert {plan.seed for plan in inventory.plans().values()} == {2**63 - 1}
    assert {job.plan.streams for job in jobs(inventory)} == {True}
    again = small_study(tmp_path, n=50).resolve()
    assert again.noise == inventory.noise == Inventory.load(small_study(tmp_path).folder).noise
    assert json.loads(seed_file(tmp_path / "study").read_text())["seed"] == str(2**63 - 1)


def test_the_first_seed_that_is_saved_is_everyones(tmp_path, monkeypatch):
    study, other = small_study(tmp_path), 5

    def late(bits: int) -> int:
        monkeypatch.undo()
        seeds_from(monkeypatch, other)
        small_study(tmp_path).resolve()  # another process, while this one draws
        return 7

    monkeypatch.setattr("pixelcert.plan.secrets", SimpleNamespace(randbits=late))
    assert study.resolve().noise[:2] == (other, True)


def test_a_seed_in_the_file_is_used_and_no_seed_in_the_file_means_the_folders(tmp_path, monkeypatch):
    seeds_from(monkeypatch)
    assert small_study(tmp_path, seed=3).resolve().noise[:2] == (3, True)
    study = small_study(tmp_path)
    assert study.resolve().noise[:2] == (3, True)
    assert {job.plan.seed for job in study.jobs()} == {3}
    assert {job.plan.seed for job in small_study(tmp_path, seed=3).jobs()} == {3}
    with pytest.raises(pc.ArgumentError, match="seed changed"):
        small_study(tmp_path, seed=4).jobs()


def test_a_folder_without_streams_keeps_its_noise(tmp_path, monkeypatch):
    seeds_from(monkeypatch, 8)
    study = small_study(tmp_path)
    old = replace(study.resolve(), noise=Noise(0, streams=False))
    seed_file(study.folder).unlink()
    old.save(study.folder)
    content = json.loads((study.folder / FILE).read_text())
    for key in ("noise", "checksum"):
        del content[key]
    content["settings"]["seed"] = 0
    (study.folder / FILE).write_text(json.dumps(content))
    assert {(job.plan.seed, job.plan.streams) for job in study.jobs()} == {(0, False)}
    assert study.resolve().noise == Noise(0, streams=False)
    assert study.resolve().noise == Noise(0, streams=False)


def test_a_damaged_inventory_does_not_lose_the_seed_and_a_damaged_seed_is_refused(tmp_path, monkeypatch):
    seeds_from(monkeypatch, 8)
    study = small_study(tmp_path)
    study.resolve()
    (study.folder / FILE).write_text("{")
    assert study.resolve().noise[:2] == (8, True)
    seed_file(study.folder).unlink()  # as where only tables were copied
    assert study.resolve().noise[:2] == (8, True)
    file = seed_file(study.folder)
    file.write_text(file.read_text().replace('"8"', '"9"'))
    with pytest.raises(pc.ArgumentError, match=r"seed-\w+\.json was changed or damaged.*restore it"):
        study.resolve()


def test_first_choice_that_is_saved_is_everyones(tmp_path):
    study = small_study(tmp_path)
    chosen = study.resolve()
    file = study.folder / chosen.selection_file
    saved = file.read_bytes()
    _keep_first(replace(chosen.selection, examined=99).save, file)
    assert file.read_bytes() == saved
    assert [other.name for other in study.folder.glob("*selection*")] == [file.name]
