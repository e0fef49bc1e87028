"""The loop: noise → explainer → ranking → counts. The only expensive part.

Memory is O(levels × pixels) for each image besides one batch, whatever n is. Batches are filled with the samples of
several images where one has too few. Nothing leaves the device before an image is done, and on an accelerator the next
batch is always queued before the last one is waited for, so that it never waits for Python.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..basics.machine import out_of_memory
from ..basics.messages import ExplainerError, PixelcertWarning, Progress
from ..explainer import Explainer, Explanation, Tuning, class_names, explain
from ..image import to_photo
from ..noise import noisy
from ..plan import Plan
from ..ranking import Counts, Ranking, answers_of
from ..votes import Provenance, Votes
from .precision import rounding


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with the `votes` counted so far. They cannot be certified, but saved and resumed to the planned n.

    `all_votes` are those of every plan, where several were sampled at once.
    """

    def __init__(self, *all_votes: Votes) -> None:
        self.all_votes, self.votes = all_votes, all_votes[0]
        super().__init__(f"{self.votes.counted} of {self.votes.plan.n} samples counted")


class SamplingError(ExplainerError):
    """The explainer raised an error midway. `votes`, and `all_votes`, hold what was counted before, to be resumed."""

    def __init__(self, message: str, *all_votes: Votes) -> None:
        self.all_votes, self.votes = all_votes, all_votes[0]
        super().__init__(message)


class _NothingButNaNError(ExplainerError):
    """An explainer of which no vote is worth keeping."""


@dataclass
class Task:
    """One image on its way from no votes, or some, to all that were planned. Every plan counts the same maps."""

    plans: tuple[Plan, ...]
    clean: Tensor  # (C, H, W), on the lattice
    provenance: Provenance
    counts: tuple[Counts, ...]  # of each plan
    progress: Progress | None = None
    photo: NDArray[np.uint8] | None = None
    batches: list[tuple[int, int]] = field(default_factory=list)  # (from sample, batch size), a pair for each size
    has_map: bool = False  # one that is not NaN everywhere, as far as known

    @classmethod
    def start(
        cls,
        plans: tuple[Plan, ...],
        clean: Tensor,
        device: torch.device,
        provenance: Provenance,
        progress: Progress | None = None,
    ) -> Task:
        """Start with no votes of an image that is still on the CPU."""
        counts = tuple(Counts.none(plan, clean.shape[1:].numel(), device) for plan in plans)
        return cls(plans, clean.to(device), provenance, counts, progress, to_photo(clean))

    @classmethod
    def resume(cls, votes: Votes, clean: Tensor, provenance: Provenance, progress: Progress | None = None) -> Task:
        """Start with the votes of an interrupted run."""
        batches = [(int(first), int(size)) for first, size in votes.provenance.batches or ()]
        counts = (_to_counts(votes, clean.device),)
        return cls((votes.plan,), clean, provenance, counts, progress, votes.photo, batches, votes.counted > 0)

    @property
    def plan(self) -> Plan:
        """The plan of the noise, which is the same in all."""
        return self.plans[0]

    @property
    def counted(self) -> int:
        return self.counts[0].counted

    @property
    def left(self) -> range:
        """The samples still to be queued."""
        return range(self.counted, self.plan.n)

    def to_votes(self, explainer: Explainer, batch_size: int) -> tuple[Votes, ...]:
        return tuple(self._to_votes(*pair, explainer, batch_size) for pair in zip(self.plans, self.counts, strict=True))

    def _to_votes(self, plan: Plan, counts: Counts, explainer: Explainer, batch_size: int) -> Votes:
        def fetch(values: Tensor) -> NDArray[np.int32]:
            array: NDArray[np.int32] = values.cpu().numpy().reshape(-1, *self.clean.shape[1:])
            return array

        predictions = None if counts.predictions is None else counts.predictions.cpu().numpy()
        answered = () if predictions is None else np.flatnonzero(predictions).tolist()
        names = class_names(explainer, [self.provenance.target, *answered])
        told = {**(self.provenance.surgery or {}), **explainer.surgery}
        provenance = replace(
            self.provenance, batch_size=batch_size, class_names=names, surgery=told, batches=self.batches
        )
        guess_ones = None if counts.guess_ones is None else fetch(counts.guess_ones)
        ones, zeros = fetch(counts.votes[0]), fetch(counts.votes[1])
        channels = self.clean.shape[0]
        return Votes(plan, provenance, channels, counts.counted, ones, zeros, guess_ones, predictions, self.photo)


def _to_counts(votes: Votes, device: torch.device) -> Counts:
    def put(array: NDArray[np.int32]) -> Tensor:
        return torch.tensor(array.reshape(-1, votes.pixels), device=device)

    predictions = None if votes.predictions is None else torch.tensor(votes.predictions, device=device)
    guesses = None if votes.guess_ones is None else put(votes.guess_ones)
    return Counts(votes.counted, torch.stack([put(votes.ones), put(votes.zeros)]), guesses, predictions)


def explain_copies(
    explainer: Explainer, clean: Tensor, target: int, *, sigma: float, seed: int, samples: range
) -> tuple[Tensor, Explanation]:
    """Return noisy copies (B, C, H, W) of an image on the lattice, and their explanation."""
    copies = noisy(clean, sigma, seed, samples)
    return copies, explain(explainer, copies, target)


class _Piece(NamedTuple):
    """Samples of one image, and their slots in a batch."""

    task: Task
    samples: range
    slots: slice


class _Batch(NamedTuple):
    """A batch that was queued."""

    pieces: list[_Piece]
    nan: Tensor  # (B,), True for a map that is NaN everywhere; on the CPU when done
    done: torch.cuda.Event | None


def count_each(tasks: Iterable[Task], explainer: Explainer, tuning: Tuning) -> Iterator[tuple[Votes, ...]]:
    """Yield the votes of every task, in order, as they are done. All have the same plans."""
    assert tuning.batch_size is not None, "the tuning is settled"
    batch_size = tuning.batch_size
    source, begun, queued = iter(tasks), deque[Task](), deque[_Batch]()
    try:
        while True:
            pieces = _fill(begun, source, batch_size)
            try:
                if pieces:
                    queued.append(_queue(pieces, explainer, tuning))
            except (RuntimeError, MemoryError) as error:
                if batch_size == 1 or not out_of_memory(error):
                    raise
                batch_size //= 2
                continue
            for piece in pieces:
                _note_size(piece, batch_size)
            if not queued:
                return
            if not pieces or len(queued) > _ahead(begun[0]):
                _wait(queued.popleft())
                flying = {id(piece.task) for batch in queued for piece in batch.pieces}
                while begun and not begun[0].left and id(begun[0]) not in flying:
                    votes = begun[0].to_votes(explainer, batch_size)
                    begun.popleft()
                    _warn_if_silent(votes[0])
                    yield votes
    except KeyboardInterrupt:
        if not begun:
            raise
        raise Interrupted(*_rescue(begun[0], explainer, batch_size)) from None
    except _NothingButNaNError:
        raise
    except Exception as error:
        if not begun or begun[0].counted == 0:
            raise
        counted, plan = begun[0].counted, begun[0].plan
        raise SamplingError(
            f"sampling failed after {counted} of {plan.n} samples ({type(error).__name__}: {error}): "
            f"mend the cause, then resume the votes that this error carries, as `certify --resume` and `study run` do.",
            *_rescue(begun[0], explainer, batch_size),
        ) from error


def _note_size(piece: _Piece, batch_size: int) -> None:
    """Record the batch size from this sample on, where it is new."""
    batches = piece.task.batches
    if not batches or batches[-1][1] != batch_size:
        batches.append((piece.samples.start, batch_size))


def _rescue(task: Task, explainer: Explainer, batch_size: int) -> tuple[Votes, ...]:
    """Return the votes counted so far, and those being counted now."""
    if task.clean.device.type == "cuda":
        torch.cuda.synchronize(task.clean.device)
    return task.to_votes(explainer, batch_size)


def _fill(begun: deque[Task], source: Iterator[Task], batch_size: int) -> list[_Piece]:
    """Take the next samples, up to `batch_size`, of images of one shape; begin new images where there is room."""
    pieces: list[_Piece] = []
    filled = place = 0
    while filled < batch_size:
        if place == len(begun):
            if (task := next(source, None)) is None:
                break
            begun.append(task)
        task = begun[place]
        if task.left:
            if pieces and task.clean.shape != pieces[0].task.clean.shape:
                break
            samples = task.left[: batch_size - filled]
            pieces.append(_Piece(task, samples, slice(filled, filled + len(samples))))
            filled += len(samples)
        place += 1
    return pieces


def _queue(pieces: list[_Piece], explainer: Explainer, tuning: Tuning) -> _Batch:
    """Explain and count a batch, or have an accelerator begin to. Tasks change only when all went well."""
    first = pieces[0].task
    clean, plans = first.clean, first.plans
    images = torch.empty((pieces[-1].slots.stop, *clean.shape), device=clean.device)
    targets = torch.empty(len(images), dtype=torch.int64, device=clean.device)
    for task, samples, slots in pieces:
        noisy(task.clean, first.plan.sigma, first.plan.seed, samples, out=images[slots])
        targets[slots] = task.provenance.target
    with rounding(tuning, clean.device):
        maps, logits = explain(explainer, images, targets)
        _check_independence(explainer, images, targets, maps, pieces, first.plan)
    rankings = [Ranking.of(maps.flatten(1), plan.levels, plan.sign, plan.rule) for plan in plans]
    answers, classes = (None, 0) if logits is None else (answers_of(logits), logits.shape[1])
    counted = [
        tuple(
            counts.plus(ranking, slots, answers, classes, plan)
            for counts, ranking, plan in zip(task.counts, rankings, plans, strict=True)
        )
        for task, _, slots in pieces
    ]
    last = first.plan.n
    counted = [tuple(one.to("cpu") if one.counted == last else one for one in counts) for counts in counted]
    nan = maps.isnan().flatten(1).all(dim=1).to("cpu", non_blocking=True)
    for piece, counts in zip(pieces, counted, strict=True):
        piece.task.counts = counts
    done = torch.cuda.current_stream(clean.device).record_event() if clean.device.type == "cuda" else None
    return _Batch(pieces, nan, done)


def _ahead(task: Task) -> int:
    """Return how many batches may be queued while one is waited for."""
    return 1 if task.clean.device.type == "cuda" else 0


def _wait(batch: _Batch) -> None:
    """Wait for the batch, then report progress."""
    if batch.done is not None:
        batch.done.synchronize()
    for task, samples, slots in batch.pieces:
        task.has_map = task.has_map or not bool(batch.nan[slots].all())
        if not task.has_map and samples.stop >= min(task.plan.n, len(batch.nan)):  # as many as fill a batch
            raise _NothingButNaNError("the explainer returned NaN everywhere: check the model and its weights.")
        if task.progress is not None:
            task.progress(samples.stop, task.plan.n)


def _check_independence(
    explainer: Explainer, images: Tensor, targets: Tensor, maps: Tensor, pieces: list[_Piece], plan: Plan
) -> None:
    """Refuse maps that depend on the rest of the batch: their votes would not be independent.

    Only gross dependence shows, and only explainers that do not vouch for themselves are checked (`Method` does). One
    that draws random numbers of its own differs from call to call, and cannot be checked. An image that has another map
    by itself is compared with copies of itself, because a GPU rounds otherwise in a batch of another size.
    """
    if len(images) == 1 or explainer.batch_independent or all(piece.samples.start for piece in pieces):
        return

    def votes(some: Tensor) -> Tensor:
        return Ranking.of(some[:1].flatten(1), plan.levels, plan.sign, plan.rule).count()

    def among(copies: int) -> Tensor:
        first = torch.zeros(copies, dtype=torch.long, device=images.device)
        return votes(explain(explainer, images[first], targets[first]).maps)

    def differ(first: Tensor, second: Tensor) -> bool:
        return float((first != second).float().mean()) > 0.01

    found, size = votes(maps), len(images)
    if differ(among(1), found) and differ(copied := among(size), found) and not differ(copied, among(size)):
        raise ExplainerError(
            "the explainer's map of an image depends on the rest of the batch, so votes would not be independent: "
            "explain each image by itself (is a network in training mode?), or use batch_size=1."
        )


def _warn_if_silent(votes: Votes) -> None:
    if votes.ones.max() == 0 and votes.zeros.max() == 0:
        warnings.warn(
            "every map was constant at its threshold, so no pixel got a vote and everything abstains: the explainer "
            "may not depend on the image, or its ReLU may have left only zeros.",
            PixelcertWarning,
            stacklevel=5,
        )
