"""The loop: noise → explainer → ranking → counts. The only expensive part.

Memory is O(levels × pixels) for each image besides one batch, whatever n is. If one image has too few samples for a
batch, the next images fill it. Nothing leaves the device before an image is done. The loop queues the next batch of an
accelerator before it waits for the last one, so that the device never waits for Python.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..basics.locks import one_at_a_time
from ..basics.machine import out_of_memory
from ..basics.messages import ExplainerError, PixelcertWarning, Progress
from ..explainer import Explainer, Explanation, Tuning, class_names, explain
from ..noise import key_of, noisy
from ..plan import Plan
from ..ranking import Counts, Ranking, answers_of
from ..votes import Provenance, Votes
from .independence import DependenceError, Independence, Rows
from .precision import rounding


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with the `votes` checked so far, which can be saved and resumed to the planned n, but not certified.

    `all_votes` are those of every plan, if several were sampled at once.
    """

    def __init__(self, *all_votes: Votes) -> None:
        self.all_votes, self.votes = all_votes, all_votes[0]
        super().__init__(f"{self.votes.counted} of {self.votes.plan.n} samples counted")


class SamplingError(ExplainerError):
    """The explainer raised an error midway. `votes`, and `all_votes`, hold what was checked before, to be resumed."""

    def __init__(self, message: str, *all_votes: Votes) -> None:
        self.all_votes, self.votes = all_votes, all_votes[0]
        super().__init__(message)


class _NothingButNaNError(ExplainerError):
    """The explainer returned nothing but NaN, so no vote is worth keeping."""


@dataclass
class Task:
    """One image, and its votes as far as they are counted. Every plan counts the same maps."""

    plans: tuple[Plan, ...]
    clean: Tensor  # (C, H, W), on the lattice
    provenance: Provenance
    counts: tuple[Counts, ...]  # of each plan
    progress: Progress | None
    photo: NDArray[np.uint8] | None
    batches: list[Sequence[int]] = field(default_factory=list)  # (from sample, batch size), a pair for each size
    has_map: bool = False  # True once a map was not NaN everywhere
    surgery: Mapping[str, str] | None = None  # of the last batch: another image may have begun since
    safe: tuple[Counts, ...] = field(init=False)  # of the checked batches: all that an interruption may keep

    def __post_init__(self) -> None:
        self.safe = self.counts

    @property
    def plan(self) -> Plan:
        """The first plan; all draw the same noise."""
        return self.plans[0]

    @property
    def key(self) -> int:
        """The key of the image's noise."""
        return key_of(self.plan, self.provenance.image)

    @property
    def left(self) -> range:
        """The samples still to be queued."""
        return range(self.counts[0].counted, self.plan.n)

    def to_votes(self, explainer: Explainer, batch_size: int) -> tuple[Votes, ...]:
        """Return the votes of every plan, as far as they are counted."""
        predictions = self.counts[0].predictions  # the same in all
        answers = None if predictions is None else predictions.cpu().numpy()
        answered = () if answers is None else np.flatnonzero(answers).tolist()
        provenance = replace(
            self.provenance,
            batch_size=batch_size,
            class_names=class_names(explainer, [self.provenance.target, *answered]),
            surgery={**(self.provenance.surgery or {}), **(self.surgery or explainer.surgery)},
            batches=self.batches,
        )
        channels, *size = self.clean.shape
        votes = []
        for plan, counts in zip(self.plans, self.counts, strict=True):
            ones, zeros = counts.votes.cpu().numpy().reshape(2, -1, *size)
            guesses = None if counts.guess_ones is None else counts.guess_ones.cpu().numpy().reshape(-1, *size)
            votes.append(Votes(plan, provenance, channels, counts.counted, ones, zeros, guesses, answers, self.photo))
        return tuple(votes)


def to_counts(votes: Votes, device: torch.device) -> Counts:
    """Return the counts of an interrupted run, to go on from them."""
    both = torch.tensor(np.stack([votes.ones, votes.zeros]), device=device).flatten(2)
    guesses = None if votes.guess_ones is None else torch.tensor(votes.guess_ones, device=device).flatten(1)
    predictions = None if votes.predictions is None else torch.tensor(votes.predictions, device=device)
    return Counts(votes.counted, both, guesses, predictions)


def explain_copies(
    explainer: Explainer, clean: Tensor, target: int, *, sigma: float, key: int, samples: range
) -> tuple[Tensor, Explanation]:
    """Return noisy copies (B, C, H, W) of an image on the lattice, and their explanation."""
    copies = noisy(clean, sigma, key, samples)
    return copies, explain(explainer, copies, target)


class _Piece(NamedTuple):
    """Samples of one image, and their slots in a batch."""

    task: Task
    samples: range
    slots: slice


class _Batch(NamedTuple):
    """A batch that was queued."""

    pieces: list[_Piece]
    counted: list[tuple[Counts, ...]]  # of each piece's task, with this batch
    nan: Tensor  # (B,), True for a map that is NaN everywhere; on the CPU when done
    done: torch.cuda.Event | None
    rows: Rows | None  # to check


def count_each(tasks: Iterable[Task], explainer: Explainer, tuning: Tuning) -> Iterator[tuple[Votes, ...]]:
    """Yield the votes of every task, in order, as they are done. All have the same plans."""
    assert tuning.batch_size is not None, "the tuning is settled"
    batch_size, watch = tuning.batch_size, Independence(explainer, tuning)
    begun, queued = deque[Task](), deque[_Batch]()

    def begin(task: Task) -> Task:
        begun.append(task)
        return task

    source = map(begin, tasks)
    try:
        while (pieces := _fill(begun, source, batch_size)) or queued:
            try:
                if pieces:
                    with one_at_a_time:
                        queued.append(_queue(pieces, explainer, tuning, batch_size, watch))
            except (RuntimeError, MemoryError) as error:
                if batch_size == 1 or not out_of_memory(error):
                    raise
                batch_size //= 2
                watch.begin_again()
                continue
            if not pieces or len(queued) > _ahead(begun[0]):
                batch = queued.popleft()
                _wait(batch)
                if batch.rows:
                    watch.check(batch.rows)
                ended = [task for task, samples, _ in batch.pieces if samples.stop == task.plan.n]
                for _ in ended:
                    watch.check_again()
                _accept(batch)
                for task in ended:
                    votes = task.to_votes(explainer, batch_size)
                    begun.popleft()
                    _warn_if_silent(votes[0])
                    yield votes
    except KeyboardInterrupt:
        if not begun:
            raise
        raise Interrupted(*_rescue(begun[0], explainer, batch_size)) from None
    except Exception as error:
        if not begun or begun[0].safe[0].counted == 0 or isinstance(error, (_NothingButNaNError, DependenceError)):
            raise
        votes = _rescue(begun[0], explainer, batch_size)
        raise SamplingError(
            f"sampling failed after {votes[0].counted} of {votes[0].plan.n} samples ({type(error).__name__}: {error}): "
            f"fix the cause, then resume the votes of this error, as `certify --resume` and `study run` do.",
            *votes,
        ) from error


def _rescue(task: Task, explainer: Explainer, batch_size: int) -> tuple[Votes, ...]:
    """Return the votes that were counted and checked."""
    if task.clean.device.type == "cuda":
        torch.cuda.synchronize(task.clean.device)
    task.counts = task.safe
    task.batches = [pair for pair in task.batches if pair[0] < task.counts[0].counted]
    return task.to_votes(explainer, batch_size)


def _fill(begun: Sequence[Task], source: Iterator[Task], batch_size: int) -> list[_Piece]:
    """Take the next samples, up to `batch_size`, of images of one shape; begin new images where there is room."""
    pieces: list[_Piece] = []
    filled = 0
    for task in chain([task for task in begun if task.left], source):
        if pieces and task.clean.shape != pieces[0].task.clean.shape:
            break
        samples = task.left[: batch_size - filled]
        pieces.append(_Piece(task, samples, slice(filled, filled + len(samples))))
        filled += len(samples)
        if filled == batch_size:
            break
    return pieces


def _queue(pieces: list[_Piece], explainer: Explainer, tuning: Tuning, batch_size: int, watch: Independence) -> _Batch:
    """Explain and count a batch; on an accelerator, only queue that work. Tasks change only if nothing fails."""
    first = pieces[0].task
    clean, plans = first.clean, first.plans
    images = torch.empty((pieces[-1].slots.stop, *clean.shape), device=clean.device)
    targets = torch.empty(len(images), dtype=torch.int64, device=clean.device)
    for task, samples, slots in pieces:
        noisy(task.clean, first.plan.sigma, task.key, samples, out=images[slots])
        targets[slots] = task.provenance.target
    rows = watch.rows(images, targets, first.plan, any(piece.samples.start == 0 for piece in pieces))
    if rows:
        watch.call_first(clean, targets[0], first.plan, first.key)
    with rounding(tuning, clean.device):
        maps, logits = explain(explainer, images, targets)
    answers, classes = (None, 0) if logits is None else (answers_of(logits), logits.shape[1])
    rows = rows and rows.answered(maps, answers)
    rankings = [Ranking.of(maps.flatten(1), plan.levels, plan.sign, plan.rule) for plan in plans]
    counted = []
    for task, _, slots in pieces:
        each = zip(task.counts, rankings, plans, strict=True)
        more = [counts.plus(ranking, slots, answers, classes, plan) for counts, ranking, plan in each]
        counted.append(tuple(one.to("cpu") if one.counted == first.plan.n else one for one in more))
    nan, surgery = maps.isnan().flatten(1).all(dim=1).to("cpu", non_blocking=True), explainer.surgery
    for (task, samples, _), counts in zip(pieces, counted, strict=True):
        task.counts, task.surgery = counts, surgery
        if not task.batches or task.batches[-1][1] != batch_size:
            task.batches.append((samples.start, batch_size))
    done = torch.cuda.current_stream(clean.device).record_event() if clean.device.type == "cuda" else None
    return _Batch(pieces, counted, nan, done, rows)


def _ahead(task: Task) -> int:
    """Return how many batches may be queued while the loop waits for one."""
    return 1 if task.clean.device.type == "cuda" else 0


def _wait(batch: _Batch) -> None:
    """Wait for the batch, and refuse an explainer without any map."""
    if batch.done is not None:
        batch.done.synchronize()
    for task, samples, slots in batch.pieces:
        task.has_map = task.has_map or not bool(batch.nan[slots].all())
        if not task.has_map and samples.stop >= min(task.plan.n, len(batch.nan)):  # as many as fill a batch
            raise _NothingButNaNError("the explainer returned NaN everywhere: check the model and its weights.")


def _accept(batch: _Batch) -> None:
    """Keep the votes of a checked batch, then report progress."""
    for (task, _, _), counts in zip(batch.pieces, batch.counted, strict=True):
        task.safe = counts
    for task, samples, _ in batch.pieces:
        if task.progress is not None:
            task.progress(samples.stop, task.plan.n)


def _warn_if_silent(votes: Votes) -> None:
    if not (votes.ones.any() or votes.zeros.any()):
        warnings.warn(
            "every map was constant at its threshold, so no pixel got a vote and everything abstains: the explainer "
            "may not depend on the image, or its ReLU may have left only zeros.",
            PixelcertWarning,
            stacklevel=5,
        )
