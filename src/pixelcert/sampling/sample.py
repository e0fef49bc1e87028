"""Sampling: from an explainer and an image to `Votes`. What is asked is checked here, before the loop begins."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import statistics
from ..basics.messages import ArgumentError, Progress
from ..explainer import (
    Explainer,
    channels_of,
    check_target,
    choose_batch_size,
    class_names,
    describe,
    device_of,
    runs_per_image,
)
from ..image import check_image, image_hash, to_photo
from ..noise import snap
from ..plan import ALPHA, LEVELS, SIGMA, TAU, N, Plan, Preset, Sign, check_number
from ..ranking import check_levels_fit
from ..statistics import Correction
from ..votes import Provenance, Votes
from .loop import Interrupted as Interrupted
from .loop import SamplingError as SamplingError
from .loop import Task, count_each
from .precision import Compile, Precision, Tuning, choose_tuning, tune, tuning_of

if TYPE_CHECKING:
    from ..certificate import Certificate


class Subject(NamedTuple):
    """An image to explain, and the class to explain it for."""

    image: Tensor | NDArray[np.floating]  # (C, H, W) in [0, 1], before normalisation
    target: int
    name: str = ""
    progress: Progress | None = None  # called with (samples counted, samples planned) after every batch


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
    levels: float | Sequence[float] = LEVELS,
    seed: int = 0,
    sign: Sign | None = None,
    preset: Preset = "default",
    tau: float | None = TAU,
    alpha: float = ALPHA,
    correction: Correction | None = None,
    batch_size: int | None = None,
    precision: Precision = "auto",
    compile: Compile = "auto",
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
        precision: "float32", "tf32" or "bfloat16"; "auto" takes the fastest that hardly changes certificates. The
            certificate is about the function as computed, so each is sound.
        compile: whether to compile the network first; "auto" does on a GPU where the wait pays.
        progress: called with (samples counted, samples planned) after every batch.

    Raises:
        Interrupted: on Ctrl-C, carrying the votes counted so far.
    """
    plan = Plan.make(preset=preset, sign=sign, sigma=sigma, n=n, levels=levels, seed=seed)
    if tau is not None:
        pixels = check_image(image, channels_of(explainer)).shape[1:].numel()
        statistics.check_feasible(plan, tau, alpha, pixels, correction or statistics.default_correction(plan))
    subject = Subject(image, target, image_name, progress)
    return next(sample_each(plan, explainer, [subject], batch_size=batch_size, precision=precision, compile=compile))


def sample_each(
    plan: Plan,
    explainer: Explainer,
    subjects: Sequence[Subject],
    *,
    batch_size: int | None = None,
    precision: Precision = "auto",
    compile: Compile = "auto",
) -> Iterator[Votes]:
    """The votes of every subject, in order, as they are done. Samples of several images share a batch.

    While one image's votes are looked at, an accelerator goes on with the next. When sampling is interrupted or fails,
    `Interrupted` and `SamplingError` carry the votes of the first image that is not done.
    """
    how: Any = {"batch_size": batch_size, "precision": precision, "compile": compile}
    return (votes for (votes,) in sample_plans((plan,), explainer, subjects, **how))


def sample_plans(
    plans: Sequence[Plan],
    explainer: Explainer,
    subjects: Sequence[Subject],
    *,
    batch_size: int | None = None,
    precision: Precision = "auto",
    compile: Compile = "auto",
) -> Iterator[tuple[Votes, ...]]:
    """`sample_each` for several plans that draw the same noise: every map is made once, and counted by all rules."""
    noises = {(plan.sigma, plan.n, plan.seed) for plan in plans}
    if len(noises) != 1:
        raise ArgumentError(f"plans draw different noise (sigma, n, seed): {sorted(noises)}. Sample them one by one.")
    plan = plans[0]
    if not subjects:
        return iter(())
    images = [check_image(subject.image, channels_of(explainer)) for subject in subjects]
    for image, subject in zip(images, subjects, strict=True):
        for each in plans:
            check_levels_fit(each.levels, image.shape[1:].numel(), each.rule)
        check_target(explainer, _check_index(subject.target), image)
    device = device_of(explainer, images[0])
    runs = plan.n * runs_per_image(explainer) * sum(image.numel() for image in images) / (3 * 224 * 224)
    tuning = choose_tuning(explainer, device, precision, compile, runs)
    size = check_batch_size(batch_size) or choose_batch_size(explainer, device, images[0].numel())
    described = describe(explainer)

    def prepare(image: Tensor, subject: Subject) -> Task:
        clean = _on_grid(image)
        source = _provenance(explainer, described, clean, int(subject.target), subject.name, device, tuning, size)
        return Task(tuple(_no_votes(each, clean, source) for each in plans), clean.to(device), subject.progress)

    prepared: Iterator[Task] = map(prepare, images, subjects)
    if device.type == "cuda" and len(subjects) > 1:
        prepared = _in_advance(prepared, device)
    return count_each(prepared, tune(explainer, tuning), tuning, size)


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
    source = votes.provenance
    checked = check_image(image, channels_of(explainer))
    device, clean = device_of(explainer, checked), _on_grid(checked)
    tuning = tuning_of(source, explainer, device)
    size = check_batch_size(batch_size) or source.batch_size
    described = describe(explainer)
    now = _provenance(explainer, described, clean, source.target, source.image_name, device, tuning, size)
    if changed := source.differences(now):
        raise ArgumentError(f"these votes cannot be resumed: {'; '.join(changed)}. Sample anew, or give the same.")
    if votes.complete:
        return votes
    run = Task((replace(votes, provenance=now),), clean.to(device), progress)
    (whole,) = next(count_each([run], tune(explainer, tuning), tuning, size))
    return whole


def differences(
    votes: Votes, plan: Plan, explainer: Explainer, image: Tensor, target: int, precision: Precision = "auto"
) -> list[str]:
    """What sets `votes` apart from those that this plan, explainer, image and target would give, in words."""
    checked = check_image(image, channels_of(explainer))
    device = device_of(explainer, checked)
    tuning = choose_tuning(explainer, device, precision, False, 0)
    now = _provenance(explainer, describe(explainer), _on_grid(checked), target, "", device, tuning, 1)
    changed = (field.name for field in fields(Plan) if getattr(votes.plan, field.name) != getattr(plan, field.name))
    settings = [f"{name} was {getattr(votes.plan, name)}, now {getattr(plan, name)}" for name in changed]
    return settings + votes.provenance.differences(now)


def _on_grid(image: Tensor) -> Tensor:
    """On the CPU, where it is hashed; moving it later does not change it."""
    return snap(image.cpu())


def _in_advance(runs: Iterator[Task], device: torch.device) -> Iterator[Task]:
    """The runs, the next few of them made in another thread, and copied to the GPU while that is at work."""
    aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def make() -> Task | None:
        with torch.cuda.stream(aside):
            run = next(runs, None)
        aside.synchronize()
        return run

    with ThreadPoolExecutor(1) as thread:
        upcoming = deque(thread.submit(make) for _ in range(4))
        while (run := upcoming.popleft().result()) is not None:
            for tensor in (run.clean, *(counts.votes for counts in run.counts)):
                tensor.record_stream(torch.cuda.current_stream(device))  # not to be given away while that reads them
            upcoming.append(thread.submit(make))
            yield run


def check_batch_size(batch_size: int | None) -> int | None:
    if batch_size is None:
        return None
    check_number("batch_size", batch_size, 16)
    if batch_size < 1:
        raise ArgumentError(f"batch_size={batch_size} is not a number of images: use 1 or more, or leave it out.")
    return batch_size


def _check_index(target: int) -> int:
    """Refuse what is no number, such as the name of a class."""
    try:
        int(target)
    except (TypeError, ValueError, RuntimeError) as error:  # the last of a tensor with several values
        raise ArgumentError(
            f"target={target!r} is not a class index: use a whole number from 0; model.classes.index(name) finds it."
        ) from error
    return target


def _provenance(
    explainer: Explainer,
    described: Mapping[str, Any],
    clean: Tensor,
    target: int,
    image_name: str,
    device: torch.device,
    tuning: Tuning,
    batch_size: int,
) -> Provenance:
    return Provenance(
        **described,
        image=image_hash(clean),
        image_name=image_name,
        target=target,
        class_names=class_names(explainer, [target]),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        precision=tuning.precision,
        compiled=tuning.compiled,
        batch_size=batch_size,
    )


def _no_votes(plan: Plan, clean: Tensor, provenance: Provenance) -> Votes:
    zeros = np.zeros((len(plan.levels), *clean.shape[1:]), dtype=np.int32)
    zeros.setflags(write=False)
    guesses = zeros if plan.guess else None
    return Votes(plan, provenance, clean.shape[0], 0, zeros, zeros, guesses, photo=to_photo(clean))
