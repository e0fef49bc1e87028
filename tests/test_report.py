"""The contents of a page, checked from Python; tests/test_page.py checks them in a browser."""

import base64
import json
import math
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from PIL import Image
from small_studies import small_study

import pixelcert as pc
from pixelcert import statistics
from pixelcert.commands import main
from pixelcert.report import write_page, write_study_page
from pixelcert.report.contents import TAUS, Index, make_test, pack
from pixelcert.report.entries import NAME, Chunks, open_study
from pixelcert.report.page import PARTS, join_script
from pixelcert.statistics import Correction, rounded_down

HOLM = pc.Criterion(correction="holm")
HOSTILE = "</script><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    """Collects the page's tags with their attributes, and the text of its inert elements by id."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = [("", {})]
        self.texts: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        tag, attributes = self.tags[-1]
        self.texts[attributes.get("id") or tag] = self.texts.get(attributes.get("id") or tag, "") + data

    @property
    def index(self) -> dict:
        return json.loads(self.texts["index"])


def unpack(data: bytes) -> tuple[dict[str, Any], np.ndarray]:
    """Return what `pack` packed, as the page does: the header, and the planes as (kinds, levels, H, W)."""
    line, _, rest = zlib.decompress(data).partition(b"\n")
    header = json.loads(line)
    differences = np.frombuffer(rest, dtype=f"<u{header['bytes']}")
    planes = np.cumsum(differences, dtype=differences.dtype)
    return header, planes.reshape(-1, len(header["levels"]), *header["size"])


def read(path: Path) -> Tags:
    return Tags(path.read_text(encoding="utf-8"))


# ── The script ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_script_has_every_part_once():
    found = [file.name for file in (files("pixelcert.report") / "script").iterdir()]
    assert sorted(found) == sorted(f"{part}.js" for part in PARTS)


CERTIFY_LINES = """
async function certifyLine(line) {
  const { packed, test } = JSON.parse(line);
  const map = { test, ...(await unpack(Buffer.from(packed, "base64"))), votes: new Map() };
  const plain = ({ labels, ...found }) => ({ labels: Array.from(labels), ...found });
  console.log(JSON.stringify(map.levels.map((level) => test.taus.map((at) => plain(certify(map, level, at))))));
}
require("node:readline").createInterface({ input: process.stdin }).on("line", certifyLine);
"""


@pytest.fixture(scope="module")
def certify_in_node() -> Iterator[Callable[..., list[list[dict[str, Any]]]]]:
    """Certify packed votes with the page's own script: by level, low first, and τ. One Node runs all cases."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed: apt-get install nodejs")
    script = join_script(("certificate",)) + CERTIFY_LINES
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([node, "-e", script], encoding="utf-8", **pipes) as running:

        def certify(packed: bytes, test: dict[str, Any]) -> list[list[dict[str, Any]]]:
            needed = {name: value for name, value in test.items() if name != "radii"}
            given = {"packed": base64.b64encode(packed).decode(), "test": needed}
            print(json.dumps(given), file=running.stdin, flush=True)
            answer = running.stdout.readline()
            assert answer, running.stderr.read()  # it ended with an error
            return json.loads(answer)

        yield certify


def simulate(make_votes, n: int, guess: int) -> pc.Votes:
    """Votes of all kinds, in the samples that guess and in the others apart: nearly unanimous, split, and of pixels
    that are tied or NaN, and so vote for neither label, in some samples or in all."""
    random = np.random.default_rng(n)
    shape = (2, 30, 40)
    p = np.where(random.random(shape) < 0.7, random.beta(0.08, 0.08, shape), random.random(shape))

    def count(samples: int) -> np.ndarray:
        known = random.binomial(samples, random.choice([1, 0.99, 0.5, 0], shape, p=[0.7, 0.1, 0.1, 0.1]))
        ones = random.binomial(known, p)
        return np.stack([ones, known - ones]).astype(np.int32)

    first = count(guess)
    ones, zeros = first + count(n - guess)
    more = {"guess_ones": first[0]} if guess else {}
    return make_votes((50, 10), shape[1:], n, guess=guess, ones=ones, zeros=zeros, **more)


@pytest.mark.parametrize("n", [100, 255, 256, 70_000])  # counts of one byte, two and four
@pytest.mark.parametrize(
    ("correction", "guess"),
    [(test, guess) for test in get_args(Correction) for guess in (0, 10) if guess or test != "reference"],
)
def test_script_certifies_as_the_library_does(make_votes, certify_in_node, n, correction, guess):
    votes = simulate(make_votes, n, guess)
    test = make_test(votes, (0.51, 0.6, 0.75, 0.8, 0.9, 0.99), pc.Criterion(correction=correction))
    found = certify_in_node(pack(votes), test)
    seen, stepped = set[int](), 0
    for place, at in enumerate(test["taus"]):
        certificate = votes.certify(at["tau"], correction=correction) if "steps" in at else None
        for level, by_tau in zip((10, 50), found, strict=True):
            expected = certificate.labels[level] if certificate else np.full(votes.size, pc.ABSTAIN)
            needed = certificate.claims[level].votes_needed if certificate else None
            assert by_tau[place]["labels"] == expected.ravel().tolist()
            assert by_tau[place]["needed"] == needed
            pixels = [by_tau[place]["pixelsOf"][str(label)] for label in (0, 1, pc.ABSTAIN)]
            assert pixels == [(expected == label).sum() for label in (0, 1, pc.ABSTAIN)]
            seen |= set(expected.flat)
            stepped += bool(certificate) and needed < at["steps"][-1][0]
    assert seen == {0, 1, pc.ABSTAIN}, "all three labels were compared"
    assert bool(stepped) == (correction == "holm"), "Holm's step down was tried"
    if n == 100:
        assert "fewest" in test["taus"][-1], "and a τ out of reach"
    if guess:
        assert (votes.zeros < guess - votes.guess_ones).any(), "and fewer votes than were guessed"


# ── Votes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("n", [100, 300, 70_000])
@pytest.mark.parametrize("guess", [0, 10])
def test_counts_come_back_as_they_were(make_votes, n, guess):
    random = np.random.default_rng(1)
    ones = random.integers(0, n - 9, (3, 5, 7), dtype=np.int32)
    zeros = random.integers(0, n - ones + 1, dtype=np.int32)
    votes = make_votes((5, 50, 12.5), (5, 7), n, guess=guess, ones=ones, zeros=zeros)
    header, planes = unpack(pack(votes))
    assert header["levels"] == [5, 12.5, 50]
    assert header["size"] == [5, 7]
    order = [0, 2, 1]
    assert (planes[0] == ones[order]).all()
    assert (n - planes[0].astype(int) - planes[1] == zeros[order]).all()
    assert len(planes) == (3 if guess else 2)
    if guess:
        assert (planes[2] == votes.guess_ones[order]).all()


def test_counts_of_smooth_maps_are_packed_small(make_votes):
    rows, columns = np.mgrid[:224, :224]
    ones = np.rint(100 * np.exp(-((rows - 100) ** 2 + (columns - 120) ** 2) / 5000)).astype(np.int32)[None]
    votes = make_votes((50,), (224, 224), ones=ones)
    assert len(pack(votes)) < 0.15 * 224 * 224


def test_steps_are_the_thresholds_of_holm():
    pixels = 300
    for n, tau in ((60, 0.6), (100, 0.75), (40, 0.51), (62, 0.8)):
        steps = statistics.steps(n, tau, 0.001, pixels, "holm")
        for ways in range(1, pixels + 1):
            found = next((k for k, most in steps if most >= ways), None)
            if steps:
                assert found == statistics.threshold(n, tau, 0.001, ways, pixels)
    assert statistics.steps(20, 0.9, 0.001, pixels, "holm") == []
    for correction in ("bonferroni", "joint", "reference", "none"):
        needed = statistics.votes_needed(100, 0.75, 0.001, pixels, correction)
        assert statistics.steps(100, 0.75, 0.001, pixels, correction) == [(needed, pixels)]


def test_test_has_each_radius_and_says_what_an_unreachable_tau_needs(make_votes):
    votes = make_votes(size=(224, 224))
    test = make_test(votes, TAUS, HOLM)
    by_tau = {at["tau"]: at for at in test["taus"]}
    assert by_tau[0.75]["radius"] == votes.certify(0.75).radius
    assert by_tau[0.9] == {"tau": 0.9, "fewest": 169}
    votes_of = np.maximum(votes.ones[0], votes.zeros[0])
    assert (np.array(test["radii"])[votes_of] == votes.radius_map(50)).all()
    certificate = votes.certify()
    assert test["promise"].replace("{R}", "0.1008") == f"{certificate.promise} {certificate.together}"


def test_prediction_takes_its_share_of_alpha_in_the_page_too(make_votes):
    votes = make_votes((50,), (40, 40), predictions=np.array([3, 97], np.int32))
    for tau in (0.6, 0.75, 0.8):
        (at,) = make_test(votes, (tau,), HOLM)["taus"]
        certificate = votes.certify(tau)
        assert at["prediction"] == certificate.prediction.claim.votes_needed
        assert at["steps"][-1][0] == statistics.votes_needed(100, tau, certificate.claims[50].alpha, 1600, "holm")


# ── Choices ───────────────────────────────────────────────────────────────────────────────────────────────────────


def facets_of(tmp_path: Path, *votes: pc.Votes) -> tuple[dict[str, list[str]], list[list[int]]]:
    index = Index(Chunks(tmp_path), (), pc.Criterion())
    for one in votes:
        index.add(one)
    content = index.content()
    shown = {facet["name"]: facet["values"] for facet in content["facets"] if facet["shown"]}
    return shown, [entry["choices"] for entry in content["entries"]]


def test_lists_are_shown_where_they_decide_something(make_votes, tmp_path):
    votes = [make_votes(source={"method": name}) for name in ("grad", "lrp")]
    shown, _ = facets_of(tmp_path, *votes)
    assert shown == {"Image": ["cat.png"], "Model": ["resnet18"], "Method": ["grad", "lrp"], "Layer": ["final"]}
    noisy = make_votes(sigma=0.25, source={"method": "lrp"})
    assert "Noise σ" in facets_of(tmp_path, *votes, noisy)[0]
    of_dog = make_votes(source={"image_name": "dog.png", "target": 5, "image": "ef" * 32})
    assert not {"Class", "Digest of the image"} & set(facets_of(tmp_path, *votes, of_dog)[0])


def test_images_of_one_name_are_told_apart_by_digest_and_size(make_votes, tmp_path):
    others = [make_votes(source={"image": "ef" * 32}), make_votes(size=(8, 6)), make_votes(source={"method": "lrp"})]
    votes = [make_votes(), *others, make_votes(source={"image_name": "dog.png", "image": "12" * 32})]
    index = Index(Chunks(tmp_path), (), pc.Criterion())
    for one in votes:
        index.add(one)
    content = index.content()
    assert [entry["image"] for entry in content["entries"]] == [0, 1, 2, 0, 3]
    names = [content["facets"][0]["values"][entry["choices"][0]] for entry in content["entries"]]
    cat, other, turned = (
        f"cat.png ({about})" for about in ("6 × 8, " + "cd" * 6, "6 × 8, " + "ef" * 6, "8 × 6, " + "cd" * 6)
    )
    assert names == [cat, other, turned, cat, "dog.png"]


def test_votes_that_nothing_tells_apart_are_numbered(make_votes, tmp_path):
    shown, choices = facets_of(tmp_path, make_votes(), make_votes(), make_votes(n=99))
    assert shown["Number"] == ["1", "2"]
    assert len({tuple(choice) for choice in choices}) == 3


# ── Pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_page_asks_nothing_of_the_network_and_runs_one_script(make_votes, tmp_path):
    written = write_page(tmp_path / "report.html", [make_votes(photo=np.zeros((6, 8, 3), np.uint8))])
    page = read(written.page)
    text = written.page.read_text(encoding="utf-8")
    assert not re.search(r"https?://|@import|url\(|src=", text)
    scripts = [attributes.get("type") for tag, attributes in page.tags if tag == "script"]
    assert scripts.count(None) == 1
    assert set(scripts) == {None, "application/json", "text/plain"}
    (policy,) = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "strict-dynamic" not in policy
    assert (written.folder, written.page_bytes) == (None, written.page.stat().st_size)


def test_photograph_is_kept_once_and_counts_are_found(make_votes, tmp_path):
    photo = np.arange(144, dtype=np.uint8).reshape(6, 8, 3)
    votes = [make_votes(photo=photo, source={"method": name}) for name in ("grad", "lrp")]
    page = read(write_page(tmp_path / "report.html", votes).page)
    entries = page.index["entries"]
    assert len({entry["photo"] for entry in entries}) == 1
    header, planes = unpack(base64.b64decode(page.texts[entries[1]["counts"]]))
    assert (planes[0][1] == votes[1].ones[0]).all()  # levels ascend in the page
    assert header["facts"]["Noise"] == "σ = 0.15, n = 100 samples"
    assert header["facts"]["Seed"].startswith("0. A seed that was known beforehand proves nothing")


def test_hostile_names_are_only_text(make_votes, tmp_path):
    source = dict.fromkeys(("image_name", "model", "method", "layer", "weights", "image", "device"), HOSTILE)
    source |= {"class_names": {"281": HOSTILE}, "params": {HOSTILE: HOSTILE}, "versions": {HOSTILE: HOSTILE}}
    page = read(write_page(tmp_path / "report.html", [make_votes(source=source)]).page)
    assert "img" not in [tag for tag, _ in page.tags]
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert page.index["facets"][0]["values"] == [HOSTILE]
    assert page.index["facets"][7]["values"] == [HOSTILE]


def test_what_cannot_be_shown_is_refused(make_votes, tmp_path):
    page = tmp_path / "report.html"
    with pytest.raises(pc.IncompleteVotesError, match="read early"):
        write_page(page, [make_votes(counted=50)])
    with pytest.raises(pc.InfeasibleError, match="raise n"):
        write_page(page, [make_votes(size=(224, 224))], tau=0.95)
    with pytest.raises(pc.ArgumentError, match="no votes to show"):
        write_page(page, [])
    with pytest.raises(pc.ArgumentError, match="is not available"):
        write_page(page, [make_votes()], levels=(33,))
    assert not page.exists()


def test_large_pages_keep_their_votes_in_a_folder_beside_them(make_votes, tmp_path):
    votes = [make_votes(n=100 - number) for number in range(5)]
    page = tmp_path / "my report.html"
    written = write_page(page, votes, limit=1000)
    assert written.folder == tmp_path / "my report_files"
    entries = read(page).index["entries"]
    assert {file.stem for file in written.folder.iterdir()} == {entry["counts"] for entry in entries}
    script = (written.folder / f"{entries[0]['counts']}.js").read_text()
    name, text = re.fullmatch(r'pixelcertChunk\("(.*)","(.*)"\);\n', script).groups()
    assert NAME.fullmatch(name)
    assert (unpack(base64.b64decode(text))[1][0][1] == votes[0].ones[0]).all()
    assert written.folder_bytes == pytest.approx(sum(f.stat().st_size for f in written.folder.iterdir()), rel=0.2)
    assert not any(attributes.get("type") == "text/plain" for _, attributes in read(page).tags)


def test_page_that_fails_leaves_the_earlier_one_as_it_was(make_votes, tmp_path):
    page = tmp_path / "report.html"
    with pytest.raises(pc.IncompleteVotesError):
        write_page(page, [make_votes(), make_votes(counted=50)], limit=0)
    assert list(tmp_path.iterdir()) == []
    folder = write_page(page, [make_votes()], limit=0).folder
    before = {file: file.read_bytes() for file in (page, *folder.iterdir())}
    with pytest.raises(pc.IncompleteVotesError):
        write_page(page, [make_votes(), make_votes(n=90), make_votes(counted=50)], limit=0)
    assert {file: file.read_bytes() for file in (page, *folder.iterdir())} == before


def test_another_page_of_the_same_name_takes_the_folder_over(make_votes, tmp_path):
    page = tmp_path / "report.html"
    folder = write_page(page, [make_votes(n=90)], limit=0).folder
    (folder / "mine.js").write_text("kept")
    first = {file.name for file in folder.iterdir()}
    write_page(page, [make_votes(n=95)], limit=0)
    second = {file.name for file in folder.iterdir()}
    assert first & second == {"mine.js"}
    (folder / "mine.js").unlink()
    write_page(page, [make_votes()])
    assert not folder.exists()


# ── Studies ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> pc.Study:
    study = small_study(tmp_path_factory.mktemp("study"), methods=["grad", "ixg"], tau=[0.6, 0.65])
    study.run(device="cpu")
    (study.folder / "figures").mkdir()
    Image.new("RGB", (3, 2), "red").save(study.folder / "figures" / "one_figure.png")
    (study.folder / "figures" / "text.png").write_text("no picture")
    return study


@pytest.mark.parametrize("named_by", ["file", "folder"])
def test_study_is_shown_with_its_summary_and_figures(study, tmp_path, named_by):
    path = study.folder.with_suffix(".toml") if named_by == "file" else study.folder
    done = []
    progress: Callable[[int, int], None] = lambda *counts: done.append(counts)  # noqa: E731
    written = write_study_page(tmp_path / "report.html", open_study(path), progress=progress)
    index = read(written.page).index
    assert written.entries == len(index["entries"]) == 8
    assert done[-1] == (8, 8)
    assert index["facets"][2]["values"] == ["grad", "ixg"]
    assert index["tau"] == 0.6
    tables = index["study"]["tables"]
    assert len(tables) == 4
    assert "τ = 0.6, K = 50 %" in tables[0]["caption"]
    (means,) = [
        row["mean"]
        for row in study.results()
        if (row["method"], row["metric"], row["tau"], row["level"]) == ("ixg", "certified", 0.6, 50)
    ]
    (line,) = [line for line in tables[0]["lines"] if line["names"] == ["tiny", "input", "ixg"]]
    assert line["cells"][0].startswith(f"{means:.1f} ±")
    assert [figure["name"] for figure in index["study"]["figures"]] == ["one figure"]
    assert [figure["about"] for figure in index["study"]["figures"]] == ["one figure"]


def test_summary_says_where_n_does_not_reach(tmp_path):
    study = small_study(tmp_path, methods=["grad", "ixg"], tau=[0.6, 0.9])
    study.run(device="cpu")
    tables = read(write_study_page(tmp_path / "report.html", study).page).index["study"]["tables"]
    for table in tables:
        beyond = "τ = 0.9" in table["caption"]
        for line in table["lines"]:
            assert (line["cells"][0] == "out of reach") == beyond
            assert any("#" in cell for cell in line["cells"]) != beyond
            assert bool(line["cells"][-1]) != beyond


def test_folder_without_a_study_is_refused(tmp_path):
    with pytest.raises(pc.ArgumentError, match=r"no resolved\.json"):
        open_study(tmp_path)


# ── Notebooks ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_notebooks_show_a_picture_the_shares_and_no_foreign_tags(make_votes):
    photo = np.arange(144, dtype=np.uint8).reshape(6, 8, 3)
    votes = make_votes(photo=photo, source={"image_name": HOSTILE, "method": HOSTILE, "class_names": {"281": HOSTILE}})
    certificate = votes.certify()
    for shown in (votes._repr_html_(), certificate._repr_html_()):
        page = Tags(shown)
        pictures = [attributes for tag, attributes in page.tags if tag == "img"]
        assert len(pictures) == 1 + len(votes.plan.levels)
        assert all(attributes["src"].startswith("data:image/") for attributes in pictures)
        assert pictures[0]["alt"] == "Photograph"
        assert "script" not in [tag for tag, _ in page.tags]
    assert f"{certificate.shares(50).ones:.1f} %" in certificate._repr_html_()
    assert "100 of 100 samples" in votes._repr_html_()
    assert "Photograph" not in replace(votes, photo=None)._repr_html_()


# ── The command line ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def run(monkeypatch, capsys) -> Callable[..., tuple[int, str]]:
    """The command line: exit code, and what it says."""

    def run(*arguments: Any) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["pixelcert", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0), capsys.readouterr().err

    return run


def test_report_takes_votes_and_says_what_it_wrote(make_votes, tmp_path, run):
    files = [make_votes(n=n).save(tmp_path / f"{n}.safetensors") for n in (90, 100)]
    page = tmp_path / "page.html"
    code, said = run("report", *files, "-o", page, "-K", 10, "--tau", 0.625, "--correction", "joint")
    assert (code, read(page).index["tau"]) == (0, 0.625)
    assert {test["correction"] for test in read(page).index["tests"]} == {"joint"}
    assert 0.625 in [at["tau"] for at in read(page).index["tests"][0]["taus"]]
    assert "page.html: 2 maps" in said
    before = files[0].read_bytes()
    code, said = run("report", *files, "--out", files[0])
    assert (code, files[0].read_bytes()) == (1, before), "votes were written over"
    assert "is also an input of the page: name another file" in said
    code, said = run("report", *files, "--out", page, "--limit", 0)
    assert "page_files" in said
    assert "keep it beside the page" in said


def test_report_takes_a_study(study, tmp_path, run):
    page = tmp_path / "page.html"
    code, said = run("report", study.folder, "--out", page)
    assert (code, len(read(page).index["entries"])) == (0, 8)
    assert "8 maps" in said


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--tau", 0], "tau=0.0 is outside"),
        (["--alpha", 0], "alpha=0.0 is outside"),
        (["-K", 33], "is not available"),
        (["--correction", "best"], "is not known"),
        (["--limit", -1], "is negative"),
    ],
)
def test_report_refuses_with_a_remedy(make_votes, tmp_path, run, more, words):
    votes = make_votes().save(tmp_path / "votes.safetensors")
    code, said = run("report", votes, "--out", tmp_path / "page.html", *more)
    assert code == 1
    assert words in said
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("votes", "options", "words"),
    [
        ({"n": 45}, ("--tau", 0.8), "n=45 samples cannot certify any"),
        ({"levels": (50, 20)}, ("-K", 10), "level 10 is not available"),
        ({"counted": 90}, (), "90 of the 100 planned samples"),
    ],
)
def test_report_names_the_file_that_cannot_be_shown(make_votes, tmp_path, run, votes, options, words):
    files = [
        make_votes(n=100).save(tmp_path / "good.safetensors"),
        make_votes(**votes).save(tmp_path / "bad.safetensors"),
    ]
    code, said = run("report", *files, "--out", tmp_path / "page.html", *options)
    assert code == 1
    assert f"{files[1]}: {words}" in said
    assert "good.safetensors" not in said
    assert not (tmp_path / "page.html").exists()


def test_report_refuses_a_mixture_and_settings_that_a_study_has_itself(study, make_votes, tmp_path, run):
    votes = make_votes().save(tmp_path / "votes.safetensors")
    for arguments, words in (((votes, study.folder), "one study only"), ((study.folder, "-K", 10), "the study file")):
        code, said = run("report", *arguments, "--out", tmp_path / "page.html")
        assert code == 1
        assert words in said


def test_serve_refuses_what_is_no_page(tmp_path, run):
    code, said = run("serve", tmp_path / "absent.html")
    assert code == 1
    assert "give a page of `pixelcert report`" in said


def test_script_prints_radii_rounded_down_as_the_library_does():
    """Multiplied by ten thousand, a radius just below 0.1009 was printed as 0.1009."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed: apt-get install nodejs")
    random = np.random.default_rng(5)
    short = (random.integers(0, 10**4, 200) / 10**4).tolist()
    values = [0.0, 0.10089, 1e-7, 15.3, 5e-324, *short, *random.random(200).tolist()]
    values += [math.nextafter(value, to) for value in short for to in (0, 1)]
    script = join_script(("words",)).split("// Ties go")[0]
    printing = (
        f"console.log(JSON.stringify({json.dumps(values)}.map((value) => [4, 1].map((d) => roundedDown(value, d)))))"
    )
    run = subprocess.run([node, "-e", script + printing], capture_output=True, text=True, check=True)
    expected = [[rounded_down(value, digits) for digits in (4, 1)] for value in values]
    assert json.loads(run.stdout) == expected
