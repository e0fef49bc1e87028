"""The filter: which photographs do all filter models get right, with confidence?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ..digest import sha256
from ..errors import ArgumentError, ImageError
from ..models import Classifier
from .folder import Photograph
from .selection import Chosen, decode, read_file

DIGITS = 6  # of the confidences that are written down; the rest is rounding, which differs between machines


@dataclass(frozen=True)
class _Read:
    digest: str
    images: Mapping[int, Tensor]  # (3, size, size), by size


def check_filters(filters: Sequence[Classifier], photographs: Sequence[Photograph]) -> None:
    """Refuse models that cannot judge these photographs."""
    names = [model.name for model in filters]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ArgumentError(f"filters has {repeated[0]!r} twice: name them apart with Classifier(…, name=…).")
    highest = max(photographs, key=lambda photograph: -1 if photograph.target is None else photograph.target)
    for model in filters:
        if model.channels != 3:
            raise ArgumentError(
                f"filters has {model.name!r}, which takes {model.channels} channels: use models of RGB images."
            )
        if highest.target is not None and highest.target >= model.num_classes:
            raise ArgumentError(
                f"{highest.file} has the target {highest.target} and the filter {model.name!r} only "
                f"{model.num_classes} classes: use labels and filters of the same classes."
            )


def judge(
    photographs: Sequence[Photograph],
    folder: Path,
    filters: Sequence[Classifier],
    confidence: float,
    batch_size: int,
) -> Iterator[Chosen | ImageError | None]:
    """One verdict per photograph, in order: chosen, unreadable, or not good enough (None). Works a batch ahead."""
    sizes = {model.size for model in filters} or {224}  # any size shows whether a file can be read
    read = partial(_read, folder=folder, sizes=sizes)
    for start in range(0, len(photographs), batch_size):
        batch = photographs[start : start + batch_size]
        with ThreadPoolExecutor() as threads:  # Pillow lets others work while it decodes
            readings = list(threads.map(read, batch))
        yield from _judge_batch(batch, readings, filters, confidence)


def _judge_batch(
    batch: Sequence[Photograph],
    readings: Sequence[_Read | ImageError],
    filters: Sequence[Classifier],
    confidence: float,
) -> Iterator[Chosen | ImageError | None]:
    good = {i: reading for i, reading in enumerate(readings) if isinstance(reading, _Read)}
    targets = {i: batch[i].target for i in good}
    confidences: dict[int, dict[str, float]] = {i: {} for i in good}
    for model in filters:
        for i, (answer, sure) in _predict(model, {i: good[i].images[model.size] for i in targets}).items():
            if sure >= confidence and targets[i] in (None, answer):
                targets[i] = answer  # which the next filters have to agree on
                confidences[i][model.name] = round(sure, DIGITS)
            else:
                del targets[i]
    for i, (photograph, reading) in enumerate(zip(batch, readings, strict=True)):
        if isinstance(reading, ImageError):
            yield reading
        elif i in targets:
            labelled = photograph.target is not None
            yield Chosen(photograph.file, reading.digest, targets[i], labelled, confidences[i])
        else:
            yield None


def _predict(model: Classifier, images: Mapping[int, Tensor]) -> dict[int, tuple[int, float]]:
    """The class of every image (3, size, size), and the softmax confidence in it."""
    if not images:
        return {}
    with torch.inference_mode():
        confidences, classes = model(torch.stack(list(images.values())).to(model.device)).softmax(dim=1).max(dim=1)
    return dict(zip(images, zip(classes.tolist(), confidences.tolist(), strict=True), strict=True))


def _read(photograph: Photograph, folder: Path, sizes: set[int]) -> _Read | ImageError:
    try:
        data = read_file(folder, photograph.file)
        return _Read(sha256(data), {size: decode(data, photograph.file, size) for size in sizes})
    except ImageError as error:
        return error
