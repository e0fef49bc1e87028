"""`pixelcert attack`, through its entry point: what it prints, writes and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from small_networks import small_model

import pixelcert as pc
from pixelcert.attacks import campaign, choose_pixels, summarise
from pixelcert.attacks.outcome import Outcome
from pixelcert.commands import main
from pixelcert.commands.attack import BROKEN

MODEL = "small_networks:resnet_for_attacks"
QUICK = ("--steps", 2, "--draws", 2, "-n", 60, "--radius", 0.1)


class Run(NamedTuple):
    code: int
    out: str
    said: str  # to standard error, without the width of the terminal


@pytest.fixture
def attack(monkeypatch, capsys, tmp_path) -> Callable[..., Run]:
    """Runs `pixelcert attack` in this process, in an empty folder, on a wide terminal without colours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(sys.modules["small_networks"], "resnet_for_attacks", lambda: small_model("resnet"), False)

    def run(*arguments: Any) -> Run:
        monkeypatch.setattr(sys, "argv", ["pixelcert", "attack", *map(str, arguments)])
        code: Any = 0
        with warnings.catch_warnings():
            warnings.simplefilter("default", pc.PixelcertWarning)  # as in a process of its own
            try:
                main()
            except SystemExit as stop:
                code = stop.code or 0
        out, err = capsys.readouterr()
        return Run(code, out, " ".join(err.split()))

    return run


@pytest.fixture(scope="module")
def votes() -> pc.Votes:
    """Of a photograph with 8 bits a value, which votes hold exactly."""
    grey_levels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    image = torch.from_numpy(grey_levels.astype(np.float32) / 255).permute(2, 0, 1)
    explainer = pc.method("grad_cam", small_model("resnet"), relu=False)
    return pc.sample(explainer, image, 3, n=100, levels=(50, 25, 10), image_name="cat.png")


@pytest.fixture
def file(votes, tmp_path) -> Path:
    return votes.save(tmp_path / "cat.safetensors")


@pytest.fixture
def no_sampling(monkeypatch) -> None:
    monkeypatch.setattr(campaign, "sample_each", lambda *_, **__: pytest.fail("sampling began"))


def test_a_table_says_what_flipped_and_whether_the_certificate_holds(attack, file):
    run = attack(file, "--model", MODEL, *QUICK)
    assert run.code == 0
    assert "Flipped pixels: cat.png, grad_cam at final, K = 25 %" in run.out
    for words in ("δ = 0", "0.989 R", "none: random", "certified in", "certified out", "abstaining"):
        assert words in run.out
    assert "cat.safetensors: holds: no certified pixel provably lost its majority inside R = " in run.out
    assert "All together" not in run.out


def test_files_are_also_shown_all_together(attack, file, votes, tmp_path):
    again = votes.save(tmp_path / "again.safetensors")
    run = attack(file, again, "--model", MODEL, *QUICK)
    assert run.out.count("Flipped pixels: cat.png, grad_cam at final, K = 25 %") == 2
    assert run.out.count("All together: 1 image, grad_cam at final of small resnet, K = 25 %") == 1


def test_json_has_every_tally_and_agrees_with_the_library(attack, file, votes):
    run = attack(file, "--model", MODEL, *QUICK, "--json", "-K", 10, "--seed", 3)
    printed = json.loads(run.out)
    (found,) = printed["attacks"]
    explainer = pc.method("grad_cam", small_model("resnet"), relu=False)
    image = torch.from_numpy(votes.photo / np.float32(255)).permute(2, 0, 1)
    settings: Any = {"steps": 2, "draws": 2, "samples": 60, "radii": [0.1], "seed": 3}
    outcome = pc.attack(votes, explainer, image, level=10, **settings)
    assert printed["summary"] == json.loads(json.dumps([one.as_dict() for one in summarise([outcome])]))
    assert found["attempts"] == json.loads(json.dumps(outcome.as_dict()["attempts"]))
    assert found["broken"] == 0
    assert json.dumps(found["level"]) == "10"


def test_perturbations_and_pictures_go_to_a_folder(attack, file, tmp_path):
    run = attack(file, "--model", MODEL, *QUICK, "--out", "attacked")
    assert run.code == 0
    written = {path.name for path in (tmp_path / "attacked").iterdir()}
    assert written == {"cat-attack.safetensors", "cat-attack.png"}


def test_single_pixels_are_attacked_one_by_one_and_added_up(attack, file, votes, tmp_path):
    run = attack(file, "--model", MODEL, *QUICK, "--pixels", 2, "--seed", 4, "--out", "attacked", "--json")
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
    run = attack(file, "--model", MODEL, *QUICK, "--pixels", 1)
    for (row, column), verdict in zip(
        choose_pixels(votes.certify(), None, 1), ("holds", "nothing certified"), strict=True
    ):
        assert f"Flipped pixels: cat.png at {row}, {column}, grad_cam at final, K = 25 %" in run.out
        assert f"cat.safetensors at {row}, {column}: {verdict}: " in run.out
    assert "with confidence 99.9 %, for each pixel." in " ".join(run.out.split())


def test_a_broken_certificate_has_an_exit_code_of_its_own(attack, file, monkeypatch):
    monkeypatch.setattr(Outcome, "broken", 7)
    run = attack(file, "--model", MODEL, *QUICK)
    assert run.code == BROKEN == 3
    assert "BROKEN: 7 certified pixels" in run.out


def test_an_image_that_votes_hold_only_roughly_is_asked_for(attack, votes, tmp_path, monkeypatch):
    rough = pc.Votes(**{**vars(votes), "photo": votes.photo // 2})
    file = rough.save(tmp_path / "rough.safetensors")
    run = attack(file, "--model", MODEL, *QUICK)
    assert run.code == 1
    assert "the votes hold cat.png for pictures only, not exactly: give the file with --image." in run.said
    Image.fromarray(votes.photo // 2).save(tmp_path / "other.png")
    for wrong in (file, votes.save(tmp_path / "exact.safetensors")):  # which needs none, and is given one all the same
        run = attack(wrong, "--model", MODEL, *QUICK, "--image", "other.png")
        assert "--image other.png is not what was certified: give cat.png itself." in run.said
    Image.fromarray(votes.photo).save(tmp_path / "cat.png")
    assert attack(file, "--model", MODEL, *QUICK, "--image", "other.png", "--image", "cat.png").code == 0


@pytest.mark.usefixtures("no_sampling")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--radius", 0), "radii holds 0.0, which is not above 0"),
        (("--radius", -0.1), "radii holds -0.1"),
        (("-K", 7), "level 7 is not in the certificate: choose one of 50, 25, 10."),
        (("--pixels", 0), "pixels=0 is not a number of pixels: use a whole number from 1."),
        (("-n", 10), "samples=10 cannot prove a flip"),
        (("--tau", 0.9), "n=100 samples cannot certify any"),
        (("--correction", "hochberg"), "correction='hochberg' is not known"),
        (("--gradient", "newton"), "gradient='newton' is not known"),
        (("--out", "cat.safetensors"), "--out cat.safetensors cannot be a folder"),
    ],
)
def test_senseless_options_are_refused_with_a_remedy(attack, file, arguments, message):
    run = attack(file, "--model", MODEL, *arguments)
    assert run.code == 1
    assert message in run.said


@pytest.mark.usefixtures("no_sampling")
def test_the_file_that_cannot_reach_tau_is_named(attack, file, make_votes, tmp_path):
    few = make_votes(n=30).save(tmp_path / "few.safetensors")
    run = attack(file, few, "--model", MODEL)
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
    monkeypatch.setattr("pixelcert.models.loading.load_model", lambda *_: pytest.fail("a model was loaded"))
    run = attack(file, *options)
    assert run.code == 1
    assert words in run.said


@pytest.mark.usefixtures("no_sampling")
@pytest.mark.parametrize(("length", "options"), [(230, ()), (224, ("--pixels", 1))])
def test_a_result_whose_name_is_too_long_is_refused(attack, votes, tmp_path, no_sampling, length, options):
    file = votes.save(tmp_path / f"{'a' * length}.safetensors")
    run = attack(file, "--model", MODEL, "--out", "attacked", *options)
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
    run = attack(file, again, "--model", MODEL, *QUICK)
    assert (run.code, run.out) == (130, "")
    assert f"interrupted in the attack on {again}; 1 of 2 were done." in run.said


def test_ctrl_c_while_a_model_loads_is_answered(attack, file, monkeypatch):
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pixelcert.models.loading.load_model", interrupted)
    run = attack(file, "--model", MODEL)
    assert (run.code, run.out, run.said) == (130, "", "interrupted.")


@pytest.mark.usefixtures("no_sampling")
def test_another_model_is_refused(attack, file, monkeypatch):
    def other() -> pc.Classifier:
        model = small_model("resnet")
        with torch.no_grad():
            model.net.fc.bias += 1
        return model

    monkeypatch.setattr(sys.modules["small_networks"], "resnet_for_attacks", other)
    run = attack(file, "--model", MODEL)
    assert run.code == 1
    assert "these votes are about something else: weights was" in run.said


@pytest.mark.usefixtures("no_sampling")
def test_explainers_from_elsewhere_are_left_to_python(attack, make_votes, tmp_path):
    votes = make_votes((50,), (16, 16), source={"method": "my_explainer"}, photo=np.zeros((16, 16, 3), np.uint8))
    run = attack(votes.save(tmp_path / "mine.safetensors"))
    assert run.code == 1
    assert "my_explainer is none of `pixelcert methods`" in run.said
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
    run = attack(file, "other/cat.safetensors", "--model", MODEL, "--out", "attacked")
    assert run.code == 1
    assert "votes share the name cat" in run.said


def test_the_command_is_listed_without_loading_torch():
    code = "import sys; sys.argv = ['pixelcert', '--help']\nfrom pixelcert.commands import main\n"
    code += "try:\n    main()\nfinally:\n    print('torch' in sys.modules, 'scipy' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "attack" in shown
    assert shown.strip().endswith("False False")
