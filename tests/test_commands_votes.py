"""`pixelcert show`: certificates of saved votes, their pictures, and the names of files."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from command_line import assert_refused, files_in
from PIL import Image

import pixelcert as pc
from pixelcert.commands.votes import make_folder, picture_file


@pytest.fixture
def saved(make_votes, tmp_path) -> Path:
    votes = make_votes((50, 25, 10), (12, 16), n=100, predictions=np.array([98, 2]))
    return votes.save(tmp_path / "saved.safetensors")


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ((), {}),
        (("--tau", "0.6"), {"tau": 0.6}),
        (("--alpha", "0.05"), {"alpha": 0.05}),
        (("-K", "25"), {"levels": (25,)}),
        (("-K", "10", "-K", "50"), {"levels": (50, 10)}),
        (("--correction", "bonferroni"), {"correction": "bonferroni"}),
        (("--correction", "joint"), {"correction": "joint"}),
        (("--tau", "0.8", "--correction", "none", "-K", "50"), {"tau": 0.8, "correction": "none", "levels": (50,)}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_show_certifies_again(pixelcert, saved, options, settings):
    run = pixelcert("show", saved, *options, "--json", "--no-picture")
    assert run.code == 0
    assert run.err == ""
    certificate = pc.Votes.load(saved).certify(**settings)
    (result,) = json.loads(run.out)
    assert result["radius"] == certificate.radius
    assert result["plan"]["seed"] == "0", "text, because JavaScript loses digits of large numbers"
    assert result["plan"]["n"] == 100
    assert result["correction"] == certificate.correction
    assert list(result["levels"]) == [str(level) for level in certificate.levels]
    for level in certificate.levels:
        assert result["levels"][str(level)]["certified"] == certificate.percent_certified(level)


def test_show_prints_a_table_and_draws_a_picture(pixelcert, saved):
    run = pixelcert("show", saved)
    assert run.code == 0
    shares = pc.Votes.load(saved).certify().shares(50)
    (row,) = [line for line in run.out.splitlines() if "cat.png, tabby" in line]
    assert f"{shares.ones:.1f} %" in row
    assert f"{shares.abstained:.1f} %" in row
    with Image.open(saved.with_suffix(".png")) as picture:
        picture.verify()


@pytest.mark.usefixtures("quick_pictures")
@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("--tau 0.6", "saved-tau0.6.png"),
        ("--alpha 0.05", "saved-alpha0.05.png"),
        ("--correction joint", "saved-joint.png"),
        ("-K 25 -K 50.0", "saved-K50-K25.png"),
        ("--tau 0.6 --alpha 0.01 -K 10", "saved-tau0.6-alpha0.01-K10.png"),
    ],
)
def test_a_picture_at_other_settings_has_another_name(pixelcert, saved, options, name):
    pixelcert("show", saved)
    before = saved.with_suffix(".png").read_text()
    run = pixelcert("show", saved, *options.split())
    assert run.code == 0
    assert name in run.out
    assert files_in(saved.parent) == sorted((saved.name, "saved.png", name))
    assert saved.with_suffix(".png").read_text() == before
    assert saved.with_name(name).read_text() != before
    assert pixelcert("show", saved, *options.split()).code == 0, "the same again"


@pytest.mark.usefixtures("quick_pictures")
def test_a_picture_at_the_default_settings_is_named_after_its_votes(pixelcert, saved):
    options = "--tau 0.75 --alpha 0.001 --correction holm -K 10 -K 25 -K 50"
    assert pixelcert("show", saved, *options.split()).code == 0
    assert files_in(saved.parent) == ["saved.png", saved.name]


@pytest.mark.usefixtures("quick_pictures")
def test_show_leaves_the_picture_of_certify_alone(pixelcert, certify, tmp_path):
    assert certify("--picture", "--tau", 0.7).code == 0
    before = (tmp_path / "out" / "cat-grad-input-tau0.7.png").read_text()
    assert pixelcert("show", tmp_path / "out" / "cat-grad-input.safetensors").code == 0
    assert files_in(tmp_path / "out") == [
        *("cat-grad-input-tau0.7.png", "cat-grad-input.png", "cat-grad-input.safetensors")
    ]
    assert (tmp_path / "out" / "cat-grad-input-tau0.7.png").read_text() == before


def test_show_refuses_votes_whose_pictures_would_share_a_file(pixelcert, saved, tmp_path):
    (tmp_path / "other").mkdir()
    pc.Votes.load(saved).save(tmp_path / "other" / saved.name)
    assert_refused(pixelcert("show", saved, f"other/{saved.name}", "-o", "drawn"), "votes share the name saved")
    assert_refused(pixelcert("show", saved, "-o", saved), "--out", "cannot be a folder")


def test_show_refuses_a_picture_whose_name_is_too_long(pixelcert, saved, tmp_path):
    long = tmp_path / f"{'a' * 232}.safetensors"
    os.rename(saved, long)
    assert_refused(pixelcert("show", long, "--tau", 0.6, "-K", 10), "name too long", "choose a shorter name")


def test_show_names_the_file_that_cannot_reach_tau(pixelcert, saved, make_votes, tmp_path):
    few = make_votes(n=30).save(tmp_path / "few.safetensors")
    assert_refused(pixelcert("show", saved, few), f"error: {few}: n=30 samples cannot certify any")
    assert not saved.with_suffix(".png").exists(), "refused before the first picture"


def test_show_leaves_votes_alone(pixelcert, saved):
    before = saved.read_bytes()
    pixelcert("show", saved, "--tau", 0.6, "--no-picture")
    assert saved.read_bytes() == before
    assert files_in(saved.parent) == [saved.name]


def test_show_takes_several_files(pixelcert, make_votes, tmp_path):
    paths = [make_votes(source={"image_name": name}).save(tmp_path / f"{name}.safetensors") for name in "ab"]
    run = pixelcert("show", *paths, "--no-picture")
    assert "a, tabby" in run.out
    assert "b, tabby" in run.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--tau 0.99", ["n=100", "raise n to at least", "lower tau"]),
        ("--tau 2", ["tau=2"]),
        ("--alpha 0", ["alpha=0"]),
        ("-K 33", ["33", "50, 25, 10"]),
        ("-K 10 -K 10", ["twice"]),
        ("--correction hochberg", ["hochberg", "holm"]),
        ("--correction reference", ["reference", "preset"]),
    ],
)
def test_show_refuses_what_the_votes_cannot_answer(pixelcert, saved, options, words):
    assert_refused(pixelcert("show", saved, *options.split()), *words)
    assert files_in(saved.parent) == [saved.name]


def test_show_refuses_files_that_hold_no_votes(pixelcert, saved):
    (saved.parent / "other.safetensors").write_bytes(b"no votes")
    assert_refused(pixelcert("show", saved, "nowhere.safetensors"), "nowhere.safetensors", "check the path")
    assert_refused(pixelcert("show", saved, "other.safetensors"), "other.safetensors", "damaged")
    assert not saved.with_suffix(".png").exists(), "refused before the first picture"


# ── Names of files ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_picture_of_another_criterion_has_another_name(tmp_path):
    plan, file = pc.Plan(n=20, levels=(50, 10), seed=0), tmp_path / "cat.safetensors"
    names = {
        picture_file(file, plan, criterion, levels).name
        for criterion in (pc.Criterion(), pc.Criterion(0.8), pc.Criterion(alpha=0.01), pc.Criterion(correction="joint"))
        for levels in (None, (50,))
    }
    assert len(names) == 8
    assert "cat.png" in names
    assert picture_file(file, plan, pc.Criterion(correction="holm")).name == "cat.png"


def test_files_of_one_name_are_refused(tmp_path):
    files = [tmp_path / "a" / "cat.png", tmp_path / "b" / "cat.jpg"]
    with pytest.raises(pc.ArgumentError, match="images share the name cat"):
        make_folder(tmp_path / "out", files, "images", "rename them")
    assert files_in(tmp_path) == []
