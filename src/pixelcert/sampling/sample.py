"""Sample: from an explainer and an image to `Votes`. All arguments are checked here, before the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import statistics
from ..basics.machine import device_name, processor
from ..basics.messages import ArgumentError, Progress, check_target
from ..certificate import Certificate
from ..explainer import RANDOM, Compile, Explainer, Explains, Precision, Tuning, as_explainer, describe
from ..image import check_image, image_hash, to_photo
from ..noise import snap
from ..plan import ALPHA, LEVELS, SIGMA, TAU, Correction, Criterion, N, Plan, Preset, Sign, check_levels_fit
from ..ranking import Counts
from ..votes import Provenance, Votes
from .loop import Interrupted as Interrupted
from .loop import SamplingError as SamplingError
from .loop import Task, count_each, to_counts
from .precision import settle, settle_as

Image = Tensor | NDArray[np.floating]
_UNTUNED = Tuning()


class Subject(NamedTuple):
    """An image to explain, and the class to explain it for."""

    image: Image  # (C, H, W) in [0, 1], before normalisation
    target: int
    name: str = ""
    progress: Progress | None = None  # called with (samples counted, samples planned) after every batch


def certify(
    explainer: Explains,
    image: Image,
    target: int,
    *,
    tau: float = TAU,
    alpha: float = ALPHA,
    correction: Correction | None = None,
    **sampling: Any,
) -> Certificate:
    """Sample and certify in one call; `sampling` are the other arguments of `sample`."""
    votes = sample(explainer, image, target, tau=tau, alpha=alpha, correction=correction, **sampling)
    return votes.certify(tau, alpha, correction=correction)


def sample(
    explainer: Explains,
    image: Image,
    target: int,
    *,
    sigma: float = SIGMA,
    n: int = N,
    levels: float | Sequence[float] = LEVELS,
    seed: int | None = None,
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
        seed: of the noise. By default it is drawn from the operating system once all else is fixed, and recorded: an
            image can be fitted to a seed that is known beforehand. Give one only to repeat a run.
        sign: rank the maps "signed", by "absolute" value, or by "positive" part; by default as the preset says.
        preset: "default", or "reference" to reproduce the published code's ranking and test.
        tau, alpha, correction: of the certificate that you will ask for. An n too small for it is refused before
            sampling. Votes do not depend on these three; ``tau=None`` skips the check.
        batch_size: noisy images per call of the explainer; chosen by default, halved when memory runs out.
        precision: "float32", "tf32" or "bfloat16"; "auto" takes the fastest that hardly changes certificates. The
            certificate is about the function as computed, so each is sound.
        compile: whether to compile the network first; "auto" does so on a GPU if that saves time.
        progress: called with (samples counted, samples planned) after every batch.

    Raises:
        Interrupted: on Ctrl-C, carrying the votes counted so far.
    """
    plan = Plan.make(preset=preset, sign=sign, sigma=sigma, n=n, levels=levels, seed=seed)
    explainer = as_explainer(explainer)
    if tau is not None:
        pixels = check_image(image, explainer.model.channels).shape[1:].numel()
        statistics.check_feasible(plan, Criterion(tau, alpha, correction), pixels)
    subject = Subject(image, target, image_name, progress)
    return next(sample_each(plan, explainer, [subject], Tuning(batch_size, precision, compile)))


def sample_each(
    plan: Plan, explainer: Explains, subjects: Sequence[Subject], tuning: Tuning = _UNTUNED
) -> Iterator[Votes]:
    """Yield the votes of every subject, in order, as they are done. Samples of several images share a batch.

    While the caller looks at one image's votes, an accelerator goes on with the next. When sampling is interrupted or
    fails, `Interrupted` and `SamplingError` carry the votes of the first image that is not done.
    """
    return (votes for (votes,) in sample_plans((plan,), explainer, subjects, tuning))


def sample_plans(
    plans: Sequence[Plan], explainer: Explains, subjects: Sequence[Subject], tuning: Tuning = _UNTUNED
) -> Iterator[tuple[Votes, ...]]:
    """Yield votes as `sample_each` does, for several plans with the same noise, which count the same maps."""
    noises = {(plan.sigma, plan.n, plan.seed, plan.streams) for plan in plans}
    if len(noises) != 1:
        said = ", ".join(map(str, noises))
        raise ArgumentError(f"plans draw different noise (sigma, n, seed, streams): {said}. Sample them one by one.")
    if not subjects:
        return iter(())
    explainer = as_explainer(explainer)
    checked = [_check_subject(subject, explainer, plans) for subject in subjects]
    values = [image.numel() for image, _ in checked]
    device = explainer.model.device or checked[0][0].device
    passes = plans[0].n * max(1, explainer.passes) * sum(values) / (3 * 224 * 224)
    settled, steps = settle(explainer, tuning, device, values[0], passes)
    tuned, about = explainer.tuned(settled), _about(explainer, device, settled)
    seed = plans[0].drawn().seed  # last: nothing that is certified may be chosen after it
    planned = tuple(replace(plan, seed=seed) for plan in plans)

    def start(subject: Subject, image: Tensor, target: int) -> Task:
        clean = snap(image.cpu())  # where it is hashed; moving it later does not change it
        shown = about | {"image": image_hash(clean), "image_name": subject.name}
        source = Provenance(**shown, target=target, surgery=steps)
        counts = tuple(Counts.none(plan, image[0].numel(), device) for plan in planned)
        return Task(planned, clean.to(device), source, counts, subject.progress, to_photo(clean))

    tasks = (start(subject, *pair) for subject, pair in zip(subjects, checked, strict=True))
    ahead = device.type == "cuda" and len(subjects) > 1
    return count_each(_in_advance(tasks, device) if ahead else tasks, tuned, settled)


def resume(
    votes: Votes, explainer: Explains, image: Image, *, batch_size: int | None = None, progress: Progress | None = None
) -> Votes:
    """Count the planned samples that `votes` lacks; an uninterrupted run of the same batch size gives the same votes.

    It refuses an image, model, method or machine other than those the votes came from. A black box is known by its name
    only, so make sure that you give the same one.
    """
    explainer, source = as_explainer(explainer), votes.provenance
    Tuning(batch_size).check()
    clean, device = on_lattice(image, explainer)
    tuning = settle_as(source, explainer, device, batch_size)
    tuned = explainer.tuned(tuning)
    about = _about(explainer, device, tuning) | {"image": image_hash(clean), "image_name": source.image_name}
    now = Provenance(**about, target=source.target, surgery={**(source.surgery or {}), **tuned.surgery})
    if changed := source.differences(now):
        raise ArgumentError(f"these votes cannot be resumed: {'; '.join(changed)}. Sample again, or give the same.")
    if votes.complete:
        return votes
    counts, batches = (to_counts(votes, device),), list(source.batches or ())
    task = Task((votes.plan,), clean.to(device), now, counts, progress, votes.photo, batches, votes.counted > 0)
    done = next(count_each([task], tuned, tuning))[0]
    if votes.counted and (drawn := explainer.surgery.get(RANDOM)) != (source.surgery or {}).get(RANDOM):
        raise ArgumentError(
            f"these votes cannot be resumed: their explainer draws random numbers, now {drawn}, and before 0.2.0 the "
            f"same for every image. Sample again."
        )
    return done


def repeat(votes: Votes, explainer: Explains, image: Image, progress: Progress | None = None) -> Votes:
    """Sample votes again from the beginning, as they were sampled, as far as this machine can."""
    explainer, source = as_explainer(explainer), votes.provenance
    clean, device = on_lattice(image, explainer)
    tuning = settle_as(source, explainer, device, None)
    tuned = explainer.tuned(tuning)
    about = _about(explainer, device, tuning) | {"image": image_hash(clean), "image_name": source.image_name}
    now = Provenance(**about, target=source.target, surgery=tuned.surgery)
    counts = (Counts.none(votes.plan, votes.pixels, device),)
    task = Task((votes.plan,), clean.to(device), now, counts, progress, None)
    return next(count_each([task], tuned, tuning))[0]


def differences(
    votes: Votes, plan: Plan, explainer: Explainer, subject: Subject, tuning: Tuning = _UNTUNED
) -> list[str]:
    """List in words how `votes` differ from those that this plan, explainer and subject would give.

    A plan without a seed fits votes of any seed, and votes keep the streams that they were drawn from.
    """
    clean, device = on_lattice(subject.image, explainer)
    settled, _ = settle(explainer, replace(tuning, compile=False), device, clean.numel())
    about = _about(explainer, device, settled) | {"image": image_hash(clean), "image_name": subject.name}
    was, now = asdict(votes.plan), asdict(plan)
    unstated = {"streams", *(["seed"] if plan.seed is None else [])}
    drawn = [
        f"{name} was {was[name]}, now {now[name]}" for name in now if was[name] != now[name] and name not in unstated
    ]
    return drawn + votes.provenance.differences(Provenance(**about, target=int(subject.target)))


def _check_subject(subject: Subject, explainer: Explainer, plans: Sequence[Plan]) -> tuple[Tensor, int]:
    """Return the image as it is now, before the seed is drawn, and its target."""
    image = check_image(subject.image, explainer.model.channels).clone()
    for plan in plans:
        check_levels_fit(plan.levels, image.shape[1:].numel(), plan.rule)
    return image, check_target(subject.target, explainer.model.count_classes(*image.shape[1:]))


def on_lattice(image: Image, explainer: Explainer) -> tuple[Tensor, torch.device]:
    """Return an image on the lattice, still on the CPU, and the device of the explainer's model, else the image's."""
    checked = check_image(image, explainer.model.channels)
    return snap(checked.cpu()), explainer.model.device or checked.device


def _in_advance(tasks: Iterator[Task], device: torch.device) -> Iterator[Task]:
    """Make the next few tasks in another thread, and copy them to the GPU while it is at work."""
    aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def make() -> Task | None:
        with torch.cuda.stream(aside):
            task = next(tasks, None)
        aside.synchronize()
        return task

    with ThreadPoolExecutor(1) as thread:
        upcoming = deque(thread.submit(make) for _ in range(4))
        while (task := upcoming.popleft().result()) is not None:
            for tensor in (task.clean, *(counts.votes for counts in task.counts)):
                tensor.record_stream(torch.cuda.current_stream(device))  # keep the memory while that stream reads it
            upcoming.append(thread.submit(make))
            yield task


def _about(explainer: Explainer, device: torch.device, tuning: Tuning) -> dict[str, Any]:
    """Return the facts about explainer and machine that a provenance holds."""
    return {
        **describe(explainer),
        "class_names": {},  # the loop adds those that are answered
        "device": device_name(device),
        "processor": processor(device),
        "precision": tuning.precision,
        "compiled": tuning.compile is True,
        "batch_size": tuning.batch_size,
    }
