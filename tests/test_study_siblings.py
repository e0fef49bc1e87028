"""Jobs that differ only in their preset: every map is made once, and each job has the votes it would have by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_studies import small_study

import pixelcert as pc
from pixelcert.explainer import Explainer, Explanation, Tuning
from pixelcert.plan import Plan
from pixelcert.sampling import loop, precision
from pixelcert.sampling.sample import Subject, sample_plans

DEFAULT, REFERENCE = (Plan.make(preset=preset, n=30, levels=(50, 10)) for preset in ("default", "reference"))


class Sum(Explainer):
    """An explainer that counts its images."""

    def __init__(self) -> None:
        self.explained = 0

    def explain(self, images: torch.Tensor, targets: torch.Tensor) -> Explanation:
        self.explained += len(images)
        return Explanation(images.sum(dim=1) - 1.5)


def subjects(count: int) -> list[Subject]:
    generator = torch.Generator().manual_seed(0)
    return [Subject(torch.rand(3, 12, 12, generator=generator), 0) for _ in range(count)]


def same(one: pc.Votes, other: pc.Votes) -> bool:
    guesses = [each.guess_ones for each in (one, other)]
    return (
        np.array_equal(one.ones, other.ones)
        and np.array_equal(one.zeros, other.zeros)
        and (guesses[0] is guesses[1] is None or np.array_equal(*guesses))
        and one.plan == other.plan
    )


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("batch_size", [7, 30, 64])
def test_plans_sampled_together_have_the_votes_of_each_alone(batch_size):
    explainer = Sum()
    together = list(sample_plans((DEFAULT, REFERENCE), explainer, subjects(3), Tuning(batch_size)))
    assert explainer.explained == 3 * 30
    for place, plan in enumerate((DEFAULT, REFERENCE)):
        alone = [votes for (votes,) in sample_plans((plan,), Sum(), subjects(3), Tuning(batch_size))]
        assert all(same(votes[place], other) for votes, other in zip(together, alone, strict=True))
    assert not np.array_equal(together[0][0].ones, together[0][1].ones)


@pytest.mark.parametrize("other", [{"sigma": 0.2}, {"n": 31}, {"seed": 1}])
def test_plans_of_different_noise_are_refused(other):
    with pytest.raises(pc.ArgumentError, match=r"different noise .* one by one"):
        sample_plans((DEFAULT, Plan(**{"n": 30, "levels": (50, 10), **other})), Sum(), subjects(1), Tuning())


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "choose_batch_size", lambda *_: 8)


def explained_in(study: pc.Study, monkeypatch: pytest.MonkeyPatch) -> int:
    """Count the noisy images that a run of the study explains."""
    explained = []
    real = loop.explain

    def counting(explainer: Any, images: torch.Tensor, targets: torch.Tensor) -> Any:
        explained.append(len(images))
        return real(explainer, images, targets)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "explain", counting)
        study.run()
    return sum(explained)


def votes_of(study: pc.Study) -> dict[str, bytes]:
    return {str(job): study.store.votes_file(job).read_bytes() for job in study.jobs()}


def test_presets_of_a_study_share_their_maps(tmp_path: Path, monkeypatch):
    both = small_study(tmp_path / "both", presets=["default", "reference"], sigma=[0.15, 0.25])
    explained = explained_in(both, monkeypatch)
    jobs = both.jobs()
    assert explained == sum(job.plan.n for job in jobs) / 2
    expected: dict[str, bytes] = {}
    for preset in ("default", "reference"):
        alone = small_study(tmp_path / preset, presets=preset, sigma=[0.15, 0.25])
        alone.run()
        expected |= votes_of(alone)
    assert votes_of(both) == expected
    assert all(both.store.load_measures(job) is not None for job in jobs)


def test_the_plan_counts_shared_maps_once(tmp_path: Path):
    def planned(presets: list[str]) -> dict[Any, Any]:
        study = small_study(tmp_path / "-".join(presets), presets=presets, sigma=[0.15, 0.25])
        return study.estimate(study.resolve(), calibrate=False)

    one, both = planned(["default"]), planned(["default", "reference"])
    assert both.keys() == one.keys()
    for cell, estimate in both.items():
        assert estimate.jobs == 2 * one[cell].jobs
        assert (estimate.sampled, estimate.passes) == (one[cell].sampled, one[cell].passes)
        assert one[cell].sampled == one[cell].jobs


def test_interrupted_siblings_are_both_continued(tmp_path: Path, monkeypatch, small_batches):
    study = small_study(tmp_path / "cut", presets=["default", "reference"])
    calls = []
    real = loop.noisy

    def noisy_until(*given: Any, **named: Any) -> torch.Tensor:
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "noisy", noisy_until)
        with pytest.raises(KeyboardInterrupt):
            study.run()
    begun = [job for job in study.jobs() if study.store.place(job).partial.exists()]
    assert [job.preset for job in begun] == ["default", "reference"]
    study.run()
    undisturbed = small_study(tmp_path / "whole", presets=["default", "reference"])
    undisturbed.run()
    assert votes_of(study) == votes_of(undisturbed)


def test_a_sibling_that_another_process_is_doing_is_left_to_it(tmp_path: Path):
    study = small_study(tmp_path / "busy", presets=["default", "reference"])
    worker = study.worker(study.resolve())
    first = study.jobs()[0]
    (sibling,) = first.siblings
    with study.store.lock(sibling) as mine:
        assert mine
        worker.do(first)
        assert not study.store.votes_file(sibling).exists()
    assert study.store.votes_file(first).exists()
