"""The loop: noise → explainer → ranking → counts. The only expensive part, and its whole result is `Votes`.

Memory is O(levels × pixels) besides one batch, whatever n is, and nothing leaves the device until the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import statistics
from .counts import Counts
from .errors import ArgumentError, ExplainerError, PixelcertWarning
from .explainer import (
    Explainer,
    channels_of,
    check_target,
    choose_batch_size,
    class_names,
    describe,
    device_of,
    explain,
    precision_of,
)
from .image import check_image, image_hash, to_photo
from .noise import noisy, snap
from .plan import ALPHA, LEVELS, SIGMA, TAU, N, Plan, Preset, Sign
from .provenance import Provenance
from .ranking import check_levels_fit, count_votes
from .statistics import Correction
from .votes import Votes

if TYPE_CHECKING:
    from .certificate import Certificate

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


def certify(
    explainer: Explainer,
    image: Tensor | NDArray[np.floating],
    target: int,
    *,
    tau: float = TAU,
    alpha: float = ALPHA,
    correction: Correction | None = None,
    **settings: Any,
) -> Certificate:
    """Sample and certify in one call; `settings` are those of `sample`."""
    votes = sample(explainer, image, target, tau=tau, alpha=alpha, correction=correction, **settings)
    return votes.certify(tau, alpha, correction=correction)


def sample(
    explainer: Explainer,
    image: Tensor | NDArray[np.floating],
    target: int,
    *,
    sigma: float = SIGMA,
    n: int = N,
    levels: Sequence[float] = LEVELS,
    seed: int = 0,
    sign: Sign | None = None,
    preset: Preset = "default",
    tau: float | None = TAU,
    alpha: float = ALPHA,
    correction: Correction | None = None,
    batch_size: int | None = None,
    image_name: str = "",
    progress: Progress | None = None,
) -> Votes:
    """Explain `n` noisy copies of `image` and count, per level and pixel, how often it is in the top K %.

    Args:
        explainer: any callable ``(images (B, C, H, W), targets (B,)) → maps``.
        image: (C, H, W) in [0, 1], before normalisation: the space in which noise is added and the radius holds.
        target: the class to explain, the same for every sample.
        sigma: standard deviation of the noise. A larger one certifies a larger radius, and fewer pixels.
        levels: K in percent, in any order.
        sign: rank the maps "signed", by "absolute" value, or by "positive" part; by default as the preset says.
        preset: "default", or "reference" to reproduce the published code's ranking and test.
        tau, alpha, correction: the certificate to be asked for, so that an n too small for it is refused before
            sampling; votes do not depend on them. ``tau=None`` skips the check.
        batch_size: noisy images per call of the explainer; chosen by default, halved when memory runs out.
        progress: called with (samples counted, samples planned) after every batch.

    Raises:
        Interrupted: on Ctrl-C, carrying the votes counted so far.
    """
    plan = Plan.make(preset=preset, sign=sign, sigma=sigma, n=n, levels=tuple(levels), seed=seed)
    return sample_plan(
        plan,
        explainer,
        image,
        target,
        tau=tau,
        alpha=alpha,
        correction=correction,
        batch_size=batch_size,
        image_name=image_name,
        progress=progress,
    )


def sample_plan(
    plan: Plan,
    explainer: Explainer,
    image: Tensor | NDArray[np.floating],
    target: int,
    *,
    tau: float | None = TAU,
    alpha: float = ALPHA,
    correction: Correction | None = None,
    batch_size: int | None = None,
    image_name: str = "",
    progress: Progress | None = None,
) -> Votes:
    """`sample`, with its settings in a `Plan`."""
    clean = _prepare(explainer, image)
    pixels = clean.shape[1] * clean.shape[2]
    check_levels_fit(plan.levels, pixels, plan.rule)
    if tau is not None:
        statistics.check_feasible(plan, tau, alpha, pixels, correction or statistics.default_correction(plan))
    target = check_target(explainer, target, clean)
    size = _check_batch_size(batch_size) or choose_batch_size(explainer, clean)
    empty = _empty_votes(plan, clean, _provenance(explainer, clean, target, size, image_name))
    return _count_all(empty, explainer, clean, progress)


def resume(
    votes: Votes,
    explainer: Explainer,
    image: Tensor | NDArray[np.floating],
    *,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Votes:
    """Count the planned samples that `votes` lacks: at the same batch size, the votes of an uninterrupted run.

    Refuses an image, model, method or machine other than those the votes came from. A black box is known by its name
    alone: it is up to you to give the same.
    """
    clean = _prepare(explainer, image)
    size = _check_batch_size(batch_size) or votes.provenance.batch_size
    now = _provenance(explainer, clean, votes.provenance.target, size, votes.provenance.image_name)
    if changed := votes.provenance.differences(now):
        raise ArgumentError(f"these votes cannot be resumed: {'; '.join(changed)}. Sample anew, or give the same.")
    if votes.complete:
        return votes
    return _count_all(replace(votes, provenance=now), explainer, clean, progress)


def differences(votes: Votes, plan: Plan, explainer: Explainer, image: Tensor, target: int) -> list[str]:
    """What sets `votes` apart from those that this plan, explainer, image and target would give, in words."""
    now = _provenance(explainer, _prepare(explainer, image), target, 1, "")
    changed = (field.name for field in fields(Plan) if getattr(votes.plan, field.name) != getattr(plan, field.name))
    settings = [f"{name} was {getattr(votes.plan, name)}, now {getattr(plan, name)}" for name in changed]
    return settings + votes.provenance.differences(now)


# ── The loop ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _count_all(votes: Votes, explainer: Explainer, clean: Tensor, progress: Progress | None) -> Votes:
    """Every planned sample that is missing, batch by batch."""
    plan, target, batch_size = votes.plan, votes.provenance.target, votes.provenance.batch_size
    counts = Counts.of(votes, clean.device)
    try:
        while counts.counted < plan.n:
            indices = range(counts.counted, min(counts.counted + batch_size, plan.n))
            try:
                images = noisy(clean, plan.sigma, plan.seed, indices)
                maps, logits = explain(explainer, images, target)
                if counts.counted == 0:
                    _check_first_batch(explainer, images, target, maps, plan)
                counts = counts.plus(maps, logits, plan)
            except (RuntimeError, MemoryError) as error:
                if batch_size == 1 or not _out_of_memory(error):
                    raise
                batch_size //= 2
                continue
            if progress is not None:
                progress(counts.counted, plan.n)
    except KeyboardInterrupt:
        raise Interrupted(counts.to_votes(votes, explainer, batch_size)) from None
    except Exception as error:
        if counts.counted == 0:
            raise
        raise SamplingError(
            f"sampling failed after {counts.counted} of {plan.n} samples ({type(error).__name__}: {error}): "
            f"mend the cause, then resume the votes that this error carries, as `certify --resume` and `study run` do.",
            counts.to_votes(votes, explainer, batch_size),
        ) from error
    done = counts.to_votes(votes, explainer, batch_size)
    _warn_if_silent(done)
    return done


def _check_first_batch(explainer: Explainer, images: Tensor, target: int, maps: Tensor, plan: Plan) -> None:
    """Refuse maps of NaN, and maps that depend on the rest of the batch: their votes would not be independent.

    Only gross dependence shows, and only for explainers that do not vouch for themselves (`Method` does). One that
    draws random numbers of its own differs from call to call, and cannot be checked.
    """
    if bool(maps.isnan().all()):
        raise ExplainerError("the explainer returned NaN everywhere: check the model and its weights.")
    if len(images) == 1 or getattr(explainer, "batch_independent", False):
        return

    def votes(some: Tensor) -> Tensor:
        return torch.stack(count_votes(some[:1].flatten(1), plan.levels, plan.sign, plan.rule))

    def differ(one: Tensor, other: Tensor) -> bool:
        return float((one != other).float().mean()) > 0.01

    alone = votes(explain(explainer, images[:1], target).maps)
    if differ(alone, votes(maps)) and not differ(alone, votes(explain(explainer, images[:1], target).maps)):
        raise ExplainerError(
            "the explainer's map of an image depends on the rest of the batch, so votes would not be independent: "
            "explain each image by itself (is a network in training mode?), or use batch_size=1."
        )


def _prepare(explainer: Explainer, image: Tensor | NDArray[np.floating]) -> Tensor:
    checked = check_image(image, channels_of(explainer))
    return snap(checked.to(device_of(explainer, checked)))


def _check_batch_size(batch_size: int | None) -> int | None:
    if batch_size is not None and batch_size < 1:
        raise ArgumentError(f"batch_size={batch_size} is not a number of images: use 1 or more, or leave it out.")
    return batch_size


def _provenance(explainer: Explainer, clean: Tensor, target: int, batch_size: int, image_name: str) -> Provenance:
    cuda = clean.device.type == "cuda"
    return Provenance(
        **describe(explainer),
        image=image_hash(clean),
        image_name=image_name,
        target=target,
        class_names=class_names(explainer, [target]),
        device=torch.cuda.get_device_name(clean.device) if cuda else clean.device.type,
        precision=precision_of(explainer, clean.device),
        batch_size=batch_size,
    )


def _empty_votes(plan: Plan, clean: Tensor, provenance: Provenance) -> Votes:
    zeros = np.zeros((len(plan.levels), *clean.shape[1:]), dtype=np.int32)
    guesses = zeros if plan.guess else None
    return Votes(plan, provenance, clean.shape[0], 0, zeros, zeros, guesses, photo=to_photo(clean))


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
            stacklevel=4,
        )
