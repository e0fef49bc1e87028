"""Choosing: photographs and grids drawn at random among those that the filter models get right with confidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ..basics.files import sha256
from ..basics.locks import one_at_a_time
from ..basics.messages import ArgumentError, ImageError, Progress, check_seed, check_share, check_whole
from ..models import Classifier
from .folder import Photograph, locate
from .selection import Chosen, Grid, Purpose, Request, Seats, Selection, decode, drawn, read_file, shuffled, stream

DIGITS = 6  # of the confidences that are written down; further digits differ between machines


def choose(
    photographs: Sequence[Photograph],
    folder: str | Path,
    *,
    filters: Sequence[Classifier] = (),
    confidence: float = 0.99,
    images: int | None = None,
    grids: int = 0,
    m: int = 2,
    seed: int = 0,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> Selection:
    """Choose the images and grids of a study.

    A photograph passes if every filter predicts its target with a softmax confidence of at least `confidence`. If it
    has no target, all filters must agree on one class with that confidence. Without filters, every readable photograph
    passes. Unreadable files are left out and listed.

    Only the seed decides the order of the photographs (sorted by file, then shuffled by NumPy's PCG64). Images are the
    first ones that pass. Grids take photographs from the same stream and use one again only when no others fit. So
    images do not depend on grids, nor grids on images, and asking for more of either keeps the first ones. The batch
    size matters only if a confidence is within rounding of the threshold.

    Args:
        photographs: what to choose from, as `find_photographs` lists it.
        folder: where the files are, or "embedded".
        filters: models that have to get a photograph right.
        images: the number of images; None for all that pass.
        grids: the number of grids of m × m photographs of distinct classes; the cell to be explained is drawn at
            random.
        batch_size: how many photographs are read and classified at once.
        progress: called after every photograph with (passed, wanted), or with (examined, all) if images is None.
    """
    request = Request(
        seed=check_seed(seed),
        confidence=check_share("confidence", confidence, example=0.99),
        images=None if images is None else check_whole("images", images),
        grids=check_whole("grids", grids),
        m=check_whole("m", m, 1, example=2),
        filters={model.name: model.weights_hash for model in filters},
    )
    images, batch_size = request.images, check_whole("batch_size", batch_size, 1, example=32)
    _check_photographs(request, photographs)
    _check_filters(filters, photographs)
    ordered = sorted(photographs, key=lambda photograph: photograph.file)
    order = [ordered[number] for number in shuffled(stream(request.seed, Purpose.ORDER), len(ordered))]
    unreadable: dict[str, str] = {}
    pool: list[Chosen] = []
    seats = Seats(request.grids, request.m)
    wanted = len(order) if images is None else max(images, request.grids * request.m**2)
    for examined, verdict in enumerate(_judge(order, locate(folder), filters, request.confidence, batch_size), 1):
        if isinstance(verdict, ImageError):
            unreadable[order[examined - 1].file] = str(verdict)
        elif verdict is not None:
            pool.append(verdict)
            if verdict.target is not None:
                seats.add(verdict.target)
        if progress is not None:
            progress(min(examined if images is None else len(pool), wanted), wanted)
        if images is not None and len(pool) >= images and seats.full:
            break
    _check_enough(request, len(pool), examined, len(unreadable), seats)
    seats.fill(stream(request.seed, Purpose.REUSE))
    return _pack(request, pool, seats.cells(), examined, unreadable)


def _judge(
    photographs: Sequence[Photograph], folder: Path, filters: Sequence[Classifier], confidence: float, batch_size: int
) -> Iterator[Chosen | ImageError | None]:
    """Yield one verdict per photograph, in order: chosen, unreadable, or not good enough (None)."""
    sizes = {model.size for model in filters} or {1}  # any size shows whether a file can be read
    read = partial(_read, folder=folder, sizes=sizes)
    for start in range(0, len(photographs), batch_size):
        with ThreadPoolExecutor() as threads:  # Pillow lets other threads work while it decodes
            readings = list(threads.map(read, photographs[start : start + batch_size]))
        passing = [reading for reading in readings if not isinstance(reading, ImageError)]
        for model in filters:
            passing = list(_filtered(passing, model, confidence)) if passing else []
        passed = {chosen.file: chosen for chosen, _ in passing}
        yield from (one if isinstance(one, ImageError) else passed.get(one[0].file) for one in readings)


Images = Mapping[int, Tensor]  # one photograph as (3, size, size), by size


def _read(photograph: Photograph, folder: Path, sizes: set[int]) -> tuple[Chosen, Images] | ImageError:
    try:
        data = read_file(folder, photograph.file)
        images = {size: decode(data, photograph.file, size) for size in sizes}
    except ImageError as error:
        return error
    return Chosen(photograph.file, sha256(data), photograph.target, photograph.target is not None, {}), images


def _filtered(
    candidates: list[tuple[Chosen, Images]], model: Classifier, confidence: float
) -> Iterator[tuple[Chosen, Images]]:
    """Yield the candidates that the model gets right, with its class as their target and its confidence."""
    batch = torch.stack([images[model.size] for _, images in candidates])
    with one_at_a_time, torch.inference_mode():
        confidences, classes = model(batch.to(model.device)).softmax(dim=1).max(dim=1)
    for (chosen, images), sure, answer in zip(candidates, confidences.tolist(), classes.tolist(), strict=True):
        if sure >= confidence and chosen.target in (None, answer):
            confident = {**chosen.confidences, model.name: round(sure, DIGITS)}
            yield replace(chosen, target=answer, confidences=confident), images


def _pack(
    request: Request, pool: list[Chosen], cells: list[tuple[int, ...]], examined: int, unreadable: dict[str, str]
) -> Selection:
    """Leave out the photographs that passed but are in no image or grid, and number the others."""
    images = len(pool) if request.images is None else request.images
    used = sorted({*range(images), *(number for grid in cells for number in grid)})
    place = {number: position for position, number in enumerate(used)}
    targets = drawn(stream(request.seed, Purpose.CELLS), len(cells), request.m**2)
    grids = tuple(
        Grid(tuple(place[number] for number in grid), cell) for grid, cell in zip(cells, targets, strict=True)
    )
    return Selection(request, tuple(pool[number] for number in used), images, grids, examined, len(pool), unreadable)


def _check_photographs(request: Request, photographs: Sequence[Photograph]) -> None:
    """Refuse a request that these photographs cannot meet even if all of them pass."""
    if not photographs:
        raise ArgumentError("photographs is empty: find_photographs(folder) lists those of a folder.")
    file, times = Counter(photograph.file for photograph in photographs).most_common(1)[0]
    if times > 1:
        raise ArgumentError(f"photographs has {file} {times} times: list every file once.")
    images, grids, cells = request.images, request.grids, request.m**2
    if images == grids == 0:
        raise ArgumentError("images=0 and grids=0 choose nothing: ask for at least one image or grid.")
    if images is not None and images > len(photographs):
        raise ArgumentError(f"images={images} of {len(photographs)} photographs: ask for fewer, or give more.")
    targets = {photograph.target for photograph in photographs}
    if grids and None in targets and not request.filters:
        raise ArgumentError(
            f"grids={grids} need distinct classes, and not every photograph has a target: give labels, or filters that "
            f"predict the classes."
        )
    if grids and None not in targets and len(targets) < cells:
        raise ArgumentError(
            f"grids={grids} with m={request.m} need {cells} distinct classes, and the photographs have {len(targets)}: "
            f"use a smaller m, or photographs of more classes."
        )


def _check_filters(filters: Sequence[Classifier], photographs: Sequence[Photograph]) -> None:
    """Refuse models that cannot judge these photographs."""
    name, times = Counter(model.name for model in filters).most_common(1)[0] if filters else ("", 0)
    if times > 1:
        raise ArgumentError(f"filters has {name!r} {times} times: give each its own name by Classifier(…, name=…).")
    for model in filters:
        if model.channels != 3:
            raise ArgumentError(f"filters: {model.name!r} takes {model.channels} channels: use models of RGB images.")
        if beyond := [one for one in photographs if one.target is not None and one.target >= model.num_classes]:
            raise ArgumentError(
                f"{beyond[0].file} has the target {beyond[0].target} and the filter {model.name!r} only "
                f"{model.num_classes} classes: use labels and filters of the same classes."
            )


def _check_enough(request: Request, passed: int, examined: int, unreadable: int, seats: Seats) -> None:
    """Refuse a selection with fewer images, or fewer classes for grids, than the request needs."""
    names = " and ".join(request.filters)
    test = f"pass, with confidence {request.confidence} in the right class by {names}" if names else "pass"
    found = f"{passed} of {examined} photographs {test}" + (f" ({unreadable} cannot be read)" if unreadable else "")
    remedy = "lower confidence, use other filters" if names else "repair files"
    if passed < (1 if request.images is None else request.images):
        raise ArgumentError(
            f"images={request.images}: only {found}: {remedy}, ask for fewer images, or give more photographs."
        )
    if request.grids and seats.classes < request.m**2:
        raise ArgumentError(
            f"grids={request.grids} with m={request.m} need {request.m**2} distinct classes: only {found}, of "
            f"{seats.classes} classes: {remedy}, use a smaller m, or give more photographs."
        )
