"""`pixelcert attack`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Run, interrupted
from PIL import Image
from small_studies import SIZE, tiny

import pixelcert as pc
from pixelcert.attacks import campaign, choose_pixels, summarise
from pixelcert.attacks.outcome import Outcome

MODEL = ("--model", "small_studies:tiny")
QUICK = (*MODEL, "--steps", 1, "--draws", 2, "-n", 40, "--radius", 0.1)


@pytest.fixture
def attack(pixelcert) -> Callable[..., Run]:
    """Runs `pixelcert attack` in this process, in an empty folder."""
    return lambda *arguments: pixelcert("attack", *arguments)


@pytest.fixture(scope="session")
def votes() -> pc.Votes:
    """Of a photograph with 8 bits a value, which votes hold exactly."""
    grey_levels = np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
    image = torch.from_numpy(grey_levels.astype(np.float32) / 255).permute(2, 0, 1)
    explainer = pc.method("grad_cam", tiny(), relu=False)
    return pc.sample(explainer, image, 3, n=60, levels=(50, 25, 10), image_name="cat.png")


@pytest.fixture
def file(votes, tmp_path) -> Path:
    return votes.save(tmp_path / "cat.safetensors")


@pytest.fixture
def no_sampling(monkeypatch) -> None:
    monkeypatch.setattr(campaign, "sample_each", lambda *_, **__: pytest.fail("sampling began"))


def test_a_table_says_what_flipped_and_whether_the_certificate_holds(attack, file):
    run = attack(file, *QUICK)
    assert run.code == 0
    assert "Flipped pixels: cat.png, grad_cam at final, K = 25 %" in run.out
    for words in ("δ = 0", "0.989 R", "none: random", "certified in", "certified out", "abstaining"):
        assert words in run.out
    assert "cat.safetensors: holds: no certified pixel provably lost its majority inside R = " in run.out
    assert "All together" not in run.out


def test_files_are_also_shown_all_together(attack, file, votes, tmp_path):
    again = votes.save(tmp_path / "again.safetensors")
    run = attack(file, again, *QUICK)
    assert run.out.count("Flipped pixels: cat.png, grad_cam at final, K = 25 %") == 2
    assert run.out.count("All together: 1 image, grad_cam at final of tiny, K = 25 %") == 1


def test_json_has_every_tally_and_agrees_with_the_library(attack, file, votes):
    run = attack(file, *QUICK, "--json", "-K", 10, "--seed", 3)
    printed = json.loads(run.out)
    (found,) = printed["attacks"]
    explainer = pc.method("grad_cam", tiny(), relu=False)
    image = torch.from_numpy(votes.photo / np.float32(255)).permute(2, 0, 1)
    settings: Any = {"steps": 1, "draws": 2, "samples": 40, "radii": [0.1], "seed": 3}
    outcome = pc.attack(votes, explainer, image, level=10, **settings)
    assert printed["summary"] == json.loads(json.dumps([one.as_dict() for one in summarise([outcome])]))
    assert found["attempts"] == json.loads(json.dumps(outcome.as_dict()["attempts"]))
    assert found["broken"] == 0
    assert json.dumps(found["level"]) == "10"


def test_perturbations_and_pictures_go_to_a_folder(attack, file, tmp_path):
    run = attack(file, *QUICK, "--out", "attacked")
    assert run.code == 0
    written = {path.name for path in (tmp_path / "attacked").iterdir()}
    assert written == {"cat-attack.safetensors", "cat-attack.png"}


def test_single_pixels_are_attacked_one_by_one_and_added_up(attack, file, votes, tmp_path):
    run = attack(file, *QUICK, "--pixels", 2, "--seed", 4, "--out", "attacked", "--json")
    printed = json.loads(run.out)
    chosen = [tuple(one["pixel"]) for one in printed["attacks"]]
    assert chosen == choose_pixels(votes.certify(), None, 2, seed=4) != choose_pixels(votes.certify(), None, 2, seed=0)
    assert {path.name for path in (tmp_path / "attacked").iterdir()} == {
        f"cat-{row}-{column}-attack.safetensors" for row, column in chosen
    }
    (together,) = printed["summary"]
    assert together["pixels"]["certified in"] + together["pixels"]["certified out"] == 2
    assert together["pixels"]["abstaining"] == 2
    against = {row["change"]: row["groups"]["abstaining"]["pixels"] for row in together["rows"]}
    assert against == {"none": 2, "random": 2, "certified": 0, "abstaining": 2}


def test_a_verdict_names_its_pixel(attack, file, votes):
    run = attack(file, *QUICK, "--pixels", 1)
    for (row, column), verdict in zip(
        choose_pixels(votes.certify(), None, 1), ("holds", "nothing certified"), strict=True
    ):
        assert f"Flipped pixels: cat.png at {row}, {column}, grad_cam at final, K = 25 %" in run.out
        assert f"cat.safetensors at {row}, {column}: {verdict}: " in run.out
    assert "with confidence 99.9 %, for each pixel." in " ".join(run.out.split())


def test_a_broken_certificate_has_an_exit_code_of_its_own(attack, file, monkeypatch):
    monkeypatch.setattr(Outcome, "broken", 7)
    run = attack(file, *QUICK)
    assert run.code == 3
    assert "BROKEN: 7 certified pixels" in run.out


def test_an_image_that_votes_hold_only_roughly_is_asked_for(attack, votes, tmp_path, monkeypatch):
    rough = pc.Votes(**{**vars(votes), "photo": None})
    file = rough.save(tmp_path / "rough.safetensors")
    run = attack(file, *QUICK)
    assert run.code == 1
    assert "the votes hold only a rounded picture of cat.png: give the file with --image." in run.said
    Image.fromarray(votes.photo // 2).save(tmp_path / "other.png")
    for wrong in (file, votes.save(tmp_path / "exact.safetensors")):  # which needs none, and is given one all the same
        run = attack(wrong, *QUICK, "--image", "other.png")
        assert "--image other.png is not the certified image: give cat.png itself." in run.said
    Image.fromarray(votes.photo).save(tmp_path / "cat.png")
    assert attack(file, *QUICK, "--image", "other.png", "--image", "cat.png").code == 0


@pytest.mark.usefixtures("no_sampling")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--radius", 0), "radii holds 0.0, which is not above 0"),
        (("--radius", -0.1), "radii holds -0.1"),
        (("-K", 7), ": choose one of 50, 25, 10."),
        (("--pixels", 0), "pixels=0 is not a"),
        (("-n", 10), "samples=10 cannot refute one of"),
        (("--tau", 0.9), "n=60 samples cannot certify any"),
        (("--correction", "hochberg"), "correction='hochberg' is not known"),
        (("--gradient", "newton"), "gradient='newton' is not known"),
        (("--out", "cat.safetensors"), "--out cat.safetensors cannot be a folder"),
    ],
)
def test_senseless_options_are_refused_with_a_remedy(attack, file, arguments, message):
    run = attack(file, *MODEL, *arguments)
    assert run.code == 1
    assert message in run.said


@pytest.mark.usefixtures("no_sampling")
def test_the_file_that_cannot_reach_tau_is_named(attack, file, make_votes, tmp_path):
    few = make_votes(n=30).save(tmp_path / "few.safetensors")
    run = attack(file, few, *MODEL)
    assert run.code == 1
    assert f"error: {few}: n=30 samples cannot certify any" in run.said


@pytest.mark.usefixtures("no_sampling")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--device", "meta"), "device=meta cannot be used"),
        (("--weights", "gone.pth"), "--weights gone.pth is not a file"),
    ],
)
def test_options_are_refused_before_a_model_is_loaded(attack, file, monkeypatch, options, words):
    monkeypatch.setattr("pixelcert.commands.certify.load_model", lambda *_: pytest.fail("a model was loaded"))
    run = attack(file, *options)
    assert run.code == 1
    assert words in run.said


@pytest.mark.usefixtures("no_sampling")
@pytest.mark.parametrize(("length", "options"), [(230, ()), (224, ("--pixels", 1))])
def test_a_result_whose_name_is_too_long_is_refused(attack, votes, tmp_path, no_sampling, length, options):
    file = votes.save(tmp_path / f"{'a' * length}.safetensors")
    run = attack(file, *MODEL, "--out", "attacked", *options)
    assert run.code == 1
    assert "name too long): choose a shorter name." in run.said


def test_ctrl_c_says_what_was_done(attack, file, votes, tmp_path, monkeypatch):
    again = votes.save(tmp_path / "again.safetensors")
    run_one, begun = campaign.Campaign.run, []

    def run_first(self: Any, progress: Any) -> Outcome:
        begun.append(self)
        if len(begun) > 1:
            raise KeyboardInterrupt
        return run_one(self, progress)

    monkeypatch.setattr(campaign.Campaign, "run", run_first)
    run = attack(file, again, *QUICK)
    assert (run.code, run.out) == (130, "")
    assert f"interrupted in the attack on {again}; 1 of 2 were done." in run.said


def test_ctrl_c_while_a_model_loads_is_answered(attack, file, monkeypatch):
    monkeypatch.setattr("pixelcert.commands.certify.load_model", interrupted)
    assert attack(file, *MODEL) == Run(130, "", "interrupted.\n")


def other() -> pc.Classifier:
    model = tiny()
    with torch.no_grad():
        model.net.head[0].bias += 1
    return model


@pytest.mark.usefixtures("no_sampling")
def test_another_model_is_refused(attack, file):
    run = attack(file, "--model", f"{__name__}:other")
    assert run.code == 1
    assert "these votes are about something else: weights was" in run.said


@pytest.mark.usefixtures("no_sampling")
def test_explainers_from_elsewhere_are_left_to_python(attack, make_votes, tmp_path):
    votes = make_votes((50,), (16, 16), source={"method": "my_explainer"}, photo=np.zeros((16, 16, 3), np.uint8))
    run = attack(votes.save(tmp_path / "mine.safetensors"))
    assert run.code == 1
    assert "my_explainer is not one of `pixelcert methods`" in run.said
    assert "pixelcert.attack(votes, explainer, image)" in run.said


@pytest.mark.usefixtures("no_sampling")
def test_unfinished_votes_are_refused(attack, make_votes, tmp_path):
    votes = make_votes(counted=40)
    run = attack(votes.save(tmp_path / "half.safetensors"))
    assert run.code == 1
    assert "40 of the 100 planned samples are counted" in run.said


@pytest.mark.usefixtures("no_sampling")
def test_files_of_one_name_do_not_share_a_result(attack, file, votes, tmp_path):
    (tmp_path / "other").mkdir()
    votes.save(tmp_path / "other" / "cat.safetensors")
    run = attack(file, "other/cat.safetensors", *MODEL, "--out", "attacked")
    assert run.code == 1
    assert "votes share the name cat" in run.said
