"""The loop: noise → explainer → ranking → counts. The only expensive part.

Memory is O(levels × pixels) for each image besides one batch, whatever n is. Batches are filled with the samples of
several images where one has too few. Nothing leaves the device before an image is done, and on an accelerator the next
batch is always queued before the last one is waited for, so that it never waits for Python.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ..basics.messages import ExplainerError, PixelcertWarning, Progress
from ..explainer import Explainer, explain
from ..noise import noisy
from ..plan import Plan
from ..ranking import Counts, Ranking, answers_of
from ..votes import Votes
from .precision import Tuning, rounding


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
    """No vote of such an explainer is worth keeping."""


@dataclass
class Task:
    """One image on its way from no votes, or some, to all that were planned."""

    votes: tuple[Votes, ...]  # for each plan: they count the same maps, each by its own rules
    clean: Tensor  # (C, H, W), on the grid
    progress: Progress | None = None
    counts: tuple[Counts, ...] = field(init=False)
    has_map: bool = field(init=False)  # that is not NaN everywhere, as far as known

    def __post_init__(self) -> None:
        self.counts = tuple(Counts.of(votes, self.clean.device) for votes in self.votes)
        self.has_map = self.counted > 0

    @property
    def plan(self) -> Plan:
        """That of the noise, which is the same in all."""
        return self.votes[0].plan

    @property
    def target(self) -> int:
        return self.votes[0].provenance.target

    @property
    def counted(self) -> int:
        return self.counts[0].counted

    @property
    def left(self) -> range:
        """The samples still to be queued."""
        return range(self.counted, self.plan.n)

    def to_votes(self, explainer: Explainer, batch_size: int) -> tuple[Votes, ...]:
        pairs = zip(self.counts, self.votes, strict=True)
        return tuple(counts.to_votes(votes, explainer, batch_size) for counts, votes in pairs)


class _Piece(NamedTuple):
    """Samples of one image, and their place in a batch."""

    run: Task
    samples: range
    rows: slice


class _Batch(NamedTuple):
    """A batch that was queued."""

    pieces: list[_Piece]
    nan: Tensor  # (B,), whether a map is NaN everywhere; on the CPU when done
    done: torch.cuda.Event | None


def count_each(
    runs: Iterable[Task], explainer: Explainer, tuning: Tuning, batch_size: int
) -> Iterator[tuple[Votes, ...]]:
    """The votes of every run, in order, as they are done. All have the same plans."""
    source, begun, queued = iter(runs), deque[Task](), deque[_Batch]()
    try:
        while True:
            pieces = _fill(begun, source, batch_size)
            try:
                if pieces:
                    queued.append(_queue(pieces, explainer, tuning))
            except (RuntimeError, MemoryError) as error:
                if batch_size == 1 or not _out_of_memory(error):
                    raise
                batch_size //= 2
                continue
            if not queued:
                return
            if not pieces or len(queued) > _ahead(begun[0]):
                _wait(queued.popleft())
                flying = {id(piece.run) for batch in queued for piece in batch.pieces}
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


def _rescue(run: Task, explainer: Explainer, batch_size: int) -> tuple[Votes, ...]:
    """What was counted, and what is being counted now."""
    if run.clean.device.type == "cuda":
        torch.cuda.synchronize(run.clean.device)
    return run.to_votes(explainer, batch_size)


def _fill(begun: deque[Task], source: Iterator[Task], batch_size: int) -> list[_Piece]:
    """The next samples, up to `batch_size`, of images of one shape; new images are begun where there is room."""
    pieces: list[_Piece] = []
    filled = place = 0
    while filled < batch_size:
        if place == len(begun):
            if (run := next(source, None)) is None:
                break
            begun.append(run)
        run = begun[place]
        if run.left:
            if pieces and run.clean.shape != pieces[0].run.clean.shape:
                break
            samples = run.left[: batch_size - filled]
            pieces.append(_Piece(run, samples, slice(filled, filled + len(samples))))
            filled += len(samples)
        place += 1
    return pieces


def _queue(pieces: list[_Piece], explainer: Explainer, tuning: Tuning) -> _Batch:
    """Explain and count a batch, or have an accelerator begin to. Runs change only when all went well."""
    clean, plan = pieces[0].run.clean, pieces[0].run.plan
    images = torch.empty((pieces[-1].rows.stop, *clean.shape), device=clean.device)
    targets = torch.empty(len(images), dtype=torch.int64, device=clean.device)
    for run, samples, rows in pieces:
        noisy(run.clean, plan.sigma, plan.seed, samples, out=images[rows])
        targets[rows] = run.target
    with rounding(tuning, clean.device):
        maps, logits = explain(explainer, images, targets)
        _check_independence(explainer, images, targets, maps, pieces, plan)
    plans = [votes.plan for votes in pieces[0].run.votes]
    rankings = [Ranking.of(maps.flatten(1), plan.levels, plan.sign, plan.rule) for plan in plans]
    answers, classes = (None, 0) if logits is None else (answers_of(logits), logits.shape[1])
    counted = [
        tuple(
            counts.plus(ranking, rows, answers, classes, plan)
            for counts, ranking, plan in zip(run.counts, rankings, plans, strict=True)
        )
        for run, _, rows in pieces
    ]
    counted = [tuple(one.on_host() if one.counted == plan.n else one for one in counts) for counts in counted]
    nan = maps.isnan().flatten(1).all(dim=1).to("cpu", non_blocking=True)
    for piece, counts in zip(pieces, counted, strict=True):
        piece.run.counts = counts
    done = torch.cuda.current_stream(clean.device).record_event() if clean.device.type == "cuda" else None
    return _Batch(pieces, nan, done)


def _ahead(run: Task) -> int:
    """How many batches may be queued while one is waited for."""
    return 1 if run.clean.device.type == "cuda" else 0


def _wait(batch: _Batch) -> None:
    """Until it is done, and tell of it."""
    if batch.done is not None:
        batch.done.synchronize()
    for run, samples, rows in batch.pieces:
        run.has_map = run.has_map or not bool(batch.nan[rows].all())
        if not run.has_map and samples.stop >= min(run.plan.n, len(batch.nan)):  # as many as fill a batch
            raise _NothingButNaNError("the explainer returned NaN everywhere: check the model and its weights.")
        if run.progress is not None:
            run.progress(samples.stop, run.plan.n)


def _check_independence(
    explainer: Explainer, images: Tensor, targets: Tensor, maps: Tensor, pieces: list[_Piece], plan: Plan
) -> None:
    """Refuse maps that depend on the rest of the batch: their votes would not be independent.

    Only gross dependence shows, and only for explainers that do not vouch for themselves (`Method` does). One that
    draws random numbers of its own differs from call to call, and cannot be checked. An image that has another map by
    itself is looked at among copies of itself: a GPU rounds otherwise in a batch of another size.
    """
    if len(images) == 1 or getattr(explainer, "batch_independent", False) or all(p.samples.start for p in pieces):
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


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    phrases = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")  # CPU, MPS, cuDNN, cuBLAS
    return any(phrase in str(error) for phrase in phrases)


def _warn_if_silent(votes: Votes) -> None:
    if votes.ones.max() == 0 and votes.zeros.max() == 0:
        warnings.warn(
            "every map was constant at its threshold, so no pixel got a vote and everything abstains: the explainer "
            "may not depend on the image, or its ReLU may have left only zeros.",
            PixelcertWarning,
            stacklevel=5,
        )
