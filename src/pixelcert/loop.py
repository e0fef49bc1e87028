"""The loop: noise → explainer → ranking → counts. The only expensive part.

Memory is O(levels × pixels) for each image besides one batch, whatever n is. Batches are filled with the samples of
several images where one has too few. Nothing leaves the device before an image is done, and on an accelerator the next
batch is always queued before the last one is waited for, so that it never waits for Python.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from .counts import Counts
from .errors import ExplainerError, PixelcertWarning
from .explainer import Explainer, explain
from .noise import noisy
from .plan import Plan
from .ranking import count_votes
from .tuning import Tuning, rounding
from .votes import Votes

Progress = Callable[[int, int], None]  # (samples counted, samples planned)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with the `votes` counted so far. They cannot be certified, but saved and resumed to the planned n."""

    def __init__(self, votes: Votes) -> None:
        super().__init__(f"{votes.counted} of {votes.plan.n} samples counted")
        self.votes = votes


class SamplingError(ExplainerError):
    """The explainer raised an error midway. `votes` holds what was counted before, to be resumed."""

    def __init__(self, message: str, votes: Votes) -> None:
        super().__init__(message)
        self.votes = votes


class _NothingButNaNError(ExplainerError):
    """No vote of such an explainer is worth keeping."""


@dataclass
class Run:
    """One image on its way from no votes, or some, to all that were planned."""

    votes: Votes
    clean: Tensor  # (C, H, W), on the grid
    progress: Progress | None = None
    counts: Counts = field(init=False)

    def __post_init__(self) -> None:
        self.counts = Counts.of(self.votes, self.clean.device)

    @property
    def plan(self) -> Plan:
        return self.votes.plan

    @property
    def left(self) -> range:
        """The samples still to be queued."""
        return range(self.counts.counted, self.plan.n)

    def to_votes(self, explainer: Explainer, batch_size: int) -> Votes:
        return self.counts.to_votes(self.votes, explainer, batch_size)


class _Piece(NamedTuple):
    """Samples of one image in a batch."""

    run: Run
    samples: range


class _Batch(NamedTuple):
    """A batch that was queued."""

    pieces: list[_Piece]
    silent: list[Tensor]  # for each piece that begins an image: whether all its maps are NaN, on the CPU when done
    done: torch.cuda.Event | None


def count_each(runs: Iterable[Run], explainer: Explainer, tuning: Tuning, batch_size: int) -> Iterator[Votes]:
    """The votes of every run, in order, as they are done."""
    source, begun, queued = iter(runs), deque[Run](), deque[_Batch]()
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
                    _warn_if_silent(votes)
                    yield votes
    except KeyboardInterrupt:
        if not begun:
            raise
        raise Interrupted(begun[0].to_votes(explainer, batch_size)) from None
    except _NothingButNaNError:
        raise
    except Exception as error:
        if not begun or begun[0].counts.counted == 0:
            raise
        counted, plan = begun[0].counts.counted, begun[0].plan
        raise SamplingError(
            f"sampling failed after {counted} of {plan.n} samples ({type(error).__name__}: {error}): "
            f"mend the cause, then resume the votes that this error carries, as `certify --resume` and `study run` do.",
            begun[0].to_votes(explainer, batch_size),
        ) from error


def _fill(begun: deque[Run], source: Iterator[Run], batch_size: int) -> list[_Piece]:
    """The next samples, up to `batch_size`, of images of one shape; new images are begun where there is room."""
    pieces: list[_Piece] = []
    room = batch_size
    place = 0
    while room:
        if place == len(begun):
            if (run := next(source, None)) is None:
                break
            begun.append(run)
        run = begun[place]
        if run.left:
            if pieces and run.clean.shape != pieces[0].run.clean.shape:
                break
            pieces.append(_Piece(run, run.left[:room]))
            room -= len(pieces[-1].samples)
        place += 1
    return pieces


def _queue(pieces: list[_Piece], explainer: Explainer, tuning: Tuning) -> _Batch:
    """Explain and count a batch, or have an accelerator begin to. Runs change only when all went well."""
    device = pieces[0].run.clean.device
    with rounding(tuning, device):
        images = _cat([noisy(run.clean, run.plan.sigma, run.plan.seed, samples) for run, samples in pieces])
        answers = [run.votes.provenance.target for run, _ in pieces]
        targets = _cat([torch.full((len(p.samples),), t, device=device) for p, t in zip(pieces, answers, strict=True)])
        maps, logits = explain(explainer, images, targets)
        counted, silent, start = [], [], 0
        for run, samples in pieces:
            own = slice(start, start + len(samples))
            start = own.stop
            if run.counts.counted == 0:
                _check_independence(explainer, images, targets, maps, own, run.plan)
                silent.append(maps[own].isnan().all().to("cpu", non_blocking=True))
            counts = run.counts.plus(maps[own], None if logits is None else logits[own], run.plan)
            counted.append(counts if counts.counted < run.plan.n else counts.on_host())
    for (run, _), counts in zip(pieces, counted, strict=True):
        run.counts = counts
    return _Batch(pieces, silent, torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None)


def _cat(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _ahead(run: Run) -> int:
    """How many batches may be queued while one is waited for."""
    return 1 if run.clean.device.type == "cuda" else 0


def _wait(batch: _Batch) -> None:
    """Until it is done, and tell of it."""
    if batch.done is not None:
        batch.done.synchronize()
    if any(map(bool, batch.silent)):
        raise _NothingButNaNError("the explainer returned NaN everywhere: check the model and its weights.")
    for run, samples in batch.pieces:
        if run.progress is not None:
            run.progress(samples.stop, run.plan.n)


def _check_independence(
    explainer: Explainer, images: Tensor, targets: Tensor, maps: Tensor, own: slice, plan: Plan
) -> None:
    """Refuse maps that depend on the rest of the batch: their votes would not be independent.

    Only gross dependence shows, and only for explainers that do not vouch for themselves (`Method` does). One that
    draws random numbers of its own differs from call to call, and cannot be checked.
    """
    if len(images) == 1 or getattr(explainer, "batch_independent", False):
        return
    one = slice(own.start, own.start + 1)

    def votes(some: Tensor) -> Tensor:
        return torch.stack(count_votes(some.flatten(1), plan.levels, plan.sign, plan.rule))

    def differ(first: Tensor, second: Tensor) -> bool:
        return float((first != second).float().mean()) > 0.01

    def alone() -> Tensor:
        return votes(explain(explainer, images[one], targets[one]).maps)

    if differ(once := alone(), votes(maps[one])) and not differ(once, alone()):
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
