"""The picture says what the certificate says, to the pixel, and no more."""

import io
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

import pixelcert as pc
from pixelcert.figures.palette import ABSTAINED, ZERO, level_colours, paint_overlay

WHITE, GREY = (1.0, 1.0, 1.0), tuple(np.array([0xB9, 0xBC, 0xC0]) / 255)
SEVEN = (90, 50, 25, 12.5, 10, 5, 1)


@pytest.fixture
def make_certificate(make_votes) -> Callable[..., pc.Certificate]:
    """Certifies labels that are given as they should come out: level → (H, W) of 1, 0, ABSTAIN."""

    def make(labels: dict[float, Any], *, tau: float = 0.75, alpha: float = 0.001, correction=None, **settings: Any):
        wanted = np.stack([np.array(rows) for rows in labels.values()])
        n = settings.get("n", 100)
        ones = np.select([wanted == 1, wanted == 0], [n, 0], n // 2).astype(np.int32)
        votes = make_votes(tuple(labels), wanted.shape[1:], ones=ones, zeros=n - ones, **settings)
        certificate = votes.certify(tau, alpha, correction=correction)
        for level, rows in labels.items():
            np.testing.assert_array_equal(certificate.labels[level], rows)
        return certificate

    return make


NESTED = {  # per pixel, in both levels, in the larger alone, in none, unknown
    50: [[1, 1, 0, -1], [0, 0, 1, -1], [-1, 1, 1, 0]],
    10: [[1, 0, 0, -1], [0, 0, -1, 0], [-1, 1, 0, 0]],
}


def some_labels(levels: tuple[float, ...], size: tuple[int, int]) -> dict[float, np.ndarray]:
    """Nested labels of any size: a pixel is in the top K % where its random rank is below K, apart from a border."""
    rank = np.random.default_rng(4).uniform(0, 100, size)
    return {level: np.select([rank < 0.9 * level, rank > 1.1 * level], [1, 0], -1) for level in levels}


def panel(figure: Figure, title: str) -> Axes:
    found = [axes for axes in figure.axes if title in [text.get_text() for text in axes.texts]]
    assert len(found) == 1, f"{len(found)} panels are called {title!r}"
    return found[0]


def picture(axes: Axes) -> np.ndarray:
    (image,) = axes.images
    return np.ma.filled(image.get_array(), np.nan)


def words(figure: Figure) -> list[str]:
    """Every text outside the panels, and the legend's."""
    return [text.get_text() for text in (*figure.texts, *figure.legends[0].get_texts())]


def footer(figure: Figure) -> str:
    """The settings and the promise below the legend."""
    (_, settings, promise) = [text.get_text() for text in figure.texts]
    return f"{settings}\n{promise}"


def number_after(name: str, line: str) -> float:
    return float(line.partition(f"{name} = ")[2].split()[0])


# ── Panels ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_certified_maps_are_the_level_colour_white_and_grey(make_certificate):
    figure = make_certificate(NESTED).plot()
    colours = level_colours((50, 10))
    for level, rows in NESTED.items():
        shown = picture(panel(figure, f"Certified, K = {level} %"))
        palette = {1: colours[level], 0: WHITE, -1: GREY}
        wanted = np.array([[palette[label] for label in row] for row in rows])
        np.testing.assert_allclose(shown, wanted, atol=1e-12)


def test_palette_of_zeros_and_abstentions_is_white_and_grey():
    assert ZERO == WHITE
    assert pytest.approx(GREY) == ABSTAINED


@pytest.mark.parametrize("levels", [(50,), (50, 10), SEVEN])
def test_colours_darken_as_levels_shrink_and_differ_from_white_and_grey(levels):
    colours = level_colours(levels)
    lightness = [np.dot(colours[level], (0.2126, 0.7152, 0.0722)) for level in sorted(levels, reverse=True)]
    assert lightness == sorted(lightness, reverse=True)
    different = {*colours.values(), WHITE, GREY}
    assert len(different) == len(levels) + 2
    assert colours == level_colours(levels[::-1])


def test_overlay_shows_the_smallest_certified_level(make_certificate):
    certificate = make_certificate(NESTED)
    shown = picture(panel(certificate.plot(), "Overlay"))
    colours = {**level_colours((50, 10)), "none": (0.93, 0.93, 0.93)}
    wanted = [[10, 50, "none", "none"], ["none", "none", 50, "none"], ["none", 10, 50, "none"]]
    nearest = [[min(colours, key=lambda name: np.abs(pixel - colours[name]).sum()) for pixel in row] for row in shown]
    assert nearest == wanted
    by_name = {name: {tuple(shown[i, j]) for i, j in np.ndindex(3, 4) if wanted[i][j] == name} for name in colours}
    assert all(len(same) == 1 for same in by_name.values()), "without a photograph each level has one colour"


def test_overlay_paints_levels_that_are_no_whole_numbers(make_certificate):
    """The overlay holds float32, in which 12.3 is another number."""
    shown = picture(panel(make_certificate({12.3: [[1, 0, -1]]}).plot(), "Overlay"))
    colour = np.array(level_colours((12.3,))[12.3])
    assert np.abs(shown[0, 0] - colour).max() < 0.2 < np.abs(shown[0, 1] - colour).max()


def test_overlay_keeps_the_photograph_visible_where_nothing_is_certified_in(make_certificate):
    photo = np.zeros((3, 4, 3), np.uint8)
    photo[:, 2:] = 255
    shown = picture(panel(make_certificate(NESTED, photo=photo).plot(), "Overlay"))
    assert shown[1, 0].max() < shown[0, 2].min()  # both in no level; dark and light in the photograph
    assert np.ptp(shown[1, 0]) == np.ptp(shown[0, 2]) == 0


def test_radius_map_shows_each_radius_and_nothing_where_there_is_none(make_certificate):
    certificate = make_certificate(NESTED)
    shown = picture(panel(certificate.plot(), "Radius map"))
    radii = certificate.votes.radius_map(50, certificate.alpha)
    assert (radii == 0).any()
    assert (radii > 0).any()
    np.testing.assert_array_equal(np.isnan(shown), radii == 0)
    np.testing.assert_array_equal(shown[radii > 0], radii[radii > 0])


def test_radius_map_is_grey_where_it_has_no_value(make_certificate):
    axes = panel(make_certificate(NESTED).plot(), "Radius map")
    assert axes.get_facecolor()[:3] == pytest.approx(GREY)
    assert axes.images[0].cmap.get_bad()[3] == 0, "a colour for NaN would hide the grey behind it"


def test_smoothed_map_shows_shares_from_zero_to_one(make_certificate):
    certificate = make_certificate(NESTED)
    axes = panel(certificate.plot(), "Smoothed map")
    np.testing.assert_array_equal(picture(axes), certificate.votes.ones[0] / 100)
    assert axes.images[0].get_clim() == (0, 1)


def test_photograph_is_shown_as_it_is(make_certificate):
    photo = np.random.default_rng(5).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    shown = picture(panel(make_certificate(NESTED, photo=photo).plot(), "Photograph"))
    np.testing.assert_array_equal(shown, photo)


def test_every_panel_shows_pixels_and_does_not_blur_them(make_certificate):
    figure = make_certificate(NESTED).plot()
    images = [image for axes in figure.axes for image in axes.images]
    assert len(images) == 6
    assert {image.get_interpolation() for image in images} == {"nearest"}
    assert {image.get_array().shape[:2] for image in images} == {(3, 4)}


# ── Words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_footer_tells_the_settings_and_rounds_the_radius_down(make_certificate):
    certificate = make_certificate(NESTED, sigma=0.15)
    assert f"{certificate.radius:.4f}" == "0.1012", "this example should round up"
    line = footer(certificate.plot())
    for words_ in ("R = 0.1011", "σ = 0.15", "n = 100", "τ = 0.75", "α = 0.001", "holm", "99.9 %"):
        assert words_ in line


@pytest.mark.parametrize("tau", [0.7499999, 0.75, 0.7654321, 0.8])
def test_footer_promises_no_larger_tau_than_was_tested(make_certificate, tau):
    line = footer(make_certificate(NESTED, tau=tau).plot())
    assert tau - 1e-3 < number_after("τ", line) <= tau


@pytest.mark.parametrize("alpha", [1e-7, 1e-9, 0.05, 0.00123456789])
def test_footer_promises_no_more_confidence_than_was_tested(make_certificate, alpha):
    line = footer(make_certificate(NESTED, alpha=alpha, n=200).plot())
    confidence = float(line.partition("confidence ")[2].split()[0])
    exact = 100 * (1 - alpha)
    assert exact - 0.01 < confidence <= exact * (1 + 1e-12)  # but for the rounding of this very line
    assert confidence < 100


def test_shares_stand_beside_each_map(make_certificate):
    details = [text.get_text() for text in panel(make_certificate(NESTED).plot(), "Certified, K = 50 %").texts]
    assert "41.7 % in · 33.3 % out · 25.0 % abstain" in details


def test_legend_names_every_colour_that_is_used(make_certificate):
    figure = make_certificate(NESTED).plot()
    (legend,) = figure.legends
    entries = zip(legend.get_texts(), legend.get_patches(), strict=True)
    shown = {text.get_text(): patch.get_facecolor()[:3] for text, patch in entries}
    colours = level_colours((50, 10))
    assert [colour for name, colour in shown.items() if "50 %" in name] == [pytest.approx(colours[50])]
    assert [colour for name, colour in shown.items() if "10 %" in name] == [pytest.approx(colours[10])]
    assert [colour for name, colour in shown.items() if "outside" in name] == [WHITE]
    assert [colour for name, colour in shown.items() if "abstain" in name] == [pytest.approx(GREY)]


def test_title_names_image_method_layer_and_model(make_certificate):
    figure = make_certificate(NESTED, source={"layer": "layer3"}).plot()
    assert any(all(word in text for word in ("cat.png", "grad_cam", "layer3", "resnet18")) for text in words(figure))
    details = [text.get_text() for text in panel(figure, "Photograph").texts]
    assert any("tabby" in text for text in details)


def test_title_needs_no_names(make_certificate):
    nameless = {"image_name": "", "layer": "", "model": "", "class_names": {}}
    figure = make_certificate(NESTED, source=nameless).plot()
    assert "grad_cam" in words(figure)
    assert any("class 281" in text.get_text() for text in panel(figure, "Photograph").texts)


def test_without_correction_the_picture_says_study_only_and_promises_nothing(make_certificate):
    line = footer(make_certificate(NESTED, correction="none").plot())
    assert "study only" in line
    assert "with confidence" not in line


@pytest.mark.parametrize("correction", ["holm", "bonferroni", "joint"])
def test_with_correction_the_picture_names_it(make_certificate, correction):
    line = footer(make_certificate(NESTED, correction=correction).plot())
    assert correction in line
    assert "study only" not in line


HOSTILE = ["$x_1$", r"$\frac$", "$", "a$b$c$d", r"\alpha_{", "%s {} {0}", "x\ny", "<b>&amp;", "[red]x[/red]", "ε小"]


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_drawn_as_they_are_written(make_certificate, name):
    """Dollars are no mathematics here, wherever a name can stand."""
    source = {"image_name": name, "class_names": {"281": name}, "model": name, "method": name, "layer": name}
    figure = make_certificate(NESTED, source=source).plot()
    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        figure.savefig(file, format="svg")
    drawn = re.sub("<!--.*?-->", "", file.getvalue(), flags=re.DOTALL)
    if name in ("$x_1$", "a$b$c$d"):
        assert drawn.count(name) >= 5
    figure.savefig(io.BytesIO(), format="png")


# ── Sizes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("levels", [(50,), (50, 10), SEVEN], ids=len)
@pytest.mark.parametrize("size", [(8, 8), (6, 20), (20, 6)], ids=str)
def test_one_panel_per_level_at_any_shape(make_certificate, tmp_path, levels, size):
    path = tmp_path / "panel.png"
    figure = make_certificate(some_labels(levels, size), n=1000, alpha=0.01).plot(path)
    for level in levels:
        axes = panel(figure, f"Certified, K = {level} %")
        assert picture(axes).shape[:2] == size
        box = axes.get_position()
        width, height = box.width * figure.get_figwidth(), box.height * figure.get_figheight()
        assert height / width == pytest.approx(size[0] / size[1])
    assert sum(len(axes.images) for axes in figure.axes) == len(levels) + 4
    with Image.open(path) as file:
        assert file.size == pytest.approx(tuple(figure.get_size_inches() * figure.dpi), abs=1)


def texts_of(figure: Figure) -> list[Text]:
    panels = (text for axes in figure.axes if axes.images for text in axes.texts)
    return [*figure.texts, *figure.legends[0].get_texts(), *panels]


@pytest.mark.parametrize("correction", ["holm", "bonferroni", "joint", "none"])
@pytest.mark.parametrize("levels", [(50,), (50, 25, 10, 5), SEVEN], ids=len)
def test_nothing_written_runs_off_the_page(make_certificate, levels, correction):
    long = {"image_name": "ILSVRC2012_val_00000293.JPEG", "class_names": {"281": "American Staffordshire Terrier"}}
    certificate = make_certificate(some_labels(levels, (8, 8)), n=1000, correction=correction, source=long)
    figure = certificate.plot()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for text in texts_of(figure):
        box = text.get_window_extent(canvas.get_renderer())
        assert box.x0 >= 0, text.get_text()
        assert box.x1 <= figure.bbox.width, text.get_text()
        assert box.y0 >= 0, text.get_text()
        assert box.y1 <= figure.bbox.height, text.get_text()


def test_no_two_texts_overlap(make_certificate):
    levels = some_labels((50, 25, 10, 5), (8, 8))
    figure = make_certificate(levels, n=1000, source={"class_names": {"281": "American Staffordshire Terrier"}}).plot()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in texts_of(figure)]
    for index, (one, box) in enumerate(boxes):
        for other, another in boxes[index + 1 :]:
            across = min(box.x1, another.x1) - max(box.x0, another.x0)
            along = min(box.y1, another.y1) - max(box.y0, another.y0)
            assert min(across, along) <= 1, f"{one!r} and {other!r}"  # a pixel of antialiasing


def test_long_names_do_not_change_the_page(make_certificate, tmp_path):
    ordinary = make_certificate(NESTED).plot()
    long = "a very long name " * 30
    source = {"image_name": long, "class_names": {"281": long}, "model": long, "layer": long}
    figure = make_certificate(NESTED, source=source).plot(tmp_path / "long.png")
    assert tuple(figure.get_size_inches()) == tuple(ordinary.get_size_inches())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("label", [1, 0, -1])
def test_maps_of_one_label_are_drawn_without_a_warning(make_certificate, tmp_path, label):
    make_certificate({50: np.full((4, 4), label), 10: np.full((4, 4), label)}).plot(tmp_path / "one.png")


@pytest.mark.filterwarnings("error")
def test_image_of_one_pixel_is_drawn(make_certificate, tmp_path):
    make_certificate({50: [[1]]}).plot(tmp_path / "one.png")


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_the_path_chooses_the_format(make_certificate, tmp_path, suffix):
    path = tmp_path / f"panel.{suffix}"
    assert isinstance(make_certificate(NESTED).plot(path), Figure)
    assert path.read_bytes().lstrip()[:5] in (b"\x89PNG\r", b"%PDF-", b"<?xml")


@pytest.mark.parametrize("name", ["panel", "panel.", "panel.xyz", ".png"])
def test_a_path_that_names_no_format_is_refused_before_drawing(make_certificate, tmp_path, monkeypatch, name):
    monkeypatch.setattr("pixelcert.figures.panels.certificate_panel", lambda _: pytest.fail("drawing began"))
    with pytest.raises(pc.ArgumentError, match=r"does not name a kind of picture: end it in \.png"):
        make_certificate(NESTED).plot(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_plotting_needs_no_pyplot_and_no_torch(make_votes, tmp_path):
    """pyplot keeps every figure in memory and may want a display."""
    votes = make_votes().save(tmp_path / "votes.safetensors")
    code = """if True:
        import sys
        from matplotlib.figure import Figure
        from pixelcert.votes import Votes
        figure = Votes.load(sys.argv[1]).certify().plot(sys.argv[2])
        assert type(figure) is Figure
        assert "matplotlib.pyplot" not in sys.modules
        assert "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code, votes, tmp_path / "panel.png"], check=True)
    assert (tmp_path / "panel.png").stat().st_size > 1000


def test_gallery_shows_smoothed_map_and_overlay_of_every_certificate(make_certificate):
    from pixelcert.figures import certificate_gallery

    certificate = make_certificate(NESTED)
    figure = certificate_gallery({"one": [certificate, certificate], "two": [certificate, certificate]})
    assert len(figure.axes) == 8
    for smoothed, overlay in zip(figure.axes[::2], figure.axes[1::2], strict=True):
        assert np.array_equal(picture(smoothed), certificate.smoothed(certificate.levels[0]))
        colours = level_colours(certificate.levels)
        assert np.array_equal(picture(overlay), paint_overlay(certificate.overlay, colours, certificate.votes.photo))
    assert {"one", "two"} <= set(words(figure))
