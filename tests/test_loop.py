"""The loop: images that share batches have the votes that they would have alone, whatever happens on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pixelcert as pc
from pixelcert.explainer import Tuning
from pixelcert.image import image_hash
from pixelcert.noise import key_of, noisy, snap
from pixelcert.plan import Plan
from pixelcert.ranking import Counts, Ranking, answers_of, count_answers
from pixelcert.sampling import loop
from pixelcert.sampling.sample import Subject, _in_advance, sample_each

pytestmark = pytest.mark.usefixtures("unchecked")

GENERATOR = torch.Generator().manual_seed(0)
IMAGES = [torch.rand(3, 8, 6, generator=GENERATOR) for _ in range(5)]
TARGETS = [3, 0, 4, 0, 2]
SUBJECTS = [Subject(image, target, f"{i}.png") for i, (image, target) in enumerate(zip(IMAGES, TARGETS, strict=True))]
PLAN = Plan(n=13, levels=(50, 10), seed=7)
REFERENCE = Plan.make(preset="reference", n=23, levels=(50, 10))


class Explainer:
    """Maps and logits of each image by arithmetic that does not depend on the batch, and differs between targets.

    `before` is called with the images of every batch.
    """

    def __init__(self, before: Callable[[Tensor], None] = lambda images: None) -> None:
        self.before, self.sizes = before, []

    def explain(self, images: Tensor, targets: Tensor) -> pc.Explanation:
        self.sizes.append(len(images))
        self.before(images)
        maps = images[:, 0] - 0.1 * targets[:, None, None] * images[:, 1]
        return pc.Explanation(maps, images[:, 2, 0, :5] + 0.1 * targets[:, None])


def alone(subjects: Sequence[Subject] = SUBJECTS, plan: Plan = PLAN, batch_size: int = 100) -> list[pc.Votes]:
    return [next(sample_each(plan, Explainer(), [subject], Tuning(batch_size))) for subject in subjects]


def together(subjects: Sequence[Subject] = SUBJECTS, plan: Plan = PLAN, **settings: Any) -> list[pc.Votes]:
    return list(sample_each(plan, Explainer(), subjects, Tuning(**settings)))


def assert_same(found: Sequence[pc.Votes], expected: Sequence[pc.Votes]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.provenance.image_name == other.provenance.image_name
        assert (one.counted, one.provenance.target) == (other.counted, other.provenance.target)
        for name in ("ones", "zeros", "guess_ones", "predictions", "photo"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


# ── Shared batches ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("plan", [PLAN, REFERENCE])
@pytest.mark.parametrize("batch_size", [1, 2, 5, 12, 13, 14, 23, 26, 27, 39, 64, 65, 200])
def test_images_that_share_batches_have_the_votes_that_they_have_alone(batch_size, plan):
    expected = alone(plan=plan)
    assert expected[0].ones.max() > 0
    assert not np.array_equal(expected[1].ones, expected[3].ones)
    assert_same(together(plan=plan, batch_size=batch_size), expected)


def key(image: Tensor) -> int:
    """The key of an image's noise."""
    return key_of(PLAN, image_hash(snap(image)))


def test_votes_are_those_of_each_noisy_image_by_the_definition():
    for subject, votes in zip(SUBJECTS, together(batch_size=9), strict=True):
        images = noisy(snap(subject.image), PLAN.sigma, key(subject.image), range(PLAN.n))
        maps, logits = Explainer().explain(images, torch.full((PLAN.n,), subject.target))
        ones, zeros = Ranking.of(maps.flatten(1), PLAN.levels, PLAN.sign, PLAN.rule).count().numpy()
        np.testing.assert_array_equal(votes.ones, ones.reshape(2, 8, 6))
        np.testing.assert_array_equal(votes.zeros, zeros.reshape(2, 8, 6))
        np.testing.assert_array_equal(votes.predictions, np.bincount(logits.argmax(dim=1), minlength=5))


def test_batches_are_full_until_the_last():
    explainer = Explainer()
    assert len(list(sample_each(PLAN, explainer, SUBJECTS, Tuning(16)))) == 5
    assert explainer.sizes == [16, 16, 16, 16, 1]


def test_guesses_are_of_each_images_own_first_samples():
    votes = together(plan=REFERENCE, batch_size=7)
    first = Plan.make(preset="reference", n=REFERENCE.guess, levels=REFERENCE.levels)
    for one, expected in zip(votes, alone(plan=first), strict=True):
        np.testing.assert_array_equal(one.guess_ones, expected.ones)


def test_images_of_several_shapes_are_never_in_one_batch_and_come_in_order():
    other = [Subject(torch.rand(3, 5, 9, generator=GENERATOR), 1, name) for name in ("wide", "wider")]
    mixed = [SUBJECTS[0], other[0], SUBJECTS[1], SUBJECTS[2], other[1], SUBJECTS[3]]
    shapes: list[torch.Size] = []
    explainer = Explainer(lambda images: shapes.append(images.shape[1:]))
    found = list(sample_each(PLAN, explainer, mixed, Tuning(10)))
    assert_same(found, alone(mixed))
    assert explainer.sizes == [10, 3, 10, 3, 10, 10, 6, 10, 3, 10, 3]
    assert [votes.size for votes in found] == [(8, 6), (5, 9), (8, 6), (8, 6), (5, 9), (8, 6)]


def test_votes_come_as_soon_as_their_image_is_done():
    explainer = Explainer()
    sampling = sample_each(PLAN, explainer, SUBJECTS, Tuning(5))
    assert explainer.sizes == []
    next(sampling)
    assert sum(explainer.sizes) == 15
    next(sampling)
    assert sum(explainer.sizes) == 30


def test_one_batch_of_many_images_gives_all_their_votes():
    plan = Plan(n=1, levels=(50,))
    explainer = Explainer()
    assert_same(list(sample_each(plan, explainer, SUBJECTS, Tuning(5))), alone(plan=plan))
    assert explainer.sizes == [5]


def test_nothing_to_sample_is_nothing():
    assert list(sample_each(PLAN, Explainer(), [])) == []


def test_provenance_is_each_images_own():
    found = together(batch_size=16, precision="float32")
    assert [votes.provenance.image_name for votes in found] == [f"{i}.png" for i in range(5)]
    assert [votes.provenance.target for votes in found] == TARGETS
    assert len({votes.provenance.image for votes in found}) == 5
    assert {(votes.provenance.precision, votes.provenance.compiled) for votes in found} == {("float32", False)}
    assert {votes.provenance.batch_size for votes in found} == {16}
    assert found[1].provenance.differences(alone()[1].provenance) == []


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (Subject(IMAGES[1] * 3, 0), "from .* to"),
        (Subject(IMAGES[1], -1), "target=-1"),
        (Subject(IMAGES[1][:, :1, :1], 0), "cannot be ranked"),
    ],
)
def test_a_bad_second_image_is_refused_at_the_call(bad, named):
    explainer = Explainer()
    with pytest.raises(pc.PixelcertError, match=named):
        sample_each(PLAN, explainer, [SUBJECTS[0], bad])
    assert explainer.sizes == []


@pytest.mark.parametrize("settings", [{"batch_size": 0}, {"precision": "tf32"}, {"compile": True}, {"precision": "x"}])
def test_bad_settings_are_refused_at_the_call(settings):
    with pytest.raises(pc.ArgumentError, match=next(iter(settings))):
        sample_each(PLAN, Explainer(), SUBJECTS, Tuning(**settings))


# ── Progress ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("batch_size", [1, 4, 13, 16, 100])
def test_progress_of_each_image_rises_to_its_end(batch_size):
    heard: dict[str, list[int]] = {subject.name: [] for subject in SUBJECTS}

    def listen(name: str) -> Callable[[int, int], None]:
        def progress(done: int, total: int) -> None:
            assert total == PLAN.n
            heard[name].append(done)

        return progress

    together([subject._replace(progress=listen(subject.name)) for subject in SUBJECTS], batch_size=batch_size)
    for calls in heard.values():
        assert calls == sorted(set(calls))
        assert calls[-1] == PLAN.n
        assert len(calls) >= PLAN.n / batch_size


def test_progress_is_heard_after_its_samples_are_counted():
    order: list[Any] = []
    explainer = Explainer(lambda images: order.append(len(images)))
    subject = SUBJECTS[0]._replace(progress=lambda done, total: order.append((done, total)))
    next(sample_each(PLAN, explainer, [subject], Tuning(6)))
    assert order == [6, (6, 13), 6, (12, 13), 1, (13, 13)]


# ── Interruption ──────────────────────────────────────────────────────────────────────────────────────────────────


def stopping(batch: int, error: BaseException) -> Explainer:
    """Raises `error` at the batch of that number, from 0."""

    def before(images: Tensor) -> None:
        if len(explainer.sizes) == batch + 1:
            raise error

    explainer = Explainer(before)
    return explainer


STOPS = [(0, 0, 0), (1, 0, 10), (2, 1, 7), (3, 2, 4), (4, 3, 1), (5, 3, 11), (6, 4, 8)]  # batch, votes done, counted


@pytest.mark.parametrize("plan", [PLAN, REFERENCE])
@pytest.mark.parametrize(("batch", "done", "counted"), STOPS)
def test_an_interruption_carries_the_first_unfinished_image_and_resumes_to_the_same_votes(batch, done, counted, plan):
    if plan is REFERENCE:
        done, counted = 10 * batch // 23, 10 * batch % 23
    with pytest.raises(pc.Interrupted) as stop:
        list(sample_each(plan, stopping(batch, KeyboardInterrupt()), SUBJECTS, Tuning(10)))
    votes = stop.value.votes
    assert (votes.provenance.image_name, votes.counted) == (f"{done}.png", counted)
    expected = alone(plan=plan)[done]
    assert_same([votes.resume(Explainer(), SUBJECTS[done].image)], [expected])


def test_votes_that_were_done_before_an_interruption_are_given():
    sampling = sample_each(PLAN, stopping(4, KeyboardInterrupt()), SUBJECTS, Tuning(10))
    assert_same(list(islice(sampling, 3)), alone()[:3])
    with pytest.raises(pc.Interrupted, match="1 of 13 samples counted"):
        next(sampling)


@pytest.mark.parametrize(("batch", "done", "counted"), STOPS[1:])
def test_an_error_carries_the_first_unfinished_image_and_resumes_to_the_same_votes(batch, done, counted):
    sampling = sample_each(PLAN, stopping(batch, RuntimeError("cable pulled")), SUBJECTS, Tuning(10))
    assert_same(list(islice(sampling, done)), alone()[:done])
    with pytest.raises(
        pc.SamplingError, match=rf"after {counted} of 13 samples \(RuntimeError: cable pulled\)"
    ) as failure:
        next(sampling)
    assert isinstance(failure.value.__cause__, RuntimeError)
    votes = failure.value.votes
    assert (votes.provenance.image_name, votes.counted) == (f"{done}.png", counted)
    assert_same([votes.resume(Explainer(), SUBJECTS[done].image)], alone()[done : done + 1])


def test_an_error_before_the_first_sample_of_an_image_is_itself():
    with pytest.raises(RuntimeError, match="cable pulled"):
        next(sample_each(PLAN, stopping(0, RuntimeError("cable pulled")), SUBJECTS, Tuning(10)))
    sampling = sample_each(PLAN, stopping(1, ValueError("cable pulled")), SUBJECTS, Tuning(13))
    next(sampling)
    with pytest.raises(ValueError, match=r"^cable pulled"):
        next(sampling)


def test_an_interruption_by_progress_has_its_batch_counted():
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(pc.Interrupted) as stopped:
        next(sample_each(PLAN, Explainer(), [SUBJECTS[0]._replace(progress=stop)], Tuning(10)))
    assert stopped.value.votes.counted == 10
    assert_same([stopped.value.votes.resume(Explainer(), IMAGES[0])], alone(SUBJECTS[:1]))


# ── Memory ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("most", [1, 3, 7])
@pytest.mark.parametrize("since", [0, 1, 2, 3])
@pytest.mark.parametrize("plan", [PLAN, REFERENCE])
def test_out_of_memory_loses_no_sample_and_counts_none_twice(most, since, plan):
    """It strikes at any batch, with one image or several in it."""

    def before(images: Tensor) -> None:
        if len(explainer.sizes) > since and len(images) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")

    explainer = Explainer(before)
    found = list(sample_each(plan, explainer, SUBJECTS, Tuning(10)))
    assert_same(found, alone(plan=plan))
    smallest = {1: 1, 3: 2, 7: 5}[most]
    assert explainer.sizes[since + 1 :][-2:-1] == [smallest]
    assert found[-1].provenance.batch_size == smallest
    assert found[0].provenance.batch_size in (10, smallest)


def test_memory_that_runs_out_while_counting_is_counted_again(monkeypatch):
    """When the last image of a batch cannot be counted, the first is not counted either."""
    plus, calls = Counts.plus, []

    def failing(self: Counts, *given: Any) -> Counts:
        calls.append(given)
        if len(calls) == 3:  # of the second batch, its second image
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plus(self, *given)

    monkeypatch.setattr(Counts, "plus", failing)
    found = together(batch_size=10)
    monkeypatch.undo()
    assert_same(found, alone())


def test_out_of_memory_with_single_images_is_an_error_with_the_votes():
    def before(images: Tensor) -> None:
        assert len(explainer.sizes) < 10, "it is asked for ever"
        if len(explainer.sizes) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")

    explainer = Explainer(before)
    with pytest.raises(pc.SamplingError, match=r"after 10 of 13 .*out of memory") as failure:
        next(sample_each(PLAN, explainer, SUBJECTS, Tuning(10)))
    assert explainer.sizes == [10, 10, 5, 2, 1]
    assert failure.value.votes.provenance.batch_size == 1


def test_other_errors_do_not_halve_the_batch():
    explainer = stopping(1, RuntimeError("device-side assert"))
    with pytest.raises(pc.SamplingError):
        next(sample_each(PLAN, explainer, SUBJECTS, Tuning(10)))
    assert explainer.sizes == [10, 10]


# ── Maps of NaN, and batches that matter ──────────────────────────────────────────────────────────────────────────


def nan_for(*targets: int, rows: Callable[[Tensor], Tensor] = torch.ones_like) -> Any:
    class Broken(Explainer):
        def explain(self, images: Tensor, given: Tensor) -> pc.Explanation:
            maps, logits = super().explain(images, given)
            bad = torch.isin(given, torch.tensor(targets)) & rows(given).bool()
            return pc.Explanation(maps.masked_fill(bad[:, None, None], torch.nan), logits)

    return Broken()


@pytest.mark.parametrize("batch_size", [1, 10, 13, 100])
@pytest.mark.parametrize("number", [0, 1, 4])
def test_an_explainer_that_answers_nan_everywhere_is_refused_at_any_image(number, batch_size):
    subjects = [subject._replace(target=i) for i, subject in enumerate(SUBJECTS)]
    sampling = sample_each(PLAN, nan_for(number), subjects, Tuning(batch_size))
    with pytest.raises(pc.ExplainerError, match="NaN everywhere: check the model") as refused:
        list(sampling)
    assert not isinstance(refused.value, pc.SamplingError)


def test_nan_in_a_part_of_the_first_samples_is_no_reason_to_refuse():
    def every_second(targets: Tensor) -> Tensor:
        return torch.arange(len(targets)) % 2

    votes = next(sample_each(PLAN, nan_for(3, rows=every_second), SUBJECTS[:1], Tuning(10)))
    assert votes.complete
    assert (votes.ones + votes.zeros).max() == 7  # samples 0, 2, 4, …


def test_nan_in_a_part_of_the_first_samples_is_no_reason_to_refuse_in_a_shared_batch():
    first = noisy(snap(IMAGES[1]), PLAN.sigma, key(IMAGES[1]), range(1))[0]

    class Broken(Explainer):
        def explain(self, images: Tensor, targets: Tensor) -> pc.Explanation:
            maps, logits = super().explain(images, targets)
            bad = (images == first).flatten(1).all(dim=1)
            return pc.Explanation(maps.masked_fill(bad[:, None, None], torch.nan), logits)

    expected = [next(sample_each(PLAN, Broken(), [subject], Tuning(14))) for subject in SUBJECTS[:2]]
    assert (expected[1].ones + expected[1].zeros).max() == 12
    assert_same(list(sample_each(PLAN, Broken(), SUBJECTS[:2], Tuning(14))), expected)


def test_nan_in_later_batches_is_no_reason_to_refuse():
    explainer = Explainer()

    def late(images: Tensor, targets: Tensor) -> Tensor:
        maps = explainer.explain(images, targets).maps
        return maps if len(explainer.sizes) == 1 else maps * torch.nan

    votes = next(sample_each(PLAN, late, SUBJECTS[:1], Tuning(10)))
    assert (votes.ones + votes.zeros).max() == 10


# ── Predictions ───────────────────────────────────────────────────────────────────────────────────────────────────

NAN, INF = torch.nan, torch.inf


@pytest.mark.parametrize(
    ("logits", "answer"),
    [
        ([1.0, 3.0, 2.0], 1),
        ([3.0, 3.0, 2.0], None),
        ([2.0, 3.0, 3.0], None),
        ([2.0, 2.0, 3.0], 2),  # a tie for the second place
        ([0.0, 0.0, 0.0], None),
        ([NAN, 3.0, 2.0], None),
        ([1.0, 3.0, NAN], None),
        ([NAN, NAN, NAN], None),
        ([1.0, INF, 2.0], 1),
        ([INF, INF, 2.0], None),
        ([-INF, -INF, 2.0], 2),
        ([-INF, -INF, -INF], None),
    ],
)
def test_the_answer_is_the_one_highest_logit(logits, answer):
    answers = answers_of(torch.tensor([[0.0, 0.0, 1.0], logits, [1.0, 0.0, 0.0]]))
    assert answers.tolist() == [2, 3 if answer is None else answer, 0]


def test_a_network_of_one_class_always_answers_it():
    assert answers_of(torch.tensor([[-5.0], [7.0]])).tolist() == [0, 0]
    assert answers_of(torch.tensor([[NAN]])).tolist() == [1]


def test_answers_are_counted_by_class_and_none_is_left_out():
    counts = count_answers(torch.tensor([4, 0, 0, 5, 4, 4]), 5)
    assert counts.tolist() == [2, 0, 0, 0, 3]
    assert counts.dtype == torch.int32
    assert count_answers(torch.tensor([5, 5]), 5).tolist() == [0] * 5


def test_predictions_of_shared_batches_are_each_images_own():
    class Sure(Explainer):
        def explain(self, images: Tensor, targets: Tensor) -> pc.Explanation:
            maps = super().explain(images, targets).maps
            return pc.Explanation(maps, torch.nn.functional.one_hot(targets, 5).float())

    for votes, target in zip(sample_each(PLAN, Sure(), SUBJECTS, Tuning(10)), TARGETS, strict=True):
        assert votes.predictions.tolist() == [13 * (index == target) for index in range(5)]


def test_without_logits_there_are_no_predictions():
    def plain(images: Tensor, targets: Tensor) -> Tensor:
        return images[:, 0]

    assert [votes.predictions for votes in sample_each(PLAN, plain, SUBJECTS[:2], Tuning(10))] == [None, None]


# ── What the queue does ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_queued_before_the_last_is_waited_for_where_that_is_asked(monkeypatch):
    """As on an accelerator, with the same votes in the same order."""
    order: list[str] = []
    wait, expected = loop._wait, alone()
    monkeypatch.setattr(loop, "_ahead", lambda run: 1)
    monkeypatch.setattr(loop, "_wait", lambda batch: (order.append("wait"), wait(batch)))
    explainer = Explainer(lambda images: order.append("queue"))
    for batch_size in (4, 10, 13, 40, 65, 200):
        order.clear()
        assert_same(list(sample_each(PLAN, explainer, SUBJECTS, Tuning(batch_size))), expected)
        batches = -(-65 // batch_size)
        assert order == ["queue"] + ["queue", "wait"] * (batches - 1) + ["wait"]


def test_with_a_batch_ahead_memory_that_runs_out_loses_nothing(monkeypatch):
    monkeypatch.setattr(loop, "_ahead", lambda run: 1)

    def before(images: Tensor) -> None:
        if len(explainer.sizes) > 2 and len(images) > 3:
            raise MemoryError

    explainer = Explainer(before)
    assert_same(list(sample_each(PLAN, explainer, SUBJECTS, Tuning(10))), alone())


def test_with_a_batch_ahead_an_interruption_has_what_was_checked(monkeypatch):
    monkeypatch.setattr(loop, "_ahead", lambda run: 1)
    sampling = sample_each(PLAN, stopping(4, KeyboardInterrupt()), SUBJECTS, Tuning(10))
    assert_same(list(islice(sampling, 2)), alone()[:2])
    with pytest.raises(pc.Interrupted) as stop:
        next(sampling)
    votes = stop.value.votes  # of the third, whose last samples were queued and not yet waited for
    assert (votes.provenance.image_name, votes.counted, votes.provenance.batches) == ("2.png", 4, [[0, 10]])
    assert_same([votes.resume(Explainer(), IMAGES[2])], alone()[2:3])


# ── Images prepared in advance ────────────────────────────────────────────────────────────────────────────────────


class Stream:
    """Stands for a stream of a GPU: knows in which thread it is the current one, and who waited for it."""

    def __init__(self, device: Any = None) -> None:
        self.current: set[int] = set()
        self.waits = 0

    def __enter__(self) -> None:
        self.current.add(threading.get_ident())

    def __exit__(self, *error: Any) -> None:
        self.current.discard(threading.get_ident())

    def synchronize(self) -> None:
        self.waits += 1


class Prepared:
    """Stands for a run, and for its tensors."""

    def __init__(self, number: int) -> None:
        self.number, self.streams = number, []
        self.clean = self.votes = self
        self.counts = (self,)

    def record_stream(self, stream: Any) -> None:
        self.streams.append(stream)


@pytest.fixture
def aside(monkeypatch) -> Stream:
    """The stream that runs are prepared on, where a GPU would have one."""
    stream = Stream()
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda given: given)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "current")
    return stream


def in_advance(runs: Iterator[Any]) -> Any:
    return _in_advance(runs, torch.device("cuda"))


@pytest.fixture
def helpers() -> Callable[[], list[threading.Thread]]:
    """Threads that were not there before the test."""
    before = threading.enumerate()
    return lambda: [thread for thread in threading.enumerate() if thread not in before]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 50])
def test_runs_prepared_in_advance_come_in_order_and_the_thread_ends(count, aside, helpers):
    runs = list(in_advance(map(Prepared, range(count))))
    assert [run.number for run in runs] == list(range(count))
    assert all(run.streams == ["current"] * 2 for run in runs), "their memory may be given away while it is read"
    assert aside.waits > count, "a run is used before its copy is done"
    assert helpers() == []


def test_runs_are_prepared_aside_in_one_other_thread_while_one_is_used(aside):
    second = threading.Event()
    makers = set()

    def runs() -> Iterator[Prepared]:
        for number in range(20):
            makers.add(threading.get_ident())
            assert threading.get_ident() in aside.current
            if number == 1:
                second.set()
            yield Prepared(number)

    for run in in_advance(runs()):
        if run.number == 0:
            assert second.wait(120), "the next is made only when it is asked for"
    assert len(makers) == 1
    assert threading.get_ident() not in makers
    assert not aside.current


@pytest.mark.usefixtures("aside")
@pytest.mark.parametrize("good", [0, 1, 6])
def test_an_error_in_preparing_comes_after_the_runs_before_it(good, helpers):
    def runs() -> Iterator[Prepared]:
        yield from map(Prepared, range(good))
        raise ValueError("no such image")

    advance = in_advance(runs())
    assert [run.number for run in islice(advance, good)] == list(range(good))
    with pytest.raises(ValueError, match="no such image"):
        next(advance)
    assert helpers() == []


@pytest.mark.usefixtures("aside")
def test_the_thread_ends_when_nobody_wants_the_rest(helpers):
    advance = in_advance(map(Prepared, range(100)))
    assert next(advance).number == 0
    assert len(helpers()) == 1
    advance.close()
    assert helpers() == []
