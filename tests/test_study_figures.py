"""Figures of a study show its results, to the pixel and the number; what was not measured is shown as missing."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from PIL import Image
from small_studies import photographs, small_study

import pixelcert as pc
from pixelcert.commands import main
from pixelcert.figures import FIGURES, Findings, UnavailableError, draw, save
from pixelcert.figures.palette import FAMILIES, level_colours, paint_labels, paint_overlay, shades
from pixelcert.study.job import Job
from pixelcert.study.tables import rows

METHODS = ["grad", "cam", "grad_cam", "rise"]
LOOKS = {name: method.look for name, method in pc.METHODS.items()}
TAUS, SIGMAS, LEVELS = [0.6, 0.65], [0.1, 0.2], [50, 25, 10]
GREY = tuple(np.array([0xB9, 0xBC, 0xC0]) / 255)
VIT = {"vit-maps", "vit-overlays"}


# ── Two small studies ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> pc.Study:
    """Two models, of which CAM cannot explain one; three images and seven grids."""
    folder = tmp_path_factory.mktemp("figures")
    photographs(folder / "photos", labels=(3, 1, 4, 5, 2, 6))
    made = small_study(
        folder,
        models=["tiny", "crooked"],
        methods=METHODS,
        layers=["input", "final"],
        sigma=SIGMAS,
        n=44,
        tau=TAUS,
        levels=LEVELS,
        images={"folder": "photos", "count": 3},
        grids={"count": 7},
        model={name: {"model": f"small_studies:{name}"} for name in ("tiny", "crooked")},
        method={"rise": {"masks": 6}},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tally = made.run(retries=0, verify=False)
    assert {(job.model.name, job.method) for job, _ in tally.failures.values()} == {("crooked", "cam")}
    return made


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> pc.Study:
    """A vision transformer, one image, and one value of everything."""
    folder = tmp_path_factory.mktemp("plain")
    vit = {"vit": {"model": "small_studies:vit"}}
    asked = {"images": {"folder": "photos", "count": 1}, "levels": [25], "deletion": [], "n": 40}
    made = small_study(folder, models=["vit"], methods=["grad"], model=vit, **asked)
    assert not made.run().failures
    return made


@pytest.fixture(scope="module")
def findings(study) -> Findings:
    return Findings(study)


@pytest.fixture(scope="module")
def table(study) -> list[dict[str, Any]]:
    return list(rows(study.jobs(), study.store))


def found(table, **where: Any) -> list[Any]:
    """Values of the rows that are so."""
    return [row["value"] for row in table if all(row[name] == value for name, value in where.items())]


def mean(table, **where: Any) -> float:
    values = [value for value in found(table, **where) if value is not None]
    assert values
    return math.fsum(values) / len(values)


def job_of(study: pc.Study, name: str, method: str, layer: str, sigma: float = 0.1, model: str = "tiny") -> Job:
    jobs = [job for job in study.jobs() if (job.scene.name, job.method, job.layer) == (name, method, layer)]
    (job,) = [job for job in jobs if job.plan.sigma == sigma and job.model.name == model]
    return job


def certificate(study: pc.Study, job: Job, tau: float = 0.6) -> pc.Certificate:
    return pc.Votes.load(study.store.votes_file(job)).certify(tau, study.settings.alpha)


# ── Reading figures ───────────────────────────────────────────────────────────────────────────────────────────────


def words(figure: Figure) -> str:
    texts = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
    return "\n".join(text.get_text() for text in texts)


def caption(figure: Figure) -> str:
    """The lines at the foot of the page."""
    lowest = min(figure.texts, key=lambda text: text.get_position()[1])
    return " ".join(lowest.get_text().split())


def titled(figure: Figure, title: str) -> Axes:
    (axes,) = [axes for axes in figure.axes if axes.get_title(loc="left") == title]
    return axes


def tile(figure: Figure, row: str, column: str, nth_row: int = 0, nth_column: int = 0) -> Axes:
    """The small picture beside and below headings, of which the n-th are meant."""
    ys = sorted((text.get_position()[1] for text in figure.texts if text.get_text() == row), reverse=True)
    xs = sorted(text.get_position()[0] for text in figure.texts if text.get_text() == column)
    boxes = {axes: axes.get_position() for axes in figure.axes}
    (axes,) = [
        axes
        for axes, box in boxes.items()
        if abs(box.x0 + box.width / 2 - xs[nth_column]) < 1e-6 and abs(box.y0 + box.height / 2 - ys[nth_row]) < 1e-6
    ]
    return axes


def picture(axes: Axes) -> np.ndarray:
    (image,) = axes.images
    return np.asarray(image.get_array())


def is_missing(axes: Axes) -> bool:
    return not axes.images and any(patch.get_hatch() for patch in axes.patches)


def lines(axes: Axes, name: str) -> list[Line2D]:
    return [line for line in axes.lines if line.get_gid() == name]


def line_at(axes: Axes, method: str) -> Line2D:
    (line,) = lines(axes, method)
    return line


def labelled_lanes(figure: Figure, axes: Axes, names: list[str]) -> dict[tuple[str, str], float]:
    """Where the lane of each method and label is on the vertical axis, read from the names beside it."""
    to_data = axes.transData.inverted()
    places = {
        text: to_data.transform(figure.transFigure.transform(text.get_position()))[1]
        for text in figure.texts
        if text.get_position()[0] < axes.get_position().x0
    }
    methods = {text.get_text(): y for text, y in places.items() if text.get_text() in names}
    lanes = {}
    for text, y in places.items():
        if re.match("[RK] = .*", text.get_text()) and "\n" not in text.get_text() and "σ" not in text.get_text():
            nearest = min(methods, key=lambda name: abs(methods[name] - y))
            lanes[nearest, text.get_text()] = y
    return lanes


# ── Bars ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def bars_at(axes: Axes, y: float) -> list[Rectangle]:
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle) and not patch.get_hatch()]
    here = [bar for bar in bars if abs(bar.get_y() + bar.get_height() / 2 - y) < 1e-6]
    return sorted(here, key=lambda bar: bar.get_x())


@pytest.mark.parametrize("layer", ["input", "final"])
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("bars-radius", [(0.1, 25, "R = 0.025"), (0.2, 25, "R = 0.050")]),
        ("bars-level", [(0.1, 50, "K = 50 %"), (0.1, 25, "K = 25 %"), (0.1, 10, "K = 10 %")]),
    ],
)
def test_bars_are_the_mean_shares_one_zero_abstain(study, findings, table, name, steps, layer):
    figure = draw(findings, name, model="tiny")
    axes = titled(figure, f"{layer} layer")
    lanes = labelled_lanes(figure, axes, [pc.METHODS[method].short for method in METHODS])
    assert len(lanes) == len(METHODS) * len(steps)
    for method in METHODS:
        for sigma, level, label in steps:
            where = {"model": "tiny", "method": method, "layer": layer, "sigma": sigma, "tau": 0.6, "level": level}
            bars = bars_at(axes, lanes[pc.METHODS[method].short, label])
            wanted = [
                mean(table, metric=metric, scene="image", **where)
                for metric in ("certified_1", "certified_0", "abstained")
            ]
            assert [bar.get_width() for bar in bars] == pytest.approx(wanted)
            assert [bar.get_x() for bar in bars] == pytest.approx([0, wanted[0], wanted[0] + wanted[1]])
            colours = shades(FAMILIES[pc.METHODS[method].family])
            assert [bar.get_facecolor()[:3] for bar in bars] == [pytest.approx(colour) for colour in colours]
    assert axes.get_xlim() == (0, 100)


def test_bars_that_were_not_measured_are_hatched_and_not_zero(findings):
    figure = draw(findings, "bars-level")
    assert len([axes for axes in figure.axes if axes.get_title(loc="left")]) == 4, "a panel for each model and layer"
    axes = titled(figure, "crooked, input")
    lanes = labelled_lanes(figure, axes, [pc.METHODS[method].short for method in METHODS])
    hatched = [patch for patch in axes.patches if patch.get_hatch()]
    assert len(hatched) == len(LEVELS)
    for level in LEVELS:
        y = lanes["CAM", f"K = {level} %"]
        assert not bars_at(axes, y)
        assert any(patch.get_y() < y < patch.get_y() + patch.get_height() for patch in hatched)
    assert [text.get_text() for text in axes.texts] == ["missing"] * len(LEVELS)
    assert not [patch for patch in titled(figure, "tiny, input").patches if patch.get_hatch()]
    assert "0 to 3 of 3 images" in caption(figure)


# ── Boxes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_boxes_are_the_quartiles_and_median_over_grids(findings, table):
    figure = draw(findings, "boxes-level", model="tiny")
    drawn = 0
    for layer in ("input", "final"):
        axes = titled(figure, f"{layer} layer")
        lanes = labelled_lanes(figure, axes, [pc.METHODS[method].short for method in METHODS])
        for method in METHODS:
            for level in LEVELS:
                where = {"model": "tiny", "method": method, "layer": layer, "sigma": 0.1, "tau": 0.6, "level": level}
                values = found(table, metric="certified_grid_pg", **where)
                defined = [value for value in values if value is not None]
                y = lanes[pc.METHODS[method].short, f"K = {level} %"]
                said = [text.get_text() for text in axes.texts if abs(text.get_position()[1] - y) < 1e-6]
                boxes = bars_at(axes, y)
                if not defined:
                    assert not boxes
                    assert said == ["undefined"]
                    continue
                (box,) = boxes
                low, median, high = np.percentile(defined, (25, 50, 75))
                assert (box.get_x(), box.get_x() + box.get_width()) == pytest.approx((low, high))
                (mark,) = [line for line in lines(axes, "median") if abs(np.mean(line.get_ydata()) - y) < 1e-6]
                assert mark.get_xdata() == pytest.approx([median] * 2)
                assert said == ([] if len(defined) == len(values) else [f"{len(defined)}/{len(values)}"])
                drawn += 1
    assert drawn > 12


def test_boxes_against_the_radius_take_each_sigma(findings, table):
    figure = draw(findings, "boxes-radius", model="tiny", layer="final", level=50)
    axes = titled(figure, "final layer")
    lanes = labelled_lanes(figure, axes, [pc.METHODS[method].short for method in METHODS])
    for sigma, label in ((0.1, "R = 0.025"), (0.2, "R = 0.050")):
        where = {"model": "tiny", "method": "rise", "layer": "final", "sigma": sigma, "tau": 0.6, "level": 50}
        values = [value for value in found(table, metric="certified_grid_pg", **where) if value is not None]
        (box,) = bars_at(axes, lanes["RISE", label])
        assert (box.get_x(), box.get_x() + box.get_width()) == pytest.approx(tuple(np.percentile(values, (25, 75))))


@pytest.mark.parametrize("name", ["boxes-level", "boxes-radius"])
def test_boxes_stand_beside_the_random_baseline(findings, name):
    for axes in draw(findings, name, model="tiny").axes:
        assert line_at(axes, "baseline").get_xdata() == [0.25, 0.25]


# ── Scatter and curves ────────────────────────────────────────────────────────────────────────────────────────────


def is_defined(row: dict[str, Any], metric: str, where: dict[str, Any]) -> bool:
    same = all(row[name] == value for name, value in where.items())
    return same and row["metric"] == metric and row["value"] is not None


def written(axes: Axes) -> str:
    """In the axes and below them, in one line."""
    return " ".join(" ".join(text.get_text() for text in axes.texts).split())


@pytest.mark.parametrize(
    ("name", "metric", "scene", "at_tau"),
    [("tradeoff", "certified", "image", True), ("gridpg", "grid_pg", "grid", False)],
)
def test_scatter_places_every_method_at_its_means(findings, table, name, metric, scene, at_tau):
    figure = draw(findings, name, sigma=0.2, tau=0.65, level=50)
    shown = 0
    for model in ("tiny", "crooked"):
        for layer in ("input", "final"):
            axes = titled(figure, f"{model}, {layer} layer")
            for method in METHODS:
                where = {"model": model, "method": method, "layer": layer, "sigma": 0.2}
                point = {**where, "tau": 0.65, "level": 50}
                localised = found(table, metric="certified_grid_pg", **point)
                if not any(value is not None for value in localised):
                    why = "undefined" if localised else "missing"
                    assert not lines(axes, method)
                    assert re.search(f"{why}: [^.]*{re.escape(pc.METHODS[method].short)}", written(axes))
                    continue
                defined = {row["name"] for row in table if is_defined(row, "certified_grid_pg", point)}
                if at_tau:
                    across = mean(table, metric=metric, scene=scene, **point)
                else:  # of the same grids
                    across = np.mean([mean(table, metric=metric, name=grid, **where) for grid in defined])
                line = line_at(axes, method)
                few = re.search(rf"fewer grids: .*{re.escape(pc.METHODS[method].short)} (\d)/7", written(axes))
                assert (few and int(few[1])) == (None if len(defined) == 7 else len(defined))
                assert line.get_markerfacecolor() == (LOOKS[method][0] if len(defined) == 7 else "white")
                assert line.get_xdata() == pytest.approx([across])
                assert line.get_ydata() == pytest.approx([mean(table, metric="certified_grid_pg", **point)])
                assert (line.get_color(), line.get_marker()) == LOOKS[method]
                shown += 1
            assert line_at(axes, "baseline").get_ydata() == [0.25, 0.25]
    assert shown >= 8
    assert "Hollow: a mean over fewer than all images or grids." in caption(figure)


def test_deletion_curves_go_from_the_untouched_image_up_the_levels(findings, table):
    figure = draw(findings, "deletion", model="tiny")
    for layer in ("input", "final"):
        axes = titled(figure, f"{layer} layer")
        assert [label.get_text() for label in axes.get_xticklabels()] == ["none", "10", "25", "50"]
        for method in METHODS:
            where = {"model": "tiny", "method": method, "layer": layer, "sigma": 0.1, "tau": 0.6}
            wanted = [mean(table, metric="confidence", **where)]
            wanted += [mean(table, metric="deletion_confidence", level=level, **where) for level in (10, 25, 50)]
            assert line_at(axes, method).get_ydata() == pytest.approx(wanted)
            assert list(line_at(axes, method).get_xdata()) == [0, 1, 2, 3]


def test_effect_of_tau_is_drawn_for_both_measures(findings, table):
    figure = draw(findings, "tau", model="tiny", level=50)
    for layer in ("input", "final"):
        certified, localised = [axes for axes in figure.axes if axes.get_title(loc="left") == f"{layer} layer"]
        for axes, metric, scene in ((certified, "certified", "image"), (localised, "certified_grid_pg", "grid")):
            for method in METHODS:
                where = {"model": "tiny", "method": method, "layer": layer, "sigma": 0.1, "level": 50, "scene": scene}
                values = [found(table, metric=metric, tau=tau, **where) for tau in TAUS]
                means = [np.mean([v for v in some if v is not None] or [np.nan]) for some in values]
                if np.isnan(means).all():
                    assert not lines(axes, method)
                    continue
                assert line_at(axes, method).get_ydata() == pytest.approx(means, nan_ok=True)
                assert list(line_at(axes, method).get_xdata()) == TAUS
                few = [tau for tau, some in zip(TAUS, values, strict=True) if None in some]
                marked = lines(axes, f"{method} hollow")
                assert [x for line in marked for x in line.get_xdata()] == few
                assert all(line.get_markerfacecolor() == "white" for line in marked)
                assert [TAUS[index] for index in line_at(axes, method).get_markevery()] == sorted({*TAUS} - {*few})


def test_points_that_rest_on_fewer_grids_are_hollow_and_of_the_same_grids(study, monkeypatch):
    findings, key = Findings(study), ("certified_grid_pg", 0.65, 50)
    cell = findings.at(sigma=0.2).series("grid", "rise", "input")
    for job in cell[:3]:
        monkeypatch.setitem(findings._measures, job.key, {**findings.measures(job), key: None})
    asked = {"model": "tiny", "layer": "input", "sigma": 0.2, "level": 50}
    for name in ("gridpg", "tradeoff"):
        axes = titled(draw(findings, name, tau=0.65, **asked), "input layer")
        point, whole = line_at(axes, "rise"), line_at(axes, "grad_cam")
        assert (point.get_markerfacecolor(), whole.get_markerfacecolor()) == ("white", LOOKS["grad_cam"][0])
        assert point.get_ydata() == pytest.approx([np.mean([findings.measures(job)[key] for job in cell[3:]])])
        if name == "gridpg":
            clean = [findings.measures(job)["grid_pg", None, None] for job in cell[3:]]
            assert point.get_xdata() == pytest.approx([np.mean(clean)])
        assert "fewer grids: RISE 4/7" in written(axes)
    *_, axes = [axes for axes in draw(findings, "tau", **asked).axes if axes.get_title(loc="left") == "input layer"]
    assert list(line_at(axes, "rise hollow").get_xdata()) == [0.65]
    assert list(line_at(axes, "rise").get_markevery()) == [0]
    assert not lines(axes, "grad_cam hollow")


def test_panels_without_any_method_are_hatched(findings):
    figure = draw(findings, "deletion", model="crooked", methods=["cam"])
    for layer in ("input", "final"):
        axes = titled(figure, f"{layer} layer")
        assert is_missing(axes)
        assert not lines(axes, "cam")
        assert any("missing: CAM" in text.get_text() for text in axes.texts)


# ── Maps ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_maps_show_smoothed_labels_and_overlay_to_the_pixel(study, findings):
    figure = draw(findings, "maps", image="1.png", tau=0.65, sigma=0.2)
    colours = level_colours(LEVELS)
    for row, (method, layer) in enumerate([("rise", "input"), ("grad_cam", "final")]):
        made = certificate(study, job_of(study, "1.png", method, layer, 0.2), 0.65)
        name = f"{layer} layer"
        assert pc.METHODS[method].short in words(figure)
        np.testing.assert_array_equal(picture(tile(figure, name, "SS, K = 50 %")), made.votes.ones[0] / 44)
        for level in LEVELS:
            shown = picture(tile(figure, name, f"K = {level} %"))
            np.testing.assert_array_equal(shown, paint_labels(made.labels[level], colours[level]))
            for label, colour in ((1, colours[level]), (0, (1, 1, 1)), (-1, GREY)):
                assert np.allclose(shown[made.labels[level] == label], colour)
        overlay = paint_overlay(made.overlay, colours, made.votes.photo)
        np.testing.assert_array_equal(picture(tile(figure, name, "overlaid")), overlay)
        if row == 0:
            np.testing.assert_array_equal(picture(tile(figure, name, "image")), made.votes.photo)


def test_overlays_show_every_method_on_every_image(study, findings):
    figure = draw(findings, "overlays")
    for number, name in enumerate(scene.name for scene in findings.scenes("image")):
        for method in METHODS:
            layer = "final" if "cam" in method else "input"
            made = certificate(study, job_of(study, name, method, layer))
            title = pc.METHODS[method].short
            np.testing.assert_array_equal(picture(tile(figure, "SS", title, number)), made.smoothed(50))
            overlay = paint_overlay(made.overlay, level_colours(LEVELS), made.votes.photo)
            np.testing.assert_array_equal(picture(tile(figure, "certified", title, number)), overlay)
        np.testing.assert_array_equal(picture(tile(figure, "SS", "image", number)), made.votes.photo)


def test_layer_asked_for_is_the_one_shown(study, findings):
    figure = draw(findings, "overlays", layer="input", methods=["grad_cam"])
    first = findings.scenes("image")[0].name
    made = certificate(study, job_of(study, first, "grad_cam", "input"))
    np.testing.assert_array_equal(picture(tile(figure, "SS", "Grad-CAM")), made.smoothed(50))


def test_maps_of_unfinished_jobs_are_hatched_and_say_missing(findings):
    figure = draw(findings, "overlays", model="crooked")
    for number in range(3):
        for row in ("SS", "certified"):
            axes = tile(figure, row, "CAM", number)
            assert is_missing(axes)
            assert [text.get_text() for text in axes.texts] == ["missing"]
            assert not is_missing(tile(figure, row, "Grad", number))


@pytest.mark.parametrize("name", ["maps", "matrix", "teaser", "overlays"])
def test_photograph_is_shown_as_soon_as_any_job_has_it(study, tmp_path, name):
    shutil.copytree(study.folder, tmp_path / "study")
    some = pc.Study(study.settings, study.base, tmp_path / "study")
    first = Findings(some).scenes("image")[0].name
    for job in some.jobs():
        if job.method in ("grad", "cam"):  # the first that are drawn
            some.store.votes_file(job).unlink(missing_ok=True)
            some.store.measures_file(job).unlink(missing_ok=True)
    figure = draw(some, name, model="tiny", methods=["grad", "cam", "rise"])
    photo = certificate(some, job_of(some, first, "rise", "input")).votes.photo
    assert any(np.array_equal(picture(axes), photo) for axes in figure.axes if axes.images)
    assert any(is_missing(axes) for axes in figure.axes)


def test_grids_have_their_target_cell_outlined(study, findings):
    figure = draw(findings, "grids", methods=["grad_cam", "rise"])
    places = {0: (-0.5, -0.5), 1: (23.5, -0.5), 2: (-0.5, 23.5), 3: (23.5, 23.5)}
    scenes = findings.scenes("grid")
    assert len({scene.cell for scene in scenes}) > 1
    for scene in scenes[:6]:
        for column in ("grid", "Grad-CAM", "RISE"):
            (outline,) = tile(figure, scene.name, column).patches
            assert outline.get_xy() == places[scene.cell]
            assert (outline.get_width(), outline.get_height()) == (24, 24)
            assert not outline.get_fill()
        made = certificate(study, job_of(study, scene.name, "rise", "input"))
        overlay = paint_overlay(made.overlay, level_colours(LEVELS), made.votes.photo)
        np.testing.assert_array_equal(picture(tile(figure, scene.name, "RISE")), overlay)


def test_matrix_has_levels_across_within_each_radius(study, findings):
    figure = draw(findings, "matrix", image="2.png")
    assert "R = 0.025" in words(figure)
    assert "R = 0.050" in words(figure)
    for block, sigma in enumerate(SIGMAS):
        for method in METHODS:
            layer = "final" if "cam" in method else "input"
            made = certificate(study, job_of(study, "2.png", method, layer, sigma))
            for level in LEVELS:
                shown = picture(tile(figure, pc.METHODS[method].short, f"K = {level} %", 0, block))
                np.testing.assert_array_equal(shown, paint_labels(made.labels[level], level_colours(LEVELS)[level]))


def test_teaser_shows_the_clean_map_the_studys_own_noise_and_the_overlay(study, findings):
    figure = draw(findings, "teaser", methods=["grad_cam"])
    first = findings.scenes("image")[0].name
    job = job_of(study, first, "grad_cam", "final")
    materials = study.materials(study.resolve())
    explainer, image = materials.explainer(job), materials.image(job)
    votes = study.store.load_votes(job)
    from pixelcert.noise import key_of, noisy, snap

    samples = [snap(image)[None], noisy(snap(image), 0.1, key_of(job.plan, votes.provenance.image), [0, 1, 2, 3])]
    maps = [
        m for batch in samples for m in pc.explainer.explain(explainer, batch, votes.provenance.target).maps.numpy()
    ]
    wanted = [np.clip(m.clip(0) / np.percentile(m.clip(0).astype(float), 99.5), 0, 1) for m in maps]
    photo, clean, *stack, overlay = [picture(axes) for axes in figure.axes]
    np.testing.assert_array_equal(photo, votes.photo)
    np.testing.assert_allclose(clean, wanted[0], atol=1e-5)
    for shown, sample in zip(stack, wanted[:0:-1], strict=True):  # the first sample is drawn last, on top
        np.testing.assert_allclose(shown, sample, atol=1e-5)
    made = certificate(study, job)
    np.testing.assert_array_equal(overlay, paint_overlay(made.overlay, level_colours(LEVELS), votes.photo))


def test_vit_figures_show_the_transformer(plain, study):
    made = certificate(plain, plain.jobs()[0])
    shown = picture(tile(draw(plain, "vit-maps"), "input layer", "K = 25 %"))
    np.testing.assert_array_equal(shown, paint_labels(made.labels[25], level_colours([25])[25]))
    assert picture(tile(draw(plain, "vit-overlays"), "SS", "Grad")).shape == (64, 64)


# ── AggAtt ────────────────────────────────────────────────────────────────────────────────────────────────────────


def sorted_grids(study: pc.Study, table, method: str, layer: str, level: float, sigma: float = 0.1) -> list[Job]:
    """From the best score, undefined ones last."""
    where = {"model": "tiny", "method": method, "layer": layer, "sigma": sigma, "tau": 0.6, "level": level}
    chosen = [row for row in table if all(row[name] == value for name, value in where.items())]
    scores = {row["name"]: row["value"] for row in chosen if row["metric"] == "certified_grid_pg"}
    names = sorted(scores, key=lambda name: -math.inf if scores[name] is None else scores[name], reverse=True)
    return [job_of(study, name, method, layer, sigma) for name in names]


def shaded(labels: np.ndarray) -> np.ndarray:
    return np.array([[{1: 1.0, 0: 0.0, -1: 0.5}[label] for label in row] for row in labels.tolist()])


def test_aggatt_examples_are_the_medians_of_their_bins(study, findings, table):
    figure = draw(findings, "aggatt-examples", model="tiny", level=50)
    for block, layer in enumerate(("input", "final")):
        for method in METHODS:
            jobs = sorted_grids(study, table, method, layer, 50)
            # seven grids: the first is in 0-2 %, three in 5-50 %, three in 50-95 %, none in the others
            for column, index in (("0–2 %", 0), ("5–50 %", 2), ("50–95 %", 5)):
                axes = tile(figure, pc.METHODS[method].short, column, 0, block)
                labels = certificate(study, jobs[index]).labels[50]
                np.testing.assert_array_equal(picture(axes), shaded(labels))
                (outline,) = axes.patches
                assert outline.get_xy() == (
                    jobs[index].scene.cell % 2 * 24 - 0.5,
                    jobs[index].scene.cell // 2 * 24 - 0.5,
                )
            for column in ("2–5 %", "95–98 %", "98–100 %"):
                axes = tile(figure, pc.METHODS[method].short, column, 0, block)
                assert is_missing(axes)
                assert [text.get_text() for text in axes.texts] == ["no grid"]


def test_aggatt_means_have_the_target_cell_at_the_top_left(study, findings, table):
    figure = draw(findings, "aggatt-means", model="tiny", level=25)
    blocks = [(0.1, 50), (0.1, 25), (0.1, 10), (0.2, 25)]
    for row, layer in enumerate(("input", "final")):
        for block, (sigma, level) in enumerate(blocks):
            jobs = sorted_grids(study, table, "rise", layer, level, sigma)
            for column, few in (("0–2", jobs[:1]), ("5–50", jobs[1:4]), ("50–95", jobs[4:])):
                turned = []
                for job in few:
                    labels = shaded(certificate(study, job).labels[level])
                    down, across = divmod(job.scene.cell, 2)
                    cells = [
                        [labels[24 * ((r + down) % 2) :][:24, 24 * ((c + across) % 2) :][:, :24] for c in (0, 1)]
                        for r in (0, 1)
                    ]
                    turned.append(np.block(cells))
                shown = picture(tile(figure, "RISE", column, row, block))
                np.testing.assert_allclose(shown, np.mean(turned, axis=0))


# ── Words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_caption_states_the_settings(findings):
    for name in set(FIGURES) - VIT:
        line = caption(draw(findings, name, model="tiny", methods=["rise", "grad_cam"]))
        for fact in ("tiny", "σ = 0.1", "n = 44", "τ = 0.6", "R = 0.025", "K = ", "α = 0.001", "default preset"):
            assert fact in line, f"{name}: {fact} is not in {line!r}"
        count = r"image \d\.png|3 of 3 images|3 images|6 of 7 grids|7 grids"
        assert re.search(count, line), f"{name}: {line!r}"


@pytest.mark.parametrize(("correction", "said"), [("joint", "(joint)"), ("none", "(not corrected)"), (None, "(holm)")])
def test_captions_state_the_correction(study, correction, said):
    findings = Findings(study)
    findings.settings = study.settings.model_copy(update={"correction": correction})
    assert f"α = 0.001 {said}" in caption(draw(findings, "bars-level", methods=["grad"]))


def test_words_promise_a_majority_and_no_more(findings):
    docs = Path(__file__).parents[1] / "docs"
    texts = {name: (docs / name).read_text() for name in ("figures.md", "make_notebook.py", "first-look.ipynb")}
    texts["teaser"] = caption(draw(findings, "teaser", methods=["grad"]))
    for name, text in texts.items():
        plain = " ".join(text.replace('"', " ").split())
        assert "provably" not in plain, name
        assert "can move them" not in plain, name
        assert "keep their majority under noise" in plain, name
        assert "for every change of the image below R" in plain, name
        assert "with confidence 1-α" in plain.lower(), name


@pytest.fixture(scope="module")
def sizes(tmp_path_factory) -> pc.Study:
    """Models of two sizes, of which the second has the smaller radius: 0.02498 to the first's 0.02502 at σ = 0.0989."""
    return small_study(
        tmp_path_factory.mktemp("sizes"),
        models=["tiny", "large"],
        model={"tiny": {"model": "small_studies:tiny"}, "large": {"model": "small_studies:tiny", "size": 48}},
        sigma=[0.0989149, 0.2],
        tau=[0.6, 0.7, 0.75],
        images={"folder": "photos", "count": 1},
    )


def test_radius_beside_lanes_is_the_smallest_of_all_models(sizes):
    assert not sizes.run().failures
    for model, radius in (("tiny", "R = 0.025"), ("large", "R = 0.024"), (None, "R = 0.024")):
        assert radius in [text.get_text() for text in draw(sizes, "bars-radius", model=model, tau=0.6).texts]


def test_captions_name_the_tau_that_n_cannot_reach(sizes):
    assert not sizes.run().failures
    assert "out of reach" not in caption(draw(sizes, "bars-level", tau=0.6))
    assert "τ = 0.75 out of reach: n ≥ 51" in caption(draw(sizes, "bars-level", tau=0.75))
    line = caption(draw(sizes, "tau"))
    assert "τ = 0.7 out of reach at 48 × 48 pixels: n ≥ 42" in line
    assert "τ = 0.75 out of reach: n ≥ 51" in line
    assert "out of reach" not in caption(draw(sizes, "bars-level", tau=0.7, model="tiny"))


def test_captions_follow_what_is_asked(findings):
    line = caption(draw(findings, "tradeoff", sigma=0.2, tau=0.65, level=10))
    for fact in (
        "tiny, crooked",
        "σ = 0.2",
        "τ = 0.65",
        "R = 0.076",
        "K = 10 %",
    ):  # 0.0771 less the grid's step, rounded down
        assert fact in line
    assert "σ = 0.1, 0.2" in caption(draw(findings, "bars-radius"))
    assert "τ = 0.6, 0.65" in caption(draw(findings, "tau"))
    assert "K = 50, 25, 10 %" in caption(draw(findings, "bars-level"))


def test_captions_count_what_is_finished(study, tmp_path):
    copied = tmp_path / "study"
    shutil.copytree(study.folder, copied)
    some = pc.Study(study.settings, study.base, copied)
    for job in some.jobs():
        if (job.method, job.scene.name, job.scene.kind) == ("grad", "1.png", "image"):
            some.store.measures_file(job).unlink()
    assert "2 of 3 images" in caption(draw(some, "deletion", methods=["grad"]))
    assert "2 to 3 of 3 images" in caption(draw(some, "deletion", model="tiny"))


@pytest.mark.parametrize("name", sorted(set(FIGURES) - VIT))
def test_nothing_written_runs_off_the_page_or_over_another(findings, name):
    figure = draw(findings, name)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = [*figure.texts, *(axes.title for axes in figure.axes), *(axes._left_title for axes in figure.axes)]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    texts += [label for axes in figure.axes for label in (axes.xaxis.label, axes.yaxis.label)]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_text().strip()]
    for text, box in boxes:
        assert box.x0 >= 0, text
        assert box.x1 <= figure.bbox.width, text
        assert box.y0 >= 0, text
        assert box.y1 <= figure.bbox.height, text
    for (one, box), (other, another) in combinations(boxes, 2):
        across = min(box.x1, another.x1) - max(box.x0, another.x0)
        along = min(box.y1, another.y1) - max(box.y0, another.y0)
        assert min(across, along) <= 2, f"{one!r} and {other!r}"


# ── Palette ───────────────────────────────────────────────────────────────────────────────────────────────────────

# Machado, Oliveira and Fernandes (2009), severity 1, in linear RGB: what people without red, green or blue cones see.
EYES = {
    "all cones": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def seen(colour: str, eyes: np.ndarray) -> np.ndarray:
    """A colour in CIELAB, where distances are as people judge them: 2.3 is just noticed."""
    values = np.array(to_rgb(colour))
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(eyes @ linear, 0, 1) / (0.9505, 1, 1.089)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("eyes", EYES)
def test_methods_and_families_differ_to_all_eyes(eyes):
    points = {method: seen(colour, EYES[eyes]) for method, (colour, _) in LOOKS.items()}
    for one, other in combinations(LOOKS, 2):
        same = pc.METHODS[one].family == pc.METHODS[other].family
        assert np.linalg.norm(points[one] - points[other]) > (10 if same else 20), f"{one} and {other}"
    for one, other in combinations(FAMILIES.values(), 2):
        assert np.linalg.norm(seen(one, EYES[eyes]) - seen(other, EYES[eyes])) > 20


def test_methods_of_a_family_have_markers_of_their_own():
    for family in FAMILIES:
        markers = [marker for method, (_, marker) in LOOKS.items() if pc.METHODS[method].family == family]
        assert len(set(markers)) == len(markers)


@pytest.mark.parametrize("colour", FAMILIES.values())
def test_shades_of_one_zero_and_abstain_go_from_dark_to_light(colour):
    lightness = [seen(matplotlib.colors.to_hex(shade), np.eye(3))[0] for shade in shades(colour)]
    assert np.diff(lightness).min() > 15


# ── What a study cannot give ──────────────────────────────────────────────────────────────────────────────────────

LACKS = {
    "grids": "no grids",
    "bars-radius": "one σ",
    "bars-level": "one K",
    "boxes-radius": "no grids",
    "boxes-level": "no grids",
    "tradeoff": "no grids",
    "deletion": "deletion was not measured",
    "tau": "one τ",
    "gridpg": "no grids",
    "matrix": "one σ",
    "aggatt-examples": "no grids",
    "aggatt-means": "no grids",
}


@pytest.mark.parametrize(("name", "why"), LACKS.items())
def test_figures_that_a_study_cannot_give_are_refused_with_the_reason(plain, name, why):
    with pytest.raises(UnavailableError, match=why):
        draw(plain, name)


def test_study_without_a_finished_job_is_refused(tmp_path):
    planned = small_study(tmp_path)
    planned.resolve()
    with pytest.raises(pc.ArgumentError, match=r"no job in .* is finished: `pixelcert study run`"):
        Findings(planned)


@pytest.mark.parametrize("name", sorted(VIT))
def test_vit_figures_need_a_transformer(findings, name):
    with pytest.raises(UnavailableError, match="no vision transformer"):
        draw(findings, name)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"model": "resnet18"}, "model 'resnet18' is not in the study: choose one of tiny, crooked"),
        ({"layer": "middle"}, "layer 'middle'"),
        ({"methods": ["lrp"]}, "method 'lrp'"),
        ({"image": "9.png"}, "image '9.png' is not in the study: choose one of"),
        ({"sigma": 0.3}, "sigma=0.3"),
        ({"level": 20}, "level=20"),
    ],
)
def test_settings_outside_the_study_are_refused(findings, asked, message):
    with pytest.raises(pc.ArgumentError, match=re.escape(message)):
        draw(findings, "maps", **asked)


# ── Files and the command ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def command(monkeypatch, capsys) -> Callable[..., SimpleNamespace]:
    monkeypatch.setenv("COLUMNS", "300")

    def run(*arguments: Any) -> SimpleNamespace:
        monkeypatch.setattr(sys, "argv", ["pixelcert", "figure", *map(str, arguments)])
        code: Any = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        said = capsys.readouterr()
        return SimpleNamespace(code=code, said=" ".join((said.out + said.err).split()))

    return run


@pytest.fixture
def quick(monkeypatch) -> None:
    """Draws at a low resolution."""
    from pixelcert.figures import sheet as page

    monkeypatch.setitem(page.STYLE, "figure.dpi", 40)


@pytest.mark.usefixtures("quick")
def test_all_makes_every_figure_it_can_and_notes_the_others(command, study):
    run = command("all", study.base / "study.toml")
    assert run.code == 0
    made = {path.name for path in (study.folder / "figures").iterdir()}
    assert made == {f"{name}.{kind}" for name in set(FIGURES) - VIT for kind in ("pdf", "png")}
    for name in VIT:
        assert re.search(f"{name}: skipped: .*no vision transformer", run.said)
    for path in (study.folder / "figures").glob("*.pdf"):
        assert path.read_bytes()[:5] == b"%PDF-"
    for path in (study.folder / "figures").glob("*.png"):
        with Image.open(path) as image:
            assert image.size[0] > 150


def test_one_figure_goes_where_and_as_it_is_asked(command, study, tmp_path):
    run = command("maps", study.base / "study.toml", "-o", tmp_path / "here", "--format", "png", "--method", "grad")
    assert run.code == 0
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["maps.png"]


def test_figure_refused_by_name_says_why_and_fails(command, plain, tmp_path):
    run = command("tradeoff", plain.base / "study.toml", "-o", tmp_path)
    assert run.code == 1
    assert "no grids" in run.said
    assert not list(tmp_path.iterdir())


def test_file_in_the_place_of_the_folder_is_refused(command, plain, tmp_path):
    (tmp_path / "file").touch()
    run = command("maps", plain.base / "study.toml", "-o", tmp_path / "file")
    assert run.code == 1
    assert "is a file: name a folder" in run.said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tease", "study.toml"], "figure 'tease' is not known: choose one of teaser"),
        (["teaser"], "figure teaser needs a study"),
        (["teaser", "study.toml", "--format", "svg"], "--format svg is not known: use pdf or png"),
        (["teaser", "nowhere.toml"], "nowhere.toml does not exist"),
    ],
)
def test_mistakes_are_answered_with_a_remedy(command, arguments, message):
    run = command(*arguments)
    assert run.code == 1
    assert message in run.said


def test_names_are_listed_without_arguments_and_in_the_help(command):
    for run in (command(), command("--help")):
        assert run.code == 0
        for name, entry in FIGURES.items():
            assert name in run.said
            assert entry.about.split(",")[0] in run.said


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["maps", "boxes-level"])
@pytest.mark.parametrize("kind", ["pdf", "png"])
def test_equal_figures_make_equal_files(study, findings, tmp_path, name, kind):
    first = save(draw(findings, name), tmp_path / f"first.{kind}").read_bytes()
    with matplotlib.rc_context({"font.size": 20, "axes.linewidth": 5, "savefig.dpi": 30, "text.color": "red"}):
        second = save(draw(Findings(study), name), tmp_path / f"second.{kind}").read_bytes()
    assert first == second
    assert b"CreationDate" not in first
    assert b"Software" not in first


def test_files_are_pdf_or_png(findings, tmp_path):
    with pytest.raises(pc.ArgumentError, match=r"\.png, \.pdf or \.svg"):
        save(Figure(), tmp_path / "figure.jpg")


def test_drawing_needs_no_pyplot(study, tmp_path):
    code = """if True:
        import sys
        import pixelcert as pc
        from pixelcert.figures import draw, save
        sys.path.insert(0, sys.argv[3])
        save(draw(pc.Study.open(sys.argv[1]), "bars-level"), sys.argv[2])
        assert "matplotlib.pyplot" not in sys.modules
    """
    path = tmp_path / "bars.pdf"
    subprocess.run([sys.executable, "-c", code, study.base / "study.toml", path, Path(__file__).parent], check=True)
    assert path.stat().st_size > 1000
