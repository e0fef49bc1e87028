"""The page in a real browser: what it paints is what the library certifies, and it talks to nobody."""

import io
import os
import re
import shutil
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from small_studies import small_study

import pixelcert as pc
from pixelcert.figures.palette import ABSTAINED, ZERO, level_colours
from pixelcert.figures.registry import FIGURES
from pixelcert.report import write_page, write_study_page
from pixelcert.report.contents import palette
from pixelcert.report.page import PageServer
from pixelcert.statistics import rounded_down, smallest_n, votes_needed

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
LEVELS = (50, 25, 10, 5)
SIZE = (30, 40)
HOSTILE = "<img src=x onerror=alert(1)>.png"
PATIENCE = 180_000  # milliseconds that a step may take, on however busy a machine


@pytest.fixture(scope="module")  # while it runs, no other test file could run an event loop of its own
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=FLAGS, timeout=PATIENCE)
        yield browser
        browser.close()


class Tab:
    """A tab that opens one page after another, and collects errors, dialogs and requests to anywhere else."""

    def __init__(self, browser: Any, **context: Any) -> None:
        self.page = page = browser.new_context(**context).new_page()
        self.troubles: list[str] = []
        self.asked: list[str] = []
        self.allowed: tuple[str, ...] = ()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: self.troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("dialog", lambda dialog: (self.troubles.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda sent: self._check(sent.url))

    def _check(self, url: str) -> None:
        self.asked.append(url)
        if not url.startswith(self.allowed):
            self.troubles.append(url)

    def open(self, url: str, width: int, height: int, scheme: str) -> Any:
        self.asked.clear()
        self.allowed = ("data:", "blob:", "file:" if url.startswith("file:") else url)
        self.page.mouse.move(0, 0)  # away from the map, where an earlier test may have left the pointer
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme=scheme)
        self.page.goto(url)
        self.page.wait_for_selector("#first .key > *", state="attached")
        return self.page


@pytest.fixture(scope="module")
def tab(browser) -> Tab:
    return Tab(browser)


@pytest.fixture(scope="module")
def phone(browser) -> Tab:
    return Tab(browser, has_touch=True, is_mobile=True)


@pytest.fixture
def visit(request) -> Iterator[Callable[..., Any]]:
    """Open a page anew in a tab that all tests share; in the end no page may have had any trouble."""
    visited: list[Tab] = []

    def visit(path: Path | str, name: str = "tab", width: int = 1280, height: int = 1000, scheme: str = "light") -> Any:
        visited.append(request.getfixturevalue(name))
        return visited[-1].open(path if isinstance(path, str) else path.as_uri(), width, height, scheme)

    yield visit
    troubles = [trouble for tab in visited for trouble in tab.troubles]
    for tab in visited:
        tab.troubles.clear()
    assert troubles == []


def simulate(make_votes, seed: int = 0, n: int = 100, guess: int = 0, size: tuple[int, int] = SIZE, **more: Any):
    """Votes of which all kinds come: nearly unanimous, split, and neither; in the first column mostly neither."""
    random = np.random.default_rng(seed)
    p = random.beta(0.08, 0.08, (len(LEVELS), *size))
    bits = random.random((n, *p.shape)) < p
    known = random.random(bits.shape) < 0.998
    known[..., 0] &= random.random(known.shape[:-1]) < 0.02
    arrays = {"ones": (bits & known).sum(0, dtype=np.int32), "zeros": (~bits & known).sum(0, dtype=np.int32)}
    if guess:
        arrays["guess_ones"] = (bits & known)[:guess].sum(0, dtype=np.int32)
    photo = random.integers(0, 256, (*size, 3), dtype=np.uint8)
    return make_votes(LEVELS, size, n, guess=guess, photo=photo, **arrays, **more)


class Report(NamedTuple):
    votes: pc.Votes
    path: Path


@pytest.fixture(scope="session")
def plain(make_votes, tmp_path_factory) -> Report:
    """The report of one map, which most tests look at."""
    votes = simulate(make_votes)
    return Report(votes, write_page(tmp_path_factory.mktemp("plain") / "report.html", [votes]).page)


def wait_until(page: Any, happens: Callable[[], bool]) -> None:
    """Playwright's own waiting for an expression needs eval, which the page's policy forbids."""
    for _ in range(PATIENCE // 20):
        if happens():
            return
        page.wait_for_timeout(20)
    raise AssertionError("it did not happen within three minutes")


SLIDE = """(values) => {
  for (const [name, value] of Object.entries(values)) {
    const slider = document.getElementById(name);
    slider.value = value;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  }
  return document.getElementById("tau-text").innerText;
}"""


def slide(page: Any, **values: int) -> str:
    """Move sliders; return the τ that the page names then."""
    return page.evaluate(SLIDE, values)


def choose(page: Any, level: float, tau: float, levels: tuple[float, ...] = LEVELS) -> None:
    assert slide(page, level=sorted(levels).index(level), tau=round(100 * tau) - 51) == f"{tau:g}"


READ = """(figure) => {
  const canvas = document.querySelector(`#${figure} canvas.pixels`);
  const { height, width } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  return [height, width, btoa(Array.from(data, (value) => String.fromCharCode(value)).join(""))];
}"""


def pixels_of(page: Any, figure: str = "first") -> NDArray[np.uint8]:
    """Return what the canvas shows, (H, W, 3)."""
    height, width, data = page.evaluate(READ, figure)
    return np.frombuffer(b64decode(data), np.uint8).reshape(height, width, 4)[..., :3]


def painted(labels: NDArray[np.int8], level: float) -> NDArray[np.uint8]:
    colours = {1: level_colours(LEVELS)[level], 0: ZERO, pc.ABSTAIN: ABSTAINED}
    picture = np.zeros((*labels.shape, 3), np.uint8)
    for label, colour in colours.items():
        picture[labels == label] = [round(255 * part) for part in colour]
    return picture


# ── The map ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("n", "guess", "correction"),
    [(100, 0, None), (100, 10, None), (300, 0, None), (300, 10, None), (100, 0, "bonferroni"), (100, 0, "joint")],
)
def test_map_is_the_certificate_pixel_for_pixel(make_votes, visit, tmp_path, n, guess, correction):
    predictions = None if guess else np.array([n - 1, 1], np.int32)
    votes = simulate(make_votes, n=n, guess=guess, predictions=predictions)
    page = visit(write_page(tmp_path / "report.html", [votes], correction=correction).page)
    slide(page, opacity=100)
    stepped = seen = 0
    for tau in (0.51, 0.6, 0.7, 0.75, 0.77, 0.8, *((0.9,) if n == 300 else ())):
        certificate = votes.certify(tau, correction=correction)
        for level in LEVELS:
            choose(page, level, tau)
            expected = painted(certificate.labels[level], level)
            assert (pixels_of(page) == expected).all()
            needed = certificate.claims[level].votes_needed
            assert f"needed {needed} of {n - guess} votes" in page.inner_text("#first .key")
            first = votes_needed(n - guess, tau, certificate.claims[level].alpha, votes.pixels, certificate.correction)
            stepped += needed < first
            seen |= sum(1 << (label + 1) for label in np.unique(certificate.labels[level]))
        assert page.inner_text("#promise") == " ".join(filter(None, (certificate.promise, certificate.together)))
        assert f"R = {rounded_down(certificate.radius)}" in page.inner_text("#radius-text")
        assert f"{rounded_down(255 * certificate.radius, 1)} grey levels" in page.inner_text("#radius-text")
    assert seen == 0b111, "all three labels were compared"
    assert bool(stepped) == (certificate.correction == "holm"), "Holm's step down was tried"


def test_shares_are_those_of_the_certificate(plain, visit):
    votes, page = plain.votes, visit(plain.path)
    choose(page, 10, 0.75)
    shares = [f"{share:.1f} %" for share in votes.certify().shares(10)]
    assert page.locator("#first .shares b").all_inner_texts() == shares
    wait_until(page, lambda: "top 10 %, τ 0.75" in page.text_content("#news"))
    assert all(share in page.text_content("#news") for share in shares)


def test_photograph_is_under_the_map(plain, visit):
    votes, page = plain.votes, visit(plain.path)
    slide(page, opacity=0)
    assert (pixels_of(page) == votes.photo).all()
    slide(page, opacity=50)
    choose(page, 25, 0.75)
    lightened = (votes.photo.astype(int) + 255) / 2
    mixed = (lightened + painted(votes.certify().labels[25], 25)) / 2
    assert np.abs(pixels_of(page) - mixed).max() <= 2


def test_labels_stay_apart_over_black_and_over_white(make_votes, visit, tmp_path):
    votes = simulate(make_votes)
    labels = votes.certify().labels[25]
    seen: dict[int, list[NDArray[np.uint8]]] = {1: [], 0: [], pc.ABSTAIN: []}
    for name, shade in (("black", 0), ("white", 255)):
        photo = np.full((*SIZE, 3), shade, np.uint8)
        page = visit(write_page(tmp_path / f"{name}.html", [replace(votes, photo=photo)]).page)
        choose(page, 25, 0.75)  # at the opacity with which the page opens
        picture = pixels_of(page).astype(int)
        for label, colours in seen.items():
            colours += list(picture[labels == label])
    for one, other in ((1, 0), (1, pc.ABSTAIN), (0, pc.ABSTAIN)):
        apart = np.abs(np.array(seen[one])[:, None] - np.array(seen[other])[None]).max(axis=2)
        assert apart.min() > 25, (one, other)


def test_radius_view_shows_the_radius_map(plain, visit):
    votes, page = plain.votes, visit(plain.path)
    slide(page, opacity=100)
    choose(page, 10, 0.75)
    page.check("input[value=radius]")
    radii = votes.radius_map(10)
    top = max(votes.radius_map(level).max() for level in LEVELS)  # some pixel is unanimous
    shades = np.array(palette()["radius"], np.uint8)[np.floor(255 * radii / top + 0.5).astype(int)]
    expected = np.where((radii > 0)[..., None], shades, np.array(palette()["abstained"], np.uint8))
    assert (pixels_of(page) == expected).all()
    assert f"{100 * (radii > 0).mean():.1f} % of the pixels have a radius" in page.inner_text("#first .key")
    assert page.is_disabled("#tau")
    page.check("input[value=smoothed]")
    grey = np.floor(255 * (1 - votes.smoothed(10)) + 0.5).astype(np.uint8)
    assert (pixels_of(page) == grey[..., None]).all()


# ── Hands ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_sliders_obey_the_keyboard_and_stop_where_n_does_not_reach(plain, visit):
    votes, page = plain.votes, visit(plain.path)
    page.focus("#level")
    page.keyboard.press("Home")
    assert page.inner_text("#level-text") == "5 %"
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#level", "aria-valuetext") == "top 10 %"
    page.focus("#tau")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#tau-text") == "0.76"
    assert page.get_attribute("#tau", "aria-valuetext") == f"τ 0.76, radius {rounded_down(votes.certify(0.76).radius)}"
    page.keyboard.press("End")
    fewest = smallest_n(0.99, 0.001, votes.pixels, "holm")
    assert f"τ = 0.99 is out of reach: it needs n ≥ {fewest}" in page.inner_text("#reach")
    best = float(page.inner_text("#tau-text"))
    votes.certify(best)
    with pytest.raises(pc.InfeasibleError):
        votes.certify(best + 0.01)
    page.keyboard.press("ArrowLeft")
    assert f"{best + 0.01:g} needs n ≥ {smallest_n(best + 0.01, 0.001, votes.pixels)}" in page.inner_text("#reach")


def expected_words(votes: pc.Votes, row: int, column: int, level: float, tau: float) -> list[str]:
    place = votes.index(level)
    label = votes.certify(tau).labels[level][row, column]
    within, own = rounded_down(votes.certify(tau).radius), votes.radius_map(level)[row, column]
    return [
        f"Row {row + 1}, column {column + 1}",
        f"{votes.ones[place, row, column]} votes in the top {level} %",
        f"{votes.zeros[place, row, column]} outside",
        {1: f"robustly in within R = {within}", 0: f"robustly out within R = {within}", -1: "no promise"}[int(label)],
        f"own radius {rounded_down(own)} ({rounded_down(255 * own, 1)} grey levels on one value)"
        if own
        else "radius 0",
        "hold for all τ at once, with their own α. So an own radius can be smaller than the R of a certified label",
    ]


def point_at(page: Any, row: int, column: int) -> dict[str, float]:
    box = page.locator("#first canvas.pixels").bounding_box()
    return {
        "x": box["x"] + box["width"] * (column + 0.5) / SIZE[1],
        "y": box["y"] + box["height"] * (row + 0.5) / SIZE[0],
    }


def wait_until_shown(page: Any, row: int, column: int) -> None:
    """A browser that is busy hears of the pointer later."""
    wait_until(page, lambda: page.inner_text("#pixel").startswith(f"Row {row + 1}, column {column + 1}"))


def test_pixel_under_the_pointer_is_described(plain, visit):
    votes, page = plain.votes, visit(plain.path)
    choose(page, 25, 0.75)
    for row, column in ((0, 0), (13, 27), (29, 39)):
        page.mouse.move(*point_at(page, row, column).values())
        wait_until_shown(page, row, column)
        for words in expected_words(votes, row, column, 25, 0.75):
            assert words in page.inner_text("#pixel")
    page.check("input[value=radius]")
    page.mouse.move(*point_at(page, 13, 27).values())
    wait_until_shown(page, 13, 27)
    assert "own radius" in page.inner_text("#pixel")
    assert "At τ" not in page.inner_text("#pixel")


def test_words_are_of_the_majority_and_of_what_it_needs(make_votes, visit, tmp_path):
    votes = simulate(make_votes, predictions=np.array([99, 1], np.int32))
    page = visit(write_page(tmp_path / "report.html", [votes]).page)
    assert "in 99 of 100 noisy copies (certified)." in page.inner_text("#answer")
    assert "majorities" in page.inner_text("#lead")
    assert "deterministic explainer that computes each map only from its own noisy image" in page.inner_text("main")
    assert "Trying many K, τ, methods or images" in page.inner_text("main")
    page.check("input[value=radius]")
    assert "majority label" in page.inner_text("#lead")
    for view in ("radius", "smoothed"):  # the prediction's verdict shares α with the labels at τ
        page.check(f"input[value={view}]")
        assert page.inner_text("#answer").endswith("in 99 of 100 noisy copies.")


def test_labels_without_correction_promise_nothing(make_votes, visit, tmp_path):
    votes = [simulate(make_votes, seed, source={"method": f"method {seed}"}) for seed in range(2)]
    page = visit(write_page(tmp_path / "report.html", votes, correction="none").page)
    page.check("#compare")
    page.wait_for_selector("#agreement-table td")
    page.hover("#first canvas.pixels")
    wait_until(page, lambda: page.inner_text("#pixel").startswith("Row"))
    with written_words(page) as words:
        page.evaluate("() => { composePicture(); }")
    for text in (page.inner_text("body"), words()):
        assert not re.search("robustly|Guaranteed|α|confidence 99|R = ", text)
        assert "not corrected for many pixels: for study only" in text
    assert page.is_hidden("#guaranteed")


def test_tau_chosen_after_looking_is_remarked(make_votes, visit, tmp_path):
    page = visit(write_page(tmp_path / "report.html", [simulate(make_votes)], tau=0.7).page)
    assert page.inner_text("#beforehand") == ""
    choose(page, 25, 0.75)
    assert page.inner_text("#beforehand").startswith("τ = 0.7 was set beforehand.")
    with written_words(page) as words:
        page.evaluate("() => { composePicture(); }")
    assert "τ = 0.7 was set beforehand." in words()
    page.check("input[value=radius]")
    assert page.inner_text("#beforehand") == ""


def test_pixel_is_described_when_tapped(plain, visit):
    votes, page = plain.votes, visit(plain.path, "phone")
    choose(page, 10, 0.7)
    page.locator("#first canvas.pixels").scroll_into_view_if_needed()
    page.touchscreen.tap(*point_at(page, 5, 7).values())
    wait_until_shown(page, 5, 7)
    for words in expected_words(votes, 5, 7, 10, 0.7):
        assert words in page.inner_text("#pixel")


def test_pixels_are_reached_by_keyboard_and_read_aloud(plain, visit):
    votes, page = plain.votes, visit(plain.path)
    choose(page, 25, 0.75)
    page.focus("#first canvas.pixels")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Shift+ArrowLeft"):
        page.keyboard.press(key)
    words = expected_words(votes, 16, 11, 25, 0.75)
    assert all(part in page.inner_text("#pixel") for part in words)
    wait_until(page, lambda: page.text_content("#news").startswith("Row 17"))


def test_every_control_has_a_name_and_every_picture_an_alternative(make_votes, visit, tmp_path):
    votes = [simulate(make_votes, source={"method": name, "layer": layer}) for name in "ab" for layer in "xy"]
    page = visit(write_page(tmp_path / "report.html", votes).page)
    page.check("#compare")
    page.wait_for_selector("#agreement-table td")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button, canvas, img, [tabindex], [role], table")]
          .filter((e) => !e.closest("[hidden]") && !e.closest("[aria-hidden=true]") && e.id !== "explorer")
          .filter((e) => !(e.ariaLabel || e.alt || e.labels?.[0]?.textContent.trim() || e.textContent.trim()))
          .filter((e) => e.role !== "status")
          .map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    tree = page.locator("body").aria_snapshot()
    for role in ("slider", "combobox", "radio", "checkbox", "button", "application", "table", "heading"):
        found = re.findall(rf"- {role}\b(.*)", tree)
        assert found, role
        assert all(name.startswith(' "') for name in found), (role, found)


# ── Two maps ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_comparison_says_what_numpy_says(make_votes, visit, tmp_path):
    votes = [simulate(make_votes, seed, source={"method": f"method {seed}"}) for seed in range(3)]
    page = visit(write_page(tmp_path / "report.html", votes).page)
    slide(page, opacity=100)
    page.check("#compare")
    page.wait_for_selector("#agreement-table td")
    page.select_option("#other-choices select", label="method 2")
    wait_until(page, lambda: "method 2" in page.inner_text("#second figcaption"))
    for level, tau in ((50, 0.6), (10, 0.75)):
        choose(page, level, tau)
        first, second = (votes[which].certify(tau).labels[level] for which in (0, 2))
        assert (pixels_of(page) == painted(first, level)).all()
        assert (pixels_of(page, "second") == painted(second, level)).all()
        table = [f"{100 * ((first == a) & (second == b)).mean():.1f} %" for a in (1, 0, -1) for b in (1, 0, -1)]
        assert page.locator("#agreement-table td").all_inner_texts() == table
        both = (first != pc.ABSTAIN) & (second != pc.ABSTAIN)
        assert f"{100 * both.mean():.1f} % of the pixels" in page.inner_text("#agreement-text")
        alike = f"{100 * (first == second)[both].mean():.1f} % have the same label"
        assert f"{alike}; {(first != second)[both].sum()} pixels differ" in page.inner_text("#agreement-text")
    page.uncheck("#compare")
    page.wait_for_selector("#second", state="hidden")


def test_second_map_with_too_few_samples_abstains_and_says_why(make_votes, visit, tmp_path):
    votes = [simulate(make_votes, n=n, source={"method": f"method {n}"}) for n in (100, 60)]
    page = visit(write_page(tmp_path / "report.html", votes, tau=0.6).page)
    slide(page, opacity=100)
    page.check("#compare")
    page.wait_for_selector("#agreement-table td")
    choose(page, 25, 0.8)
    fewest = smallest_n(0.8, 0.001, votes[1].pixels)
    assert f"τ = 0.8 is out of reach: it needs n ≥ {fewest}" in page.inner_text("#second .key")
    assert (pixels_of(page, "second") == palette()["abstained"]).all()
    assert page.inner_text("#agreement-text") == "No pixel is certified in both maps."


@contextmanager
def written_words(page: Any) -> Iterator[Callable[[], str]]:
    """What is written on canvases meanwhile, in one line."""
    page.evaluate(
        """() => {
          globalThis.written = [];
          const plain = CanvasRenderingContext2D.prototype.fillText;
          CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
            globalThis.written.push(text);
            plain.call(this, text, ...where);
          };
        }"""
    )
    yield lambda: " ".join(page.evaluate("() => globalThis.written"))


def test_maps_of_two_noises_each_say_their_own_numbers(make_votes, visit, tmp_path):
    votes = [simulate(make_votes, n=n, sigma=sigma) for n, sigma in ((100, 0.15), (120, 0.25))]
    page = visit(write_page(tmp_path / "report.html", votes).page)
    page.check("#compare")
    page.wait_for_selector("#agreement-table td")
    choose(page, 25, 0.75)
    certificates = [one.certify() for one in votes]
    numbers = [
        f"R = {rounded_down(certificate.radius)}, σ = {sigma}, n = {n}"
        for certificate, sigma, n in zip(certificates, (0.15, 0.25), (100, 120), strict=True)
    ]
    with written_words(page) as words:
        page.evaluate("() => { composePicture(); }")
    for figure, own, certificate in zip(("first", "second"), numbers, certificates, strict=True):
        caption = page.inner_text(f"#{figure} figcaption")
        assert own in caption
        assert "cat.png" in caption
        assert certificate.promise in page.inner_text("#promise")
        assert f"R = {rounded_down(certificate.radius)}" in page.inner_text("#radius-text")
        assert words().count(own) == 2, "above the map, and among the settings"
        assert certificate.promise in words()
        assert f"σ = {certificate.votes.plan.sigma}, n = " in page.inner_text("#facts")
    lines = page.inner_text("#promise").splitlines()
    assert ["Noise σ 0.15" in lines[0], "Noise σ 0.25" in lines[1]] == [True, True], "each under its own name"


def test_maps_are_compared_with_others_of_the_very_same_image(make_votes, visit, tmp_path):
    sources = [("ab" * 32, "grad"), ("cd" * 32, "grad"), ("ab" * 32, "lrp")]
    votes = [
        simulate(make_votes, seed, source={"image": image, "method": method})
        for seed, (image, method) in enumerate(sources)
    ]
    page = visit(write_page(tmp_path / "report.html", votes).page)
    slide(page, opacity=100)
    page.check("#compare")
    page.wait_for_selector("#agreement-table td")
    choose(page, 25, 0.75)
    assert (pixels_of(page, "second") == painted(votes[2].certify().labels[25], 25)).all()
    assert page.locator("#other-choices select").count() == 0, "there is one other map, and no choice"
    page.get_by_label("Method", exact=True).select_option(label="lrp")
    wait_until(page, lambda: "lrp" in page.inner_text("#first figcaption"))
    assert "grad" in page.inner_text("#second figcaption")
    page.get_by_label("Image", exact=True).select_option(label="cat.png (30 × 40, cdcdcdcdcdcd)")
    wait_until(page, lambda: page.is_hidden("#second"))
    assert page.is_disabled("#compare")
    assert (pixels_of(page) == painted(votes[1].certify().labels[25], 25)).all()
    page.get_by_label("Image", exact=True).select_option(label="cat.png (30 × 40, abababababab)")
    wait_until(page, lambda: page.is_visible("#second"))


def test_choices_lead_to_the_votes_they_name(make_votes, visit, tmp_path):
    votes = {
        (image, method, sigma): simulate(
            make_votes, seed, sigma=sigma, source={"image_name": image, "method": method, "image": image.ljust(64)}
        )
        for seed, (image, method, sigma) in enumerate(
            [("a", "grad", 0.15), ("a", "lrp", 0.15), ("a", "lrp", 0.25), ("b", "lrp", 0.15)]
        )
    }
    page = visit(write_page(tmp_path / "report.html", votes.values()).page)
    slide(page, opacity=100)

    def shown(image: str, method: str, sigma: float) -> bool:
        choose(page, 25, 0.75)
        return bool((pixels_of(page) == painted(votes[image, method, sigma].certify().labels[25], 25)).all())

    assert shown("a", "grad", 0.15)
    page.get_by_label("Method", exact=True).select_option(label="lrp")
    page.wait_for_selector("text=lrp at final")
    assert shown("a", "lrp", 0.15)
    page.get_by_label("Noise σ", exact=True).select_option(label="0.25")
    wait_until(page, lambda: "σ = 0.25" in page.inner_text("#facts"))
    assert shown("a", "lrp", 0.25)
    page.get_by_label("Image", exact=True).select_option(label="b")
    wait_until(page, lambda: "σ = 0.15" in page.inner_text("#facts"))
    assert shown("b", "lrp", 0.15)


# ── Saving ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_saved_picture_holds_the_map(make_votes, visit, tmp_path):
    votes = [simulate(make_votes, seed, source={"method": f"method {seed}"}) for seed in range(2)]
    page = visit(write_page(tmp_path / "report.html", votes).page)
    slide(page, opacity=100)
    page.check("#compare")
    page.wait_for_selector("#agreement-table td")
    choose(page, 25, 0.7)
    with page.expect_download() as download:
        page.click("#save")
    assert download.value.suggested_filename == "cat.png-method_0-final-labels-K25-tau0.7.png"
    saved = np.asarray(Image.open(io.BytesIO(Path(download.value.path()).read_bytes())).convert("RGB"))
    factor, margin, top = 480 // max(SIZE), 24, 84
    width = factor * SIZE[1]
    for place, one in enumerate(votes):
        left = margin + place * (width + margin)
        part = saved[top : top + factor * SIZE[0], left : left + width]
        expected = painted(one.certify(0.7).labels[25], 25).repeat(factor, 0).repeat(factor, 1)
        assert (part == expected).all()
    words = saved[top + factor * SIZE[0] + 10 :]
    assert (words.min(axis=2) < 100).mean() > 0.01, "shares and promise are written below"


# ── Screens ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def long_names(make_votes, tmp_path_factory) -> Path:
    long = "a_very_long_name_without_any_spaces_in_it_" * 3
    votes = [simulate(make_votes, source={"method": name, "image_name": long, "model": long}) for name in ("a", long)]
    return write_page(tmp_path_factory.mktemp("long") / "report.html", votes).page


@pytest.mark.parametrize("width", [320, 390, 800, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_fits_its_screen_and_text_can_be_read(long_names, visit, width, scheme):
    page = visit(long_names, width=width, height=800, scheme=scheme)
    for view in ("labels", "radius"):
        page.check(f"input[value={view}]", force=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.check("input[value=labels]", force=True)
    page.check("#compare")
    page.wait_for_selector("#agreement-table td")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ink, soft, paper = page.evaluate(
        """() => [".pixel", "#reach", "body"].map((name) => {
          const style = getComputedStyle(document.querySelector(name));
          return (name === "body" ? style.backgroundColor : style.color).match(/\\d+/g).slice(0, 3).map(Number);
        })"""
    )
    assert (np.mean(paper) < 60) == (scheme == "dark")
    assert contrast(ink, paper) > 7
    assert contrast(soft, paper) > 4.5


def contrast(one: list[int], other: list[int]) -> float:
    """WCAG's contrast ratio."""

    def light(colour: list[int]) -> float:
        parts = [part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour]
        return float(np.dot(parts, (0.2126, 0.7152, 0.0722))) + 0.05

    return max(light(one), light(other)) / min(light(one), light(other))


# ── Strangers ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_hostile_names_are_shown_and_do_nothing(make_votes, visit, tmp_path):
    source: dict[str, Any] = dict.fromkeys(("model", "layer", "weights", "device", "precision"), HOSTILE)
    source |= {"image_name": HOSTILE, "class_names": {"281": HOSTILE}, "params": {HOSTILE: HOSTILE}}
    source |= {"versions": {HOSTILE: f"</script><script>alert(2)</script>{HOSTILE}"}}
    votes = [
        simulate(make_votes, method, source={**source, "method": f"{HOSTILE}{method}"}, predictions=[0] * 281 + [100])
        for method in range(2)
    ]
    page = visit(write_page(tmp_path / "report.html", votes).page)
    page.check("#compare")
    page.wait_for_selector("#agreement-table td")
    page.hover("#first canvas.pixels")
    with page.expect_download() as download:
        page.click("#save")
    assert re.fullmatch(r"[\w.-]+", download.value.suggested_filename)
    assert page.locator("img").count() == 0
    assert page.locator("main script").count() == 0
    for place in ("#choices", "#first figcaption", "#agreement-table", "#answer", "#facts"):
        assert HOSTILE in page.inner_text(place), place


def test_page_without_its_folder_says_so(make_votes, browser, tmp_path):
    written = write_page(tmp_path / "report.html", [simulate(make_votes)], limit=0)
    shutil.rmtree(written.folder)
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(written.page.as_uri())
    page.wait_for_selector("text=Keep the folder report_files beside this page")
    page.close()


def test_map_that_does_not_load_leaves_nothing_of_the_one_before(make_votes, browser, tmp_path):
    votes = [simulate(make_votes, seed, source={"method": f"method {seed}"}) for seed in range(3)]
    written = write_page(tmp_path / "report.html", votes, limit=0)
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(written.page.as_uri())
    page.wait_for_selector("#first .key > *")
    lost = page.evaluate("() => index.entries[1].counts")
    (written.folder / f"{lost}.js").unlink()
    method = page.get_by_label("Method", exact=True)
    method.select_option(label="method 1")
    page.wait_for_selector("#trouble:visible")
    page.hover("#first canvas.pixels")
    slide(page, level=0)
    slide(page, tau=3)
    page.check("input[value=radius]")
    page.check("input[value=labels]")
    assert "cannot be shown" in page.inner_text("#trouble")
    assert (pixels_of(page) == 0).all()
    assert page.inner_text("#first figcaption") + page.inner_text("#first .key") + page.inner_text("#promise") == ""
    assert page.is_disabled("#save")
    method.select_option(label="method 2")
    page.wait_for_selector("#trouble", state="hidden")
    slide(page, opacity=100)
    choose(page, 25, 0.75)
    assert (pixels_of(page) == painted(votes[2].certify().labels[25], 25)).all()
    page.check("#compare")  # its second map is the lost one again, once it comes to that
    page.wait_for_selector("#agreement-table td")
    page.get_by_label("Method", exact=True).last.select_option(label="method 1")
    page.wait_for_selector("#trouble:visible")
    page.uncheck("#compare")
    page.wait_for_selector("#trouble", state="hidden")
    assert errors == []
    page.close()


def test_maps_compared_in_a_folder_share_the_photograph_of_the_next_image(make_votes, visit, tmp_path):
    votes = [
        simulate(make_votes, seed, source={"image_name": f"{seed}.png", "image": f"{seed:064x}"}) for seed in (0, 1)
    ]
    others = [replace(one, ones=one.zeros, zeros=one.ones) for one in votes]
    page = visit(write_page(tmp_path / "report.html", [*votes, *others], limit=0).page)
    page.check("#compare")
    page.wait_for_selector("#agreement-table td")
    page.get_by_label("Image", exact=True).select_option(label="1.png")
    wait_until(page, lambda: "1.png" in page.inner_text("#first figcaption"))
    assert "1.png" in page.inner_text("#second figcaption")
    slide(page, opacity=0)
    assert (pixels_of(page) == votes[1].photo).all()
    assert (pixels_of(page, "second") == votes[1].photo).all()


# ── Studies and servers ───────────────────────────────────────────────────────────────────────────────────────────


def test_study_shows_its_table_and_figures(visit, tmp_path):
    study = small_study(tmp_path / "study", methods=["grad", "ixg"])
    study.run(device="cpu")
    (study.folder / "figures").mkdir()
    Image.new("RGB", (30, 20), "red").save(study.folder / "figures" / "certified_by_method.png")
    Image.new("RGB", (30, 20), "blue").save(study.folder / "figures" / "tradeoff.png")
    page = visit(write_study_page(tmp_path / "report.html", study).page)
    page.get_by_alt_text(f"Figure of the study: {FIGURES['tradeoff'].about}").wait_for()
    shown = page.evaluate("() => index.study")
    head, *rows = [row.split("\t") for row in page.locator("#study-table tr").all_inner_texts()]
    assert head == ["model", "layer", "method", *shown["columns"], "mean rank"]
    assert rows == [[*line["names"], *line["cells"]] for line in shown["tables"][0]["lines"]]
    assert sorted(row[2] for row in rows) == ["grad", "ixg"]
    image = page.get_by_alt_text("Figure of the study: certified by method")
    image.scroll_into_view_if_needed()
    wait_until(page, lambda: image.evaluate("image => image.naturalWidth") == 30)
    page.get_by_label("Setting", exact=True).select_option(index=1)
    assert "K = 10 %" in page.inner_text("#study-table caption")


@pytest.mark.parametrize("served", [False, True])
def test_page_with_a_folder_works_from_disk_and_from_the_server(make_votes, visit, tmp_path, served):
    votes = [simulate(make_votes, seed, source={"method": f"method {seed}"}) for seed in range(2)]
    written = write_page(tmp_path / "my report's.html", votes, limit=0)
    assert written.folder is not None

    def check(page: Any) -> None:
        slide(page, opacity=100)
        page.get_by_label("Method", exact=True).select_option(label="method 1")
        page.wait_for_selector("text=method 1 at final")
        choose(page, 25, 0.75)
        assert (pixels_of(page) == painted(votes[1].certify().labels[25], 25)).all()

    if not served:
        check(visit(written.page))
        return
    with PageServer(written.page) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            check(visit(server.url))
        finally:
            server.shutdown()
            thread.join()


def test_study_of_100_images_and_24_settings_opens_at_once(make_votes, visit, tab, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)  # 2600 files need not survive a power cut
    size = (32, 32)
    settings = [(f"method {number}", layer) for number in range(12) for layer in ("input", "final")]
    some = simulate(make_votes, size=size)

    def all_votes() -> Iterator[pc.Votes]:
        for number in range(100):
            for place, (method, layer) in enumerate(settings):
                rolled = {name: np.roll(getattr(some, name), 24 * number + place, -1) for name in ("ones", "zeros")}
                about = {"image_name": f"{number:03}.jpg", "image": f"{number:064x}", "target": number}
                about |= {"method": method, "layer": layer}
                yield make_votes(LEVELS, size, photo=np.roll(some.photo, number, 0), source=about, **rolled)

    written = write_page(tmp_path / "report.html", all_votes(), limit=100_000)
    assert written.entries == 2400
    assert written.folder is not None
    assert written.page_bytes < 500_000
    start = time.monotonic()
    page = visit(written.page)
    opened = time.monotonic() - start
    assert sum("counts-" in url for url in tab.asked) == 1, "one map is shown, and one is loaded"
    start = time.monotonic()
    page.get_by_label("Image", exact=True).select_option(label="057.jpg")
    page.get_by_label("Method", exact=True).select_option(label="method 7")
    wait_until(page, lambda: page.inner_text("#first figcaption").startswith("method 7"))
    changed = time.monotonic() - start
    assert sum("counts-" in url for url in tab.asked) <= 3
    assert page.locator("*").count() < 1000, "it holds what is shown, and not all there is"
    print(f"page {written.page_bytes} bytes, folder {written.folder_bytes}; opened in {opened:.2f} s, {changed:.2f} s")
    assert opened < 60  # tenths of a second on an idle machine
    assert changed < 60
