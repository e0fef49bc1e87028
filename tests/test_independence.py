"""Explainers that cheat are refused or not certified, honest ones are neither, and the checks cost little."""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from cheats import (
    CHEATS,
    IMAGE,
    SIDE,
    Cheat,
    changed_after,
    coin,
    fair,
    fixed,
    of_the_clean_image,
    of_the_time,
    of_the_whole_batch,
    random_numbers_of_torch,
)
from small_networks import tiny
from torch import Tensor, nn
from torch.nn import functional as F

import pixelcert as pc
from pixelcert.basics.generators import moved, states
from pixelcert.explainer import Explanation, Tuning, as_explainer, explain
from pixelcert.noise import noisy, snap
from pixelcert.plan import Plan
from pixelcert.ranking import count_votes
from pixelcert.sampling import independence, loop
from pixelcert.sampling.independence import DependenceError, Independence, Rows
from pixelcert.sampling.sample import Subject, sample_each

OTHER = torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
GUARANTEE = (Path(__file__).parents[1] / "docs" / "guarantee.md").read_text(encoding="utf-8")
SEEN = {name: cheat for name, cheat in CHEATS.items() if cheat.found_by == "check"}
UNSEEN = {name: cheat for name, cheat in CHEATS.items() if cheat.found_by != "check"}


def cases(cheats: dict[str, Cheat]) -> list[Any]:
    each = [(name, size) for name, cheat in cheats.items() for size in cheat.sizes]
    return [
        pytest.param(name, size, id=f"{'-'.join(re.findall('[a-z0-9]+', name.lower()))}-{size}") for name, size in each
    ]


def certified(explainer: Any, size: int, image: Tensor = IMAGE, n: int = 100) -> float:
    """Return the share of pixels that are certified, in percent, whatever is warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pc.PixelcertWarning)
        return pc.certify(explainer, image, 0, batch_size=size, levels=50, n=n, seed=0).percent_certified(50)


@pytest.fixture(autouse=True)
def _drawn(monkeypatch):
    """Draw the same place between first and last in every test, neither the middle nor one that cheats copy."""
    monkeypatch.setattr(independence, "_between", lambda size: min(2 * size // 3, max(0, size - 2)))


# ── Cheats ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_an_honest_explainer_is_certified_as_its_chances_are(size):
    assert certified(fair, size) == 0
    assert certified(lambda images, targets: images.sum(dim=1), size) > 50


@pytest.mark.parametrize(("name", "size"), cases(SEEN))
def test_cheats_are_refused_or_not_certified(name, size):
    cheat = SEEN[name]
    if not cheat.cause:
        assert certified(cheat.make(), size) < 1
        return
    with pytest.raises((DependenceError, pc.ModelError)) as refused:
        certified(cheat.make(), size)
    assert re.search(cheat.cause, str(refused.value)), str(refused.value)


@pytest.mark.parametrize("name", CHEATS)
def test_every_cheat_has_a_line_in_the_docs(name):
    assert f"| {name} |" in GUARANTEE


def test_nothing_is_kept_of_a_cheat():
    """Votes of a dependent explainer are no partial votes, even if they show only at the end."""
    with pytest.raises(DependenceError):
        pc.sample(changed_after(6), IMAGE, 0, batch_size=7)


def raising(call: int, error: BaseException) -> Callable[[Tensor, Tensor], Tensor]:
    """Raise an error in that call, from 1, and in all that follow."""
    calls: list[int] = []

    def explain_or_raise(images: Tensor, targets: Tensor) -> Tensor:
        calls.append(len(images))
        if len(calls) >= call:
            raise error
        return images[:, 0]

    return explain_or_raise


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("size", [60, 99, 100])
@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt(), MemoryError()], ids=repr)
def test_votes_that_no_check_has_seen_are_not_kept(size, error, ahead, monkeypatch):
    """An explainer may end its own check, in the first call of one image."""
    monkeypatch.setattr(loop, "_ahead", lambda task: ahead)

    def ending(images: Tensor, targets: Tensor) -> Tensor:
        if images.unique(dim=0).shape[0] == 1 and len(seen) > 0:
            raise error
        seen.append(len(images))
        return coin(images[0]).expand(len(images), -1, -1)

    seen: list[int] = []
    with pytest.raises(type(error)) as ended:
        pc.sample(ending, IMAGE, 0, batch_size=size)
    assert not isinstance(ended.value, pc.SamplingError)
    if isinstance(ended.value, pc.Interrupted):
        assert ended.value.votes.counted == 0


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt()], ids=repr)
def test_an_error_in_the_last_check_keeps_only_what_was_checked(error):
    """It repeats the last batch when the votes are resumed, and so the check."""
    calls = 0

    def counting(images: Tensor, targets: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return images[:, 0]

    expected = pc.sample(counting, IMAGE, 0, batch_size=50, seed=0)
    explainer = raising(calls, error)
    with pytest.raises((pc.SamplingError, pc.Interrupted)) as ended:
        pc.sample(explainer, IMAGE, 0, batch_size=50, seed=0)
    votes = ended.value.votes
    assert votes.counted == 50
    assert votes.provenance.batches == [[0, 50]]
    counting.__qualname__ = votes.provenance.method
    np.testing.assert_array_equal(votes.resume(counting, IMAGE).ones, expected.ones)


def test_images_that_were_done_before_a_cheat_shows_keep_their_votes():
    sampling = sample_each(Plan(n=20, levels=(50,)), changed_after(14), [Subject(IMAGE, 0)] * 3, Tuning(4))
    assert next(sampling).complete  # a copy, 5 batches, 3 rows, and 1 image again
    with pytest.raises(DependenceError):
        list(sampling)


def test_resumed_votes_are_checked_too():
    first: list[int] = []

    def turns(images: Tensor, targets: Tensor) -> Tensor:
        first.append(len(images))
        if len(first) == 6:
            raise RuntimeError("cable pulled")
        return fair(images, targets) if len(first) < 6 else coin(images[0]).expand(len(images), -1, -1)

    with pytest.raises(pc.SamplingError) as stopped:
        pc.sample(turns, IMAGE, 0, batch_size=10)
    with pytest.raises(DependenceError, match="rest of the batch"):
        stopped.value.votes.resume(turns, IMAGE)


def test_images_that_share_a_batch_are_compared_too():
    def mixing(images: Tensor, targets: Tensor) -> Tensor:
        return images[:, 0] - (len(targets.unique()) > 1) * images[:, 0].mean(dim=0)

    subjects = [Subject(IMAGE, 0), Subject(OTHER, 1)]
    with pytest.raises(DependenceError, match="rest of the batch"):
        list(sample_each(Plan(n=13, levels=(50,), seed=0), mixing, subjects, Tuning(10)))


@pytest.mark.parametrize("size", [2, 10, 100])
def test_a_mean_over_the_batch_is_refused_in_batches_and_allowed_in_batches_of_one(size):
    """It is nearly constant: counted as independent votes, it would certify nearly everything."""

    def averaged(images: Tensor, targets: Tensor) -> Tensor:
        return images[:, 0].mean(dim=0, keepdim=True).expand(len(images), -1, -1)

    with pytest.raises(DependenceError, match=r"rest of the batch.*batch_size=1"):
        pc.sample(averaged, IMAGE, 0, batch_size=size)
    assert pc.sample(averaged, IMAGE, 0, batch_size=1).complete


def test_the_first_call_is_about_a_copy_that_is_not_counted():
    """So what an explainer keeps of it, such as a reference, is not made of votes."""
    calls: list[Tensor] = []

    def keeping(images: Tensor, targets: Tensor) -> Tensor:
        calls.append(images.clone())
        return images[:, 0]

    torch.manual_seed(0)
    before = states()
    pc.sample(keeping, IMAGE, 0, batch_size=50, seed=0)
    assert not moved(before, states())
    assert [len(images) for images in calls[:2]] == [1, 50]
    assert not any((images == calls[0]).flatten(1).all(dim=1).any() for images in calls[1:])
    assert 0.05 < (calls[0][0] - IMAGE).std() < 0.3, "a noisy copy like others"


def test_places_are_drawn_between_the_first_and_the_last(monkeypatch):
    monkeypatch.undo()
    assert {independence._between(5) for _ in range(200)} == {1, 2, 3}
    assert [independence._between(size) for size in (1, 2, 3)] == [0, 0, 1]


def test_a_batch_that_did_not_fit_in_memory_is_checked_when_it_comes_again():
    failed: list[int] = []

    def mixing(images: Tensor, targets: Tensor) -> Tensor:
        if len(images) == 3 and not failed:
            failed.append(3)
            raise MemoryError
        return fair(images, targets) if len(images) != 3 else coin(images.sum(dim=0)).expand(3, -1, -1)

    with pytest.raises(DependenceError, match="rest of the batch"):
        pc.sample(mixing, IMAGE, 0, n=13, batch_size=10, tau=None)


class Remembering(pc.Explainer):
    """An explainer that remembers its checks, as only methods may, and is honest for a few calls."""

    def __init__(self, calls: int) -> None:
        self.known: set[Any] = set()
        self.cheat = changed_after(calls)

    @property
    def examined(self) -> set[Any]:
        return self.known

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        return Explanation(self.cheat(images, targets))


class Everything(set[Any]):
    """A set that holds everything."""

    def __contains__(self, what: object) -> bool:
        return True


def test_only_methods_of_this_package_vouch_for_batches():
    explainer = Remembering(0)
    explainer.known, explainer.cheat = Everything({0}), CHEATS["the whole batch"].make()
    with pytest.raises(DependenceError, match="rest of the batch"):
        pc.sample(explainer, IMAGE, 0, batch_size=20)


def test_a_users_version_of_a_method_is_checked_for_every_image():
    @dataclass(frozen=True)
    class Mine(type(pc.method("grad", tiny(), "input"))):  # type: ignore[misc]
        mixing: ClassVar[bool] = False

        def explain(self, images: Tensor, targets: Tensor) -> Explanation:
            return Explanation(of_the_whole_batch()(images, targets) if self.mixing else images[:, 0])

    explainer = Mine(tiny(), "input")
    pc.sample(explainer, IMAGE, 0, batch_size=20)
    Mine.mixing = True
    with pytest.raises(DependenceError, match="rest of the batch"):
        pc.sample(explainer, IMAGE, 0, batch_size=20)


def test_an_explainer_that_was_refused_at_the_end_is_refused_again(monkeypatch):
    explainer = Remembering(6)
    monkeypatch.setattr(Remembering, "__module__", "pixelcert.methods.remembering")
    with pytest.raises(DependenceError):
        pc.sample(explainer, IMAGE, 0, batch_size=7)
    assert not explainer.examined
    explainer.cheat = fair
    pc.sample(explainer, IMAGE, 0, batch_size=7)
    assert explainer.examined


# ── Each check is needed ──────────────────────────────────────────────────────────────────────────────────────────────

Patch = Callable[[pytest.MonkeyPatch], None]


def without_row(which: int) -> Patch:
    """Leave out the first, middle or last row, where that in the middle is not drawn."""
    rows = Independence.rows

    def fewer(self: Independence, *given: Any) -> Any:
        if (found := rows(self, *given)) is None or len(found.places) < 3:
            return None
        kept = [row for row in range(3) if row != which]
        places = [found.places[row] for row in kept]
        return found._replace(places=places, images=found.images[kept], targets=found.targets[kept])

    def patched(patch: pytest.MonkeyPatch) -> None:
        in_the_middle(patch)
        patch.setattr(Independence, "rows", fewer)

    return patched


def in_the_middle(patch: pytest.MonkeyPatch) -> None:
    """Draw no place, so that everybody knows it."""
    patch.setattr(independence, "_between", lambda size: size // 2)


def answer(name: str, value: Any, where: Any = independence) -> Patch:
    return lambda patch: patch.setattr(where, name, lambda *given: value)


def asking_before_ranking(patch: pytest.MonkeyPatch) -> None:
    """Explain the first image once more as soon as the rows' maps are copied."""
    explainers: list[pc.Explainer] = []
    answered = Rows.answered

    def explain_and_know(explainer: pc.Explainer, *given: Any) -> Explanation:
        explainers.append(explainer)
        return explain(explainer, *given)

    def answered_and_asked(rows: Rows, *given: Any) -> Rows:
        copied = answered(rows, *given)
        explain(explainers[-1], rows.images[:1], rows.targets[:1])
        return copied

    patch.setattr(loop, "explain", explain_and_know)
    patch.setattr(Rows, "answered", answered_and_asked)


def without_training_mode(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("pixelcert.explainer.refuse_training", lambda explainer: None)


def without_others(patch: pytest.MonkeyPatch) -> None:
    def as_it_was(self: Independence, rows: Rows, row: int) -> Explanation:
        return Explanation(rows.maps[row].expand(rows.size, -1, -1))

    patch.setattr(Independence, "_explain_among_others", as_it_was)


SWITCHED_OFF: dict[str, tuple[Patch, str, int]] = {  # with a cheat that gets through
    "first row": (without_row(0), "one row, but for the middle and last", 100),
    "middle row": (without_row(1), "one row, but for the first and last", 100),
    "a place that is drawn": (in_the_middle, "one row, but for the first, middle and last", 100),
    "last row": (without_row(2), "one row, but for the first and middle", 100),
    "rows in their batch": (answer("_differ", False, Independence), "the first row", 100),
    "more than rounding": (answer("_is_rounding", True, Independence), "the whole batch", 100),
    "in its place among others": (without_others, "two lines of the whole batch", 100),
    "answers in their batch": (answer("_check_answers", None, Independence), "logits of the whole batch", 100),
    "much, whatever the others are": (answer("_votes_differ", False), "the place in the batch", 100),
    "again after the samples": (answer("check_again", None, Independence), "changed after 5 calls", 7),
    "ranked before anything is asked": (asking_before_ranking, "one buffer for all answers", 100),
    "the image ignored": (answer("_ignores_the_image", False, Independence), "random, seeded for each call", 1),
    "numbers drawn": (answer("moved", False), "random, seeded for each call", 1),
    "another state of the generators": (answer("seed_all", None), "random, seeded for each call", 1),
    "training mode": (without_training_mode, "dropout, seeded for each call", 1),
}


@pytest.mark.parametrize("check", SWITCHED_OFF)
def test_without_any_one_check_a_cheat_is_certified(check, monkeypatch):
    patch, name, size = SWITCHED_OFF[check]
    patch(monkeypatch)
    if name.startswith("logits"):
        predictions = pc.sample(CHEATS[name].make(), IMAGE, 0, batch_size=size, seed=0).predictions
        assert predictions is not None
        assert predictions.max() == 100
        return
    assert certified(CHEATS[name].make(), size) > 1


# ── What no check sees ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("name", "size"), cases(UNSEEN))
def test_some_cheats_are_certified_as_the_docs_say(name, size):
    assert certified(UNSEEN[name].make(), size, n=1000 if "90th" in name else 100) > 90


def test_a_new_process_would_see_the_mean_from_the_90th_image_on():
    """One image per call, in shuffled order, as `verify` explains them: other images are the first 90."""
    make, n = CHEATS["the mean from the 90th image on"].make, 300
    votes = pc.sample(make(), IMAGE, 0, n=n, levels=50, seed=0, batch_size=100)
    again, order = make(), torch.randperm(n, generator=torch.Generator().manual_seed(5)).tolist()
    copies = noisy(snap(IMAGE), 0.15, 0, range(n))
    maps = torch.cat([again(copies[place : place + 1], torch.zeros(1)) for place in order])
    assert abs(count_votes(maps.flatten(1), (50,))[0].numpy().reshape(votes.ones.shape) - votes.ones).mean() > 10


def test_another_hour_would_show_the_time():
    now = [0.0]
    cheat = of_the_time(lambda: now[0])
    votes = pc.sample(cheat, IMAGE, 0, levels=50, seed=0)
    now[0] += 3600
    later = pc.sample(cheat, IMAGE, 0, levels=50, seed=0)
    assert abs(votes.ones - later.ones).mean() > 30


def test_an_attack_refutes_maps_of_the_clean_image():
    votes = pc.sample(of_the_clean_image(), IMAGE, 0, levels=50, seed=0)
    outcome = pc.attack(votes, of_the_clean_image(), IMAGE, level=50, steps=1, draws=2, samples=100, radii=[0.05])
    assert outcome.attempts, "the attack moved the image"
    assert max(float(outcome.judge.provably_flipped(attempt).mean()) for attempt in outcome.attempts) > 0.3


# ── What is not dependence ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_rounding_by_the_size_of_a_batch_is_no_dependence(size):
    """As GPUs do, whose kernels depend on it."""

    def rounding(images: Tensor, targets: Tensor) -> Tensor:
        return images[:, 0] + (len(images) > 1) * 0.1 * torch.arange(SIDE).cos()

    assert pc.sample(rounding, IMAGE, 0, batch_size=size).complete


@pytest.mark.parametrize("size", [2, 7, 100])
def test_rounding_by_the_place_in_a_batch_is_no_dependence(size):
    def rounding(images: Tensor, targets: Tensor) -> Tensor:
        return images[:, 0] + 0.05 * torch.arange(len(images))[:, None, None].cos() * torch.arange(SIDE).cos()

    assert pc.sample(rounding, IMAGE, 0, batch_size=size).complete


@pytest.mark.parametrize(
    ("level", "share", "most"),
    [(50, 0.01, 5), (50, 0.05, 25), (1, 0.05, 4), (50, 1, 124)],
)
def test_votes_differ_by_rounding_up_to_a_share_or_by_half_as_much_as_by_chance(level, share, most):
    """Of 1000 pixels, the top 50 % hold 501 and the top 1 % hold 11; chance would change 500 and 21.8 votes."""
    plan, one = Plan(n=1, levels=(level,)), torch.arange(1000.0)

    def exchanged(count: int) -> Tensor:
        """Exchange so many pixels on both sides of the threshold."""
        values, place = one.clone(), 999 - 10 * level
        values[place - count : place + count] = values[place - count : place + count].flip(0)
        return values.view(10, 100)

    assert not independence._votes_differ(plan, one.view(10, 100), exchanged(most), share)
    assert independence._votes_differ(plan, one.view(10, 100), exchanged(most + 2), share)


@pytest.mark.parametrize("offset", [0, 1, 100])
def test_values_differ_by_rounding_up_to_one_in_ten_thousand(offset):
    one = torch.rand(SIDE, SIDE) + offset
    wave = torch.ones(SIDE, SIDE).copysign(torch.rand(SIDE, SIDE) - 0.5)
    assert not independence._values_differ(one, one + wave * 1e-5)
    assert independence._values_differ(one, one + wave * 1e-3)
    assert not independence._values_differ(torch.full((2, 2), 0.3), torch.full((2, 2), 0.3) * (1 + 1e-7))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_values_that_are_not_finite_differ_in_kind(value):
    one = torch.rand(SIDE, SIDE)
    other = one.clone()
    other[3, 4] = value
    assert not independence._values_differ(other, other.clone())
    assert independence._values_differ(one, other)
    assert not independence._values_differ(torch.full((2, 2), value), torch.full((2, 2), value))


def test_a_few_huge_values_hide_no_difference():
    one = torch.rand(SIDE, SIDE)
    one[0, 0], one[-1, -1] = 1e9, -1e9
    wave = (torch.rand(SIDE, SIDE) - 0.5).sign()
    assert independence._values_differ(one, one + wave * 1e-3)
    assert not independence._values_differ(one, one + wave * 1e-5)


class Turning(pc.Explainer):
    """A method in bfloat16 whose logit, near zero, has another sign in another batch: as rounding may turn it."""

    name, tunable = "turning", True

    def __init__(self, sign: Callable[[Tensor], Tensor | float]) -> None:
        self.sign = sign

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        return Explanation(self.sign(images) * images.mean(dim=1))


@pytest.mark.parametrize("size", [2, 7, 100])
def test_rounding_in_a_low_precision_may_turn_a_map_around_but_other_images_may_not(size):
    settings: dict[str, Any] = {"batch_size": size, "precision": "bfloat16"}
    by_size = Turning(lambda images: 1.0 if len(images) > 1 else -1.0)
    assert pc.sample(by_size, IMAGE, 0, **settings).complete
    by_others = Turning(lambda images: 1.0 if images.mean(dim=(1, 2, 3)).std(correction=0) > 1e-6 else -1.0)
    with pytest.raises(DependenceError):
        pc.sample(by_others, IMAGE, 0, **settings)
    with pytest.raises(DependenceError):  # in float32 nothing turns a map around by rounding
        pc.sample(by_size, IMAGE, 0, batch_size=size, precision="float32")


@pytest.mark.parametrize("size", [2, 7, 100])
def test_answers_that_depend_on_the_size_of_a_batch_only_are_no_dependence(size):
    """As rounding may turn logits that are nearly tied."""

    def rounding(images: Tensor, targets: Tensor) -> Explanation:
        answers = torch.full((len(images),), int(len(images) > 1))
        return Explanation(images[:, 0], F.one_hot(answers, 5).float())

    assert pc.sample(rounding, IMAGE, 0, batch_size=size).complete


def test_an_explainer_may_write_all_its_maps_to_the_same_memory():
    buffer = torch.empty(100, SIDE, SIDE)

    def reusing(images: Tensor, targets: Tensor) -> Tensor:
        return torch.stack(list(fair(images, targets)), out=buffer[: len(images)])

    for size in (1, 7, 100):
        votes = pc.sample(reusing, IMAGE, 0, batch_size=size)
        np.testing.assert_array_equal(votes.ones, pc.sample(fair, IMAGE, 0).ones)


def nan_rows(images: Tensor) -> Tensor:
    return images[:, 0].where(images[:, :1, :1, 0] > IMAGE[0, 0, 0] - 0.1, torch.nan)


HONEST: dict[str, Callable[[Tensor], Tensor]] = {
    "constant": lambda images: torch.full((len(images), SIDE, SIDE), 0.3),
    "mostly zero": lambda images: (images[:, 0] - 1.1).relu(),
    "a few values": lambda images: (images[:, 0] * 3).round(),
    "NaN in some places": lambda images: images[:, 0].where(images[:, 1] > 0.2, torch.nan),
    "NaN in some rows": nan_rows,
    "infinite": lambda images: 1 / (images[:, 0] - images[:, 0]).where(images[:, 0] > 0.9, images[:, 0]),
    "huge and tiny": lambda images: (100 * images[:, 0]).exp(),
    "channels": lambda images: images * 2,
    "coarse": lambda images: F.avg_pool2d(images, 8)[:, 0],
    "one value": lambda images: images.mean(dim=(1, 2, 3))[:, None, None],
    "float64": lambda images: images[:, 0].double(),
    "bfloat16": lambda images: images[:, 0].bfloat16(),
    "products": lambda images: (
        (images.flatten(2) @ torch.ones(SIDE * SIDE, SIDE * SIDE)).view_as(images)[:, 0] + images[:, 0]
    ),
    "random numbers, fixed": lambda images: (
        images[:, 0] * torch.rand(SIDE, SIDE, generator=torch.Generator().manual_seed(3))
    ),
}


@pytest.mark.filterwarnings("ignore:every map was constant")
@pytest.mark.parametrize(
    "sampling", [{}, {"preset": "reference"}, {"sign": "absolute"}, {"levels": (50, 5, 1)}], ids=str
)
@pytest.mark.parametrize("name", HONEST)
def test_honest_explainers_are_not_refused(name, sampling):
    maps = HONEST[name]
    for size in (1, 2, 7):
        votes = pc.sample(lambda images, targets: maps(images), IMAGE, 0, n=20, batch_size=size, tau=None, **sampling)
        assert votes.complete


@pytest.mark.parametrize("side", [2, 3, 5])
def test_tiny_images_are_checked_without_false_alarm(side):
    image = torch.rand(3, side, side)
    for size in (1, 2, 7, 30):
        assert pc.sample(lambda images, targets: images.sum(dim=1), image, 0, n=30, batch_size=size, tau=None).complete


# ── Chance ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_random_numbers_that_are_the_same_for_equal_images_are_told():
    def seeded(images: Tensor, targets: Tensor) -> Tensor:
        torch.manual_seed(3)
        return images[:, 0] * torch.rand(SIDE, SIDE)

    for size in (1, 7, 100):
        with pytest.warns(pc.PixelcertWarning, match="draws random numbers, the same for equal images") as told:
            pc.sample(seeded, IMAGE, 0, batch_size=size)
        assert told[0].filename == __file__


def test_random_numbers_and_maps_of_few_values_are_no_reason_to_refuse():
    """Noisy copies of an image may have the same map, but its mirror image has another."""

    def seeded(images: Tensor, targets: Tensor) -> Tensor:
        torch.manual_seed(3)
        torch.rand(1)
        return (F.avg_pool2d(images, 8).mean(dim=1) > 0.5).float()

    half = torch.zeros(3, SIDE, SIDE)
    half[:, :, 8:] = 1
    for size in (7, 100):
        with pytest.warns(pc.PixelcertWarning, match="draws random numbers"):
            assert pc.sample(seeded, half, 0, batch_size=size).complete


def test_a_map_that_ignores_the_image_is_no_dependence():
    one = fixed(0)
    for size in (1, 7, 100):
        assert certified(lambda images, targets: one.expand(len(images), -1, -1), size) == 100


def test_random_numbers_through_an_adapter_are_those_of_each_image():
    """They were those of each call, so that all levels were certified everywhere."""
    adapted = CHEATS["random, through `pc.adapt`"].make
    with pytest.warns(pc.PixelcertWarning, match="draws random numbers: each image is explained by itself"):
        certificate = pc.certify(adapted(), IMAGE, 0, levels=(50, 25, 5), seed=0)
    assert certificate.percent_certified(50) == certificate.percent_certified(25) == 0
    assert not (certificate.labels[5] == 1).any()  # chance certifies only zeros, at low levels
    assert certificate.votes.provenance.surgery["random numbers"] == "seeded for each image"


@pytest.fixture
def generators() -> list[Any]:
    torch.manual_seed(1)
    np.random.seed(2)
    return states()


def test_global_generators_are_left_as_they_were(generators):
    certified(fair, 7)
    assert not moved(generators, states())


def test_global_generators_are_left_as_the_samples_leave_them_by_a_refusal(generators):
    torch.rand(1, SIDE, SIDE)  # as the only batch does
    after = states()
    torch.set_rng_state(generators[2][0])
    with pytest.raises(DependenceError):
        certified(random_numbers_of_torch(), 100)
    assert not moved(after, states())


# ── What it costs ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Counting:
    """Sums of channels, with the sizes of the batches that it was called with."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        self.sizes.append(len(images))
        return images.sum(dim=1)


@pytest.mark.parametrize("size", [1, 2, 7, 10, 16, 99, 100])
def test_an_image_costs_at_most_six_explanations_more(size):
    explainer = Counting()
    pc.sample(explainer, IMAGE, 0, batch_size=size)
    assert sum(explainer.sizes) - 100 <= 6


def test_a_compiled_network_sees_only_its_own_batch_size():
    """For one image it would be compiled anew, which takes seconds."""
    explainer, images = Counting(), torch.rand(5, 3, SIDE, SIDE)
    watch = Independence(as_explainer(explainer), Tuning(5, "float32", True))
    rows = watch.rows(images, torch.zeros(5, dtype=torch.int64), Plan(n=5, levels=(50,)), True)
    assert rows is not None
    watch.check(rows.answered(images.sum(dim=1)))
    watch.check_again()
    assert explainer.sizes == [5] * 4


def test_a_method_is_checked_once_for_its_network_size_and_batch(monkeypatch):
    explained: list[int] = []

    def counting(*given: Any) -> Any:
        explained.append(len(given[1]))
        return explain(*given)

    monkeypatch.setattr(independence, "explain", counting)
    model = tiny()

    def cost(name: str, size: int, image: Tensor, levels: int = 50) -> int:
        explained.clear()
        explainer = pc.method(name, model, "input")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pc.PixelcertWarning)  # the gradient of a linear network
            pc.sample(explainer, image, 0, batch_size=size, precision="float32", tau=None, levels=levels)
        return sum(explained)

    assert cost("grad", 50, IMAGE) == 5
    assert cost("grad", 50, OTHER) == cost("grad", 50, IMAGE, levels=5) == 0
    assert cost("grad", 25, OTHER) == 5
    assert cost("gb", 25, OTHER) == 5
    assert cost("grad", 50, IMAGE[:, 1:, 1:]) == 5
    assert cost("grad", 25, IMAGE) == 0
    with torch.no_grad():
        next(model.net.parameters()).mul_(2)
    assert cost("grad", 50, IMAGE) == 5


# ── Built-in methods ──────────────────────────────────────────────────────────────────────────────────────────────────


class Mixing(nn.Module):
    """A network that normalises by its batch even in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, inputs: Tensor) -> Tensor:
        features = F.batch_norm(self.first(inputs), None, None, training=True)
        return self.last((features * features.mean(dim=0, keepdim=True)).relu().mean(dim=(2, 3)))


@pytest.mark.parametrize("method", ["grad", "ixg", "gb", "grad_cam", "intgrad"])
def test_methods_do_not_vouch_for_networks_that_mix_their_batch(method):
    torch.manual_seed(0)
    model = pc.Classifier(Mixing(), (0.5,) * 3, (0.5,) * 3, size=SIDE, final="first")
    with pytest.raises(DependenceError, match="rest of the batch"):
        pc.sample(pc.method(method, model, "input"), IMAGE, 0, batch_size=20)
    pc.sample(pc.method(method, model, "input"), IMAGE, 0, batch_size=1)  # there is nothing to mix


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.hidden, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(128, 64), nn.Linear(64, 5)

    def forward(self, inputs: Tensor) -> Tensor:
        features = F.avg_pool2d(self.conv(inputs).relu(), 4)
        return self.last(self.hidden(features.flatten(1)).relu())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:torch")
@pytest.mark.parametrize(("method", "layer"), [("rise", "input"), ("rise", "final"), ("ablation_cam", "final")])
def test_dynamic_quantisation_mixes_a_batch(method, layer):
    """Its scale is that of the largest value in the batch, so other images change a map slightly."""
    torch.manual_seed(0)
    net = Dense()
    params = {"masks": 20} if method == "rise" else {}
    for quantised in (False, True):
        used = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8) if quantised else net
        model = pc.Classifier(used, (0.5,) * 3, (0.5,) * 3, size=SIDE, final="conv")
        explainer = pc.method(method, model, layer, **params)
        if quantised:
            with pytest.raises(DependenceError, match="rest of the batch"):
                pc.sample(explainer, IMAGE, 0, n=20, batch_size=10, tau=None)
        pc.sample(explainer, IMAGE, 0, n=20, batch_size=1 if quantised else 10, tau=None)
