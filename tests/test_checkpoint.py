"""Votes in files: found, compared, continued and saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pixelcert as pc
from pixelcert.explainer import Tuning, as_explainer
from pixelcert.plan import Plan
from pixelcert.sampling.checkpoint import Place, find_votes, image_of, sample_into
from pixelcert.sampling.sample import Subject

PLAN = Plan(n=20, levels=(50, 10))
IMAGE = torch.rand(3, 8, 6, generator=torch.Generator().manual_seed(0)).mul(255).round().div(255)
TUNING = Tuning(batch_size=5)


def brightness(images: Tensor, targets: Tensor) -> Tensor:
    return images.mean(dim=1)


def stopping(images: Tensor, targets: Tensor) -> Tensor:
    if stopping.left == 0:  # type: ignore[attr-defined]
        raise KeyboardInterrupt
    stopping.left -= 1  # type: ignore[attr-defined]
    return images.mean(dim=1)


stopping.__qualname__ = "brightness"


def subject(image: Tensor = IMAGE, target: int = 0) -> Subject:
    return Subject(image, target, "cat.png")


def fresh(plan: Plan = PLAN) -> pc.Votes:
    return pc.sample(brightness, IMAGE, 0, n=plan.n, levels=plan.levels, batch_size=5, tau=None)


def into(place: Place, explainer: Any = brightness, found: pc.Votes | None = None) -> pc.Votes:
    ((votes,),) = sample_into([[place]], [PLAN], as_explainer(explainer), [subject()], [found], TUNING)
    return votes


def test_whole_votes_are_saved_and_end_the_partial_file(tmp_path: Path):
    place = Place.of(tmp_path / "cat.safetensors")
    place.partial.write_bytes(b"old")
    votes = into(place)
    assert not place.partial.exists()
    np.testing.assert_array_equal(pc.Votes.load(place.whole).ones, votes.ones)


@pytest.mark.usefixtures("unchecked")
def test_an_interruption_leaves_partial_votes_that_go_on_to_the_same_counts(tmp_path: Path):
    place = Place.of(tmp_path / "cat.safetensors")
    stopping.left = 3  # type: ignore[attr-defined]
    with pytest.raises(pc.Interrupted):
        into(place, stopping)
    assert not place.whole.exists()
    partial = find_votes(place, PLAN, as_explainer(brightness), subject(), TUNING, overwrite=False)
    assert partial is not None
    assert 0 < partial.counted < PLAN.n
    resumed = into(place, brightness, partial)
    np.testing.assert_array_equal(resumed.ones, fresh().ones)
    assert place.whole.exists()
    assert not place.partial.exists()


@pytest.mark.parametrize(
    ("plan", "other", "said"),
    [
        (Plan(n=21, levels=(50, 10)), subject(), "n was 20, now 21"),
        (PLAN, subject(target=1), "target was 0, now 1"),
        (PLAN, subject(1 - IMAGE), "image was"),
    ],
)
def test_votes_of_another_question_are_refused_unless_they_may_be_replaced(tmp_path: Path, plan, other, said):
    place = Place.of(tmp_path / "cat.safetensors")
    into(place)
    with pytest.raises(pc.ArgumentError, match=rf"holds votes of another run \(.*{said}"):
        find_votes(place, plan, as_explainer(brightness), other, TUNING, overwrite=False)
    assert find_votes(place, plan, as_explainer(brightness), other, TUNING, overwrite=True) is None


def test_damaged_votes_are_refused_unless_they_may_be_replaced(tmp_path: Path):
    place = Place.of(tmp_path / "cat.safetensors")
    place.whole.write_bytes(b"nothing")
    with pytest.raises(pc.VotesFileError):
        find_votes(place, PLAN, as_explainer(brightness), subject(), TUNING, overwrite=False)
    assert find_votes(place, PLAN, as_explainer(brightness), subject(), TUNING, overwrite=True) is None


def test_the_stored_picture_is_the_image_where_it_is_exact():
    votes = fresh()
    torch.testing.assert_close(image_of(votes), IMAGE, rtol=0, atol=0)
    inexact = pc.sample(brightness, IMAGE * 0.999, 0, n=20, levels=50, tau=None, image_name="cat.png")
    with pytest.raises(pc.ArgumentError, match=r"hold only a rounded picture of cat\.png"):
        image_of(inexact)


def test_the_provenance_tells_each_batch_size_and_from_which_sample(tmp_path: Path):
    def hungry(images: Tensor, targets: Tensor) -> Tensor:
        if len(images) > 4:
            raise torch.OutOfMemoryError("out of memory")
        return images.mean(dim=1)

    votes = pc.sample(hungry, IMAGE, 0, n=20, levels=50, batch_size=16, tau=None)
    assert votes.provenance.batches == [[0, 4]]
    assert fresh().provenance.batches == [[0, 5]]
    file = votes.save(tmp_path / "votes.safetensors")
    assert pc.Votes.load(file).provenance == votes.provenance


@pytest.mark.usefixtures("unchecked")
def test_batches_that_shrink_midway_are_told():
    calls = []

    def later(images: Tensor, targets: Tensor) -> Tensor:
        calls.append(len(images))
        if len(images) > 4 and len(calls) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return images.mean(dim=1)

    votes = pc.sample(later, IMAGE, 0, n=40, levels=50, batch_size=8, tau=None)
    assert votes.provenance.batches == [[0, 8], [24, 4]]
