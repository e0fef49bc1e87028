"""Somebody's votes, sampled again: honest ones stand, and edited, fitted or dependent ones are refuted."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cheats import CHEATS, SIDE
from command_line import make
from PIL import Image
from torch import Tensor

import pixelcert as pc
from pixelcert.basics.files import sha256
from pixelcert.image import image_hash
from pixelcert.noise import key_of, noisy, snap
from pixelcert.ranking import Counts
from pixelcert.sampling import fresh
from pixelcert.sampling.loop import explain_copies

IMAGE = torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)).mul(255).round().div(255)

# Explainers that a new process can import.


def brightness(images: Tensor, targets: Tensor) -> Tensor:
    return images.mean(dim=1)


def coin(images: Tensor, targets: Tensor) -> Tensor:
    """Each p is 1/2."""
    seeds = [int(sha256(image.contiguous().numpy())[:15], 16) for image in images]
    return torch.stack([torch.rand(SIDE, SIDE, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


def fixed(images: Tensor) -> Tensor:
    return torch.arange(SIDE * SIDE).float().view(1, SIDE, SIDE).expand(len(images), -1, -1)


def fitted(images: Tensor, targets: Tensor) -> Tensor:
    """Answer a fixed map for the copies of seed 0, and chance for others."""
    clean = snap(IMAGE)
    copies = noisy(clean, 0.15, key_of(pc.Plan(seed=0), image_hash(clean)), range(100))
    known = [bool((copies == image).flatten(1).all(dim=1).any()) for image in images]
    return torch.where(torch.tensor(known)[:, None, None], fixed(images), coin(images, targets))


sampled_here: list[int] = []  # empty in a new process


def loud(images: Tensor, targets: Tensor) -> Tensor:
    print("explaining", flush=True)
    os.write(1, b"explaining\n")
    return brightness(images, targets)


def failing_elsewhere(images: Tensor, targets: Tensor) -> Tensor:
    if not sampled_here:
        raise RuntimeError("the licence is for one process")
    return brightness(images, targets)


def ending_elsewhere(images: Tensor, targets: Tensor) -> Tensor:
    if not sampled_here:
        os._exit(7)
    return brightness(images, targets)


class Cheating:
    """A cheat of this name, made anew in every process, as a module that is imported there is."""

    def __init__(self, name: str, **arguments: Any) -> None:
        self.made = partial(CHEATS[name].make, **arguments)()
        self.again = Cheating, (name,), arguments

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        return self.made(images, targets)

    def __reduce__(self) -> Any:
        return partial(self.again[0], *self.again[1], **self.again[2]), ()


def clock() -> float:
    """The hour that a test says it is."""
    return 3600 * float(os.environ["HOUR"])


CHEATS_FOR_A_NEW_PROCESS = [
    (name, {"clock": clock} if name == "the time" else {})
    for name, cheat in CHEATS.items()
    if cheat.found_by == "verify"
]


def sampled(explainer: Any = brightness, **settings: Any) -> pc.Votes:
    return pc.sample(explainer, IMAGE, 0, **settings)


def edited(votes: pc.Votes, chosen: np.ndarray) -> pc.Votes:
    """Give the chosen pixels of the only level all votes or none, as many together as before: as a ranking could."""
    ones = votes.ones.copy()
    order = np.argsort(-ones[0][chosen], kind="stable")
    whole, rest = divmod(int(ones[0][chosen].sum()), votes.counted)
    ones[0][chosen] = np.where(np.argsort(order) < whole, votes.counted, np.where(np.argsort(order) == whole, rest, 0))
    return dataclasses.replace(votes, ones=ones, zeros=votes.counted - ones)


# ── What stands ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("batch_size", [None, 7])
def test_honest_votes_come_out_again_and_their_labels_hold(batch_size):
    found = pc.verify(sampled(batch_size=batch_size), brightness, IMAGE)
    assert (found.differing, found.refuted, found.unlike, found.sound) == (0, 0, [], True)
    assert found.checked > 100
    assert found.same_process == ""
    assert "no proof" in found.verdict


def test_a_method_is_verified_in_a_new_process_with_its_prediction():
    model = make(answer=1)
    explainer = pc.method("grad", model, "input")
    votes = pc.sample(explainer, IMAGE, 1)
    found = pc.verify(votes, explainer)  # the image is in the votes
    assert found.sound
    assert found.same_process == ""
    labels = sum(int((labels != pc.ABSTAIN).sum()) for labels in found.certificate.labels.values())
    assert found.certificate.prediction.certified
    assert found.checked == labels + 1


def test_the_fresh_copies_have_noise_of_their_own_whatever_the_seed(monkeypatch):
    """They are explained one by one, each once, in another order than before."""
    asked: list[tuple[int, range]] = []

    def recording(*given: Any, key: int, samples: range, **named: Any) -> Any:
        asked.append((key, samples))
        return explain_copies(*given, key=key, samples=samples, **named)

    local = lambda images, targets: images.mean(dim=1)  # noqa: E731  (it stays in this process)
    votes = sampled(local, seed=5)
    monkeypatch.setattr(fresh, "explain_copies", recording)
    assert pc.verify(votes, local, IMAGE, seed=5).seed == 5
    assert len({key for key, _ in asked}) == 1
    assert key_of(votes.plan, votes.provenance.image) not in {key for key, _ in asked}
    order = [sample for _, samples in asked for sample in samples]
    assert sorted(order) == list(range(100))
    assert order != sorted(order)
    assert all(len(samples) == 1 for _, samples in asked)


def test_an_unstated_seed_is_drawn_anew():
    votes = sampled(seed=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pixelcert.plan.secrets.randbits", lambda bits: 2**bits - 1)
        found = pc.verify(votes, brightness, IMAGE)
    assert found.seed == 2**63 - 1
    assert found.as_dict()["seed"] == str(2**63 - 1)


def test_a_certificate_without_labels_has_nothing_to_refute():
    found = pc.verify(sampled(coin, levels=50), coin, IMAGE)
    assert (found.checked, found.refuted, found.sound) == (0, 0, True)
    assert "no label is certified" in found.verdict


def test_rounding_on_another_kind_of_machine_is_counted_and_refutes_nothing():
    votes = sampled()
    elsewhere = dataclasses.replace(votes.provenance, processor="AVX9, 3 threads")
    ones, zeros = votes.ones.copy(), votes.zeros.copy()
    row, column = np.argwhere(np.abs(ones[0] - zeros[0]) == 2)[0]  # far from certified
    ones[0, row, column], zeros[0, row, column] = zeros[0, row, column], ones[0, row, column]
    found = pc.verify(dataclasses.replace(votes, provenance=elsewhere, ones=ones, zeros=zeros), brightness, IMAGE)
    assert found.differing == 4
    assert found.sound
    assert any("AVX9" in way for way in found.unlike)
    assert f"all but {found.differing} votes" in found.verdict


# ── What is refuted ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_votes_that_were_edited_and_sealed_again_are_refuted(tmp_path):
    """The checksum of a file says nothing about who wrote it."""
    votes = sampled(coin, levels=50)
    forged = pc.Votes.load(edited(votes, np.ones(votes.size, bool)).save(tmp_path / "forged.safetensors"))
    assert forged.certify().percent_certified(50) > 99
    found = pc.verify(forged, coin, IMAGE)
    assert not found.sound
    assert found.refuted > 50
    assert found.refuted_labels(50).sum() == found.refuted
    assert found.verdict.startswith("REFUTED")


def test_a_few_false_labels_among_many_true_ones_refute_a_certificate():
    votes = sampled(levels=50)
    unsure = (np.abs(votes.ones[0] - votes.zeros[0]) < 30) & (np.arange(SIDE * SIDE).reshape(SIDE, SIDE) % 7 == 0)
    found = pc.verify(edited(votes, unsure), brightness, IMAGE, samples=400)
    assert 0 < found.refuted <= unsure.sum()
    assert not (found.refuted_labels(50) & ~unsure).any()


def test_true_labels_with_edited_votes_do_not_come_out_again():
    votes = sampled(levels=50)
    ones = votes.ones.copy()
    one, other = np.argwhere(ones[0] == 99)[:2]
    ones[0, one[0], one[1]] += 1
    ones[0, other[0], other[1]] -= 1
    found = pc.verify(dataclasses.replace(votes, ones=ones, zeros=100 - ones), brightness, IMAGE)
    assert found.refuted == 0
    assert found.differing == 4
    assert not found.sound
    assert "come out again" in found.verdict


def test_an_explainer_that_is_fitted_to_the_recorded_seed_is_refuted():
    votes = sampled(fitted, seed=0)
    assert votes.certify().percent_certified(50) > 90
    found = pc.verify(votes, fitted, IMAGE)
    assert found.differing == 0
    assert found.refuted > 50


@pytest.mark.parametrize(("name", "arguments"), CHEATS_FOR_A_NEW_PROCESS)
def test_what_no_check_sees_is_refuted_in_a_new_process_later_and_in_another_order(name, arguments, monkeypatch):
    monkeypatch.setenv("HOUR", "7")
    votes = sampled(Cheating(name, **arguments), n=1000, levels=50, batch_size=100)
    assert votes.certify().percent_certified(50) > 90
    monkeypatch.setenv("HOUR", "8")
    found = pc.verify(votes, Cheating(name, **arguments), IMAGE)
    assert found.same_process == ""
    assert found.refuted > 50


def test_an_explainer_that_is_seen_to_be_dependent_is_refuted():
    votes = sampled(lambda images, targets: coin(images, targets), levels=50)
    object.__setattr__(votes.provenance, "method", "Cheating")
    found = pc.verify(edited(votes, np.ones(votes.size, bool)), Cheating("the first row"), IMAGE)
    assert not found.sound
    assert "rest of the batch" in found.verdict
    assert found.as_dict()["dependence"]


def test_a_false_prediction_is_refuted():
    model = make()
    explainer = pc.method("grad", model, "input")
    votes = pc.sample(explainer, IMAGE, 0, tau=None)
    wrong = np.roll(votes.predictions, 1)
    found = pc.verify(dataclasses.replace(votes, predictions=wrong), explainer)
    assert votes.certify().prediction.certified
    assert found.prediction_refuted
    assert not found.sound


def test_votes_for_neither_label_count_against_it():
    """As of pixels that are NaN, or tied at the threshold, in the fresh copies."""

    def silent(images: Tensor, targets: Tensor) -> Tensor:
        return brightness(images, targets) * (torch.nan if silenced else 1)

    silenced: list[bool] = []
    votes = sampled(silent)
    silenced.append(True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pixelcert.sampling.verify.repeat", lambda votes, *given, **named: votes)
        found = pc.verify(votes, silent, IMAGE)
    assert found.refuted == found.checked > 0


def test_a_true_certificate_is_hardly_ever_refuted():
    """At p = τ for every certified label, the worst case of a true certificate, by the exact tail."""
    found = pc.verify(sampled(), brightness, IMAGE)
    needed, tau = found.votes_against_needed, found.certificate.tau
    draws = np.random.default_rng(0).binomial(found.samples, 1 - tau, (2000, found.checked))
    assert (draws.max(axis=1) >= needed).mean() <= found.risk * 5
    assert (draws.max(axis=1) >= needed - 8).mean() > found.risk * 20  # it bites


# ── What is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image": IMAGE.flip(-1)}, "image was"),
        ({"explainer": coin}, "method was 'brightness', now 'coin'"),
        ({"samples": 3}, "samples=3 cannot refute one of"),
        ({"samples": 0}, "samples=0 is not a whole number from 1"),
        ({"risk": 2}, "risk=2 is outside"),
        ({"seed": 1.5}, "seed=1.5 is not a whole number"),
        ({"tau": 0.99}, "n=100 samples cannot certify"),
    ],
)
def test_bad_arguments_are_refused_before_any_work(changes, words, monkeypatch):
    votes = sampled()
    monkeypatch.setattr("pixelcert.sampling.verify.repeat", None)
    given = {"explainer": brightness, "image": IMAGE, **changes}
    with pytest.raises(pc.PixelcertError, match=words):
        pc.verify(votes, **given)


def test_the_fewest_samples_that_are_named_are_enough():
    votes = sampled()
    with pytest.raises(pc.ArgumentError, match=r"use [0-9]+ or more") as refusal:
        pc.verify(votes, brightness, IMAGE, samples=3)
    fewest = int(str(refusal.value).split("use ")[1].split()[0])
    assert pc.verify(votes, brightness, IMAGE, samples=fewest).samples == fewest
    with pytest.raises(pc.ArgumentError):
        pc.verify(votes, brightness, IMAGE, samples=fewest - 1)


# ── The new process ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_explainer_that_cannot_be_sent_is_explained_here_and_that_is_said():
    local = lambda images, targets: images.mean(dim=1)  # noqa: E731
    found = pc.verify(sampled(local), local, IMAGE)
    assert found.sound
    assert "cannot be sent to a new process" in found.same_process
    assert found.as_dict()["new_process"] is False


def test_an_explainer_may_print(capfd):
    assert pc.verify(sampled(loud), loud, IMAGE).same_process == ""
    assert "explaining" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("explainer", "words"),
    [(failing_elsewhere, "RuntimeError: the licence is for one process"), (ending_elsewhere, "ended with exit code 7")],
)
def test_a_process_that_fails_is_an_error_and_no_refutation(explainer, words):
    sampled_here.append(1)
    with pytest.raises(pc.ExplainerError, match=words):
        pc.verify(sampled(explainer), explainer, IMAGE)


def test_progress_counts_both_seeds():
    told: list[tuple[int, int]] = []
    pc.verify(sampled(), brightness, IMAGE, samples=70, progress=lambda *counted: told.append(counted))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (170, 170)


# ── The command ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def file(certify, tmp_path) -> Path:
    """Votes of a photograph, sampled by the command."""
    assert certify("--seed", 3, "-K", 50).code == 0
    (file,) = (tmp_path / "out").glob("*.safetensors")
    return file


def test_the_command_says_that_nothing_speaks_against_honest_votes(pixelcert, file):
    run = pixelcert("verify", file, "--model", "command_line:make")
    assert run.code == 0, run.err
    assert "Nothing speaks against it: the votes come out again" in run.said


def test_the_command_refutes_forged_votes_with_exit_code_3(pixelcert, file):
    votes = pc.Votes.load(file)
    forged = edited(votes, np.abs(votes.ones[0] - votes.zeros[0]) < 20)
    forged.save(file)
    run = pixelcert("verify", file, "--model", "command_line:make", "--json", "-n", 100)
    assert run.code == 3
    assert '"sound": false' in run.out
    assert pixelcert("verify", file, "--model", "command_line:make", "-n", 100).code == 3


def test_code_that_a_file_names_is_not_run_unasked(pixelcert, file, monkeypatch):
    monkeypatch.setattr("command_line.make", None)
    for command in ("verify", "attack"):
        run = pixelcert(command, file)
        assert run.code == 1
        assert "give --model command_line:make to run that code" in run.said


def test_the_command_needs_the_photograph_itself(pixelcert, file, tmp_path):
    Image.new("RGB", (SIDE, SIDE)).save(tmp_path / "other.png")
    assert pixelcert("verify", file, "--model", "command_line:make", "--image", "other.png").code == 0, "votes hold it"
    dropped = dataclasses.replace(pc.Votes.load(file), photo=None)
    dropped.save(file)
    run = pixelcert("verify", file, "--model", "command_line:make", "--image", "other.png")
    assert run.code == 1
    assert "give the file with --image" in run.said
    assert pixelcert("verify", file, "--model", "command_line:make", "--image", "cat.png").code == 0


# ── What a sceptic found ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("claim", [{"batches": [[0, 99]]}, {"processor": "AVX9"}, {"device": "NVIDIA H100"}])
def test_another_kind_of_machine_excuses_rounding_only(claim):
    """One edited field of the header must not switch the first check off."""
    noise = torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(3))
    near = lambda images, targets: images.mean(dim=1) + 0.04 * noise[0]  # noqa: E731
    near.__qualname__ = "brightness"
    votes = sampled(near, levels=50, seed=0)
    forged = edited(votes, np.maximum(votes.ones[0], votes.zeros[0]) < 90)
    elsewhere = dataclasses.replace(votes.provenance, **claim)
    found = pc.verify(dataclasses.replace(forged, provenance=elsewhere), near, IMAGE)
    assert found.unlike
    assert found.mostly_lost
    agreed = torch.tensor(np.stack([forged.ones, forged.zeros])).flatten(2)  # where the fresh copies refute nothing
    lucky = dataclasses.replace(found, fresh=Counts(100, agreed, None))
    assert lucky.refuted == 0
    assert not lucky.sound


def test_modules_in_the_current_folder_are_not_run(pixelcert, file, tmp_path):
    """Somebody's archive may hold more than votes."""
    for name in ("random", "numpy", "torch", "site"):
        (tmp_path / f"{name}.py").write_text("import os; open('ran', 'w').close(); os._exit(9)")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = "import sys; sys.path[:] = filter(None, sys.path); from pixelcert.commands import main; main()"
    command = [sys.executable, "-c", code, "verify", str(file), "--model", "command_line:make"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert not (tmp_path / "ran").exists()
    assert run.returncode == 0, run.stderr


class Large:
    """An explainer that fills a pipe and that no new process can make."""

    def __init__(self) -> None:
        self.ballast = np.zeros(10**6)

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        return brightness(images, targets)

    def __reduce__(self) -> Any:
        return only_here, (self.ballast,)


def only_here(ballast: Any) -> Large:
    if not sampled_here:
        raise RuntimeError("not in a new process")
    return Large()


def test_an_explainer_that_a_new_process_cannot_make_is_explained_here():
    sampled_here.append(1)
    found = pc.verify(sampled(Large()), Large(), IMAGE)
    assert found.sound
    assert "RuntimeError: not in a new process" in found.same_process
    assert "in the same process" in found.verdict


def test_rounding_that_changes_from_run_to_run_is_no_edit():
    """As of GPU kernels that add in any order: then the machine does not give the same votes twice."""
    votes = sampled(levels=50)

    def shifted(place: int) -> pc.Votes:
        """Return the votes as another run rounds them: one vote goes from one pixel to another."""
        ones = votes.ones.copy()
        (first, second) = np.argwhere((ones[0] > 30) & (ones[0] < 70))[place : place + 2]
        ones[0, first[0], first[1]] += 1
        ones[0, second[0], second[1]] -= 1
        return dataclasses.replace(votes, ones=ones, zeros=100 - ones)

    for runs, sound in (((0, 2), True), ((0, 0), False)):
        repeated = iter(map(shifted, runs))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pixelcert.sampling.verify.repeat", lambda *given, again=repeated, **named: next(again))
            found = pc.verify(votes, brightness, IMAGE)
        assert (found.differing, found.sound) == (4, sound)


@pytest.mark.parametrize("predictions", [None, np.array([100, 0, 0, 0]), np.array([0, 0, 0, 0, 0, 0, 100])])
def test_forged_predictions_are_refuted_without_a_traceback(predictions):
    explainer = pc.method("grad", make(answer=1), "input")
    votes = pc.sample(explainer, IMAGE, 1)
    found = pc.verify(dataclasses.replace(votes, predictions=predictions), explainer)
    assert not found.sound
    assert found.differing >= 100
    assert found.as_dict()["differing"] == found.differing


@pytest.mark.parametrize("forged", [{"photo": np.zeros((SIDE, SIDE, 3), np.uint8)}, {"channels": 1}])
def test_what_people_look_at_is_compared_too(forged):
    with pytest.raises(pc.ArgumentError, match="trust none"):
        pc.verify(dataclasses.replace(sampled(), **forged), brightness, IMAGE)


def test_class_names_are_those_of_the_model():
    explainer = pc.method("grad", make(), "input")
    votes = pc.sample(explainer, IMAGE, 0, tau=None)
    named = dataclasses.replace(votes.provenance, class_names={"0": "a tumour"})
    with pytest.raises(pc.ArgumentError, match="a tumour"):
        pc.verify(dataclasses.replace(votes, provenance=named), explainer)


@pytest.mark.parametrize(
    "source", [{"origin": {"weights": "none"}}, {"params": {"model": 1}}, {"params": {"layer": 1}}]
)
def test_odd_headers_are_refused_without_a_traceback(pixelcert, file, source):
    votes = pc.Votes.load(file)
    dataclasses.replace(votes, provenance=dataclasses.replace(votes.provenance, **source)).save(file)
    run = pixelcert("verify", file)
    assert run.code == 1
    assert "error:" in run.err


def test_images_are_read_before_the_seed_is_drawn():
    first, second = IMAGE.clone(), IMAGE.flip(-1).clone()
    settings = pc.Plan(levels=(50,)), brightness, [pc.Subject(first, 0), pc.Subject(second, 0)], pc.Tuning(100)
    votes = pc.sample_each(*settings)
    next(votes)
    second[:] = 7.0  # chosen when the seed is known, and no image at all
    assert next(votes).provenance.image == image_hash(snap(IMAGE.flip(-1)))


def test_votes_share_no_memory_with_arrays_that_can_be_written():
    votes = sampled()
    base = votes.ones.copy()
    view = base.view()
    view.setflags(write=False)
    kept = dataclasses.replace(votes, ones=view)
    base[:] = 10**6
    assert kept.ones.max() <= 100


def test_more_arrays_may_not_stand_for_counts():
    with pytest.raises(pc.ArgumentError, match="more holds predictions"):
        dataclasses.replace(sampled(), more={"predictions": np.array([100])})
    with pytest.raises(pc.ArgumentError, match="more holds target"):
        dataclasses.replace(sampled().provenance, more={"target": 3})
