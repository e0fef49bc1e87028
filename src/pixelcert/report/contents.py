"""Contents: the data of a page. Counts are packed; thresholds and radii are computed here, never in the browser.

The browser steps down Holm's thresholds with whole numbers from `statistics.steps`. So its labels equal those of
`Certificate` pixel for pixel, and no special function is written twice.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray
from PIL import Image

from .. import statistics
from ..basics.files import sha256
from ..basics.messages import ArgumentError
from ..certificate import confidence_in_words, promise_in_words, space_in_words, thresholds, together_in_words
from ..figures.palette import ABSTAINED, RADIUS_MAP, ZERO, Colour, level_colours
from ..plan import Criterion
from ..votes import Votes, count_type
from .entries import Chunks, choices_of, facts_of
from .notebook import encode

TAUS = tuple(percent / 100 for percent in range(51, 100))  # on the slider, besides those asked for
ALWAYS_SHOWN = 4  # lists that a page shows even with one value: image, model, method, layer


class Index:
    """The small part that a page needs from the start: names, tests, and the names of the chunks."""

    def __init__(self, chunks: Chunks, taus: Sequence[float], criterion: Criterion) -> None:
        self._chunks, self._criterion = chunks, criterion
        self._taus = sorted({*TAUS, *taus})
        self._tests: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._photos: dict[str, str] = {}
        self._images: dict[tuple[str, tuple[int, int]], int] = {}
        self._entries: list[dict[str, Any]] = []
        self._choices: list[dict[str, str]] = []
        self._alike: Counter[tuple[Any, ...]] = Counter()

    def add(self, votes: Votes, levels: Sequence[float] | None = None) -> None:
        """Add votes; their counts and photograph become chunks. Votes with equal choices are numbered."""
        votes.require_complete()
        photo = None if votes.photo is None else self._find_photo(votes.photo)
        counts = self._chunks.add("counts", pack(votes, levels))
        image = self._images.setdefault((votes.provenance.image, votes.size), len(self._images))
        self._entries.append({"image": image, "test": self._find_test(votes), "counts": counts, "photo": photo})
        choices = choices_of(votes)
        self._alike[key := (image, *choices.values())] += 1
        self._choices.append({**choices, "Number": str(self._alike[key])})

    def content(self) -> dict[str, Any]:
        """Return everything added, as the page reads it."""
        if not self._entries:
            raise ArgumentError(
                "there are no votes to show: give votes files that `certify` wrote, or a study that has run."
            )
        facets, chosen = _facets(self._with_own_image_names())
        entries = [{**entry, "choices": values} for entry, values in zip(self._entries, chosen, strict=True)]
        return {"facets": facets, "entries": entries, "tests": list(self._tests.values()), "palette": palette()}

    def _with_own_image_names(self) -> list[dict[str, str]]:
        """Return choices in which images of one name that differ in digest or size have names of their own."""
        about = [f"{height} × {width}, {digest[:12]}" for digest, (height, width) in self._images]
        named = [(choice["Image"], entry["image"]) for choice, entry in zip(self._choices, self._entries, strict=True)]
        shared = Counter(name for name, _ in set(named))
        return [
            {**choice, "Image": f"{name} ({about[image]})"} if shared[name] > 1 else choice
            for choice, (name, image) in zip(self._choices, named, strict=True)
        ]

    def _find_photo(self, photo: NDArray[np.uint8]) -> str:
        """Return a photograph's chunk. Each is encoded once, because that takes longer than all else."""
        key = sha256(str(photo.shape).encode(), photo.tobytes())
        if key not in self._photos:
            self._photos[key] = self._chunks.add("photo", encode(Image.fromarray(photo), "png"))
        return self._photos[key]

    def _find_test(self, votes: Votes) -> int:
        """Return the number of the votes' test. Votes of one plan and size share it, because it depends on no count."""
        plan, counted = votes.plan, votes.predictions is not None
        key = (plan.sigma, plan.n, plan.guess, votes.size, votes.channels, counted)
        if key not in self._tests:
            self._tests[key] = make_test(votes, self._taus, self._criterion.for_plan(plan))
        return list(self._tests).index(key)


# ── Tests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def make_test(votes: Votes, taus: Sequence[float], criterion: Criterion) -> dict[str, Any]:
    """Return all that is needed to certify votes of this kind at any of `taus`."""
    plan, alpha, correction = votes.plan, criterion.alpha, criterion.correction
    together = together_in_words(criterion, len(plan.levels))
    by_count = statistics.radius_by_count(plan.n, plan.sigma, alpha, votes.pixels)
    return {
        "n": plan.n,
        "sigma": plan.sigma,
        "guess": plan.guess if correction == "reference" else 0,
        "tested": statistics.tested_samples(plan, criterion),
        "alpha": alpha,
        "correction": correction,
        "promise": " ".join(filter(None, (promise_in_words(votes, criterion, "{R}"), together))),
        "radiusPromise": f"With confidence {confidence_in_words(alpha)}, for each level apart: every pixel keeps its "
        f"majority label under every change below its own radius in ℓ2 of the image's {space_in_words(votes)}, for all "
        f"pixels and all τ at once.",
        "values": votes.channels * votes.pixels,
        "radii": statistics.certified_radius(by_count, votes.pixels, votes.channels).tolist(),
        "taus": [_at_tau(votes, replace(criterion, tau=tau)) for tau in taus],
    }


def _at_tau(votes: Votes, criterion: Criterion) -> dict[str, Any]:
    """Return the test at one τ, or the fewest samples that reach it."""
    tau = criterion.tau
    if fewest := statistics.fewest_samples(votes.plan, criterion, votes.pixels):
        return {"tau": tau, "fewest": fewest}
    steps, prediction = thresholds(votes, criterion)
    return {"tau": tau, "radius": votes.radius_at(tau), "steps": steps, "prediction": prediction}


# ── Choices ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _facets(choices: Sequence[dict[str, str]]) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """Return the lists to choose from, and for each entry its place in them.

    A list is shown if it separates entries that the lists before it do not.
    """
    facets: list[dict[str, Any]] = []
    chosen, told_apart = [list[int]() for _ in choices], 1
    for name in choices[0]:
        place = {value: index for index, value in enumerate(dict.fromkeys(choice[name] for choice in choices))}
        for choice, places in zip(choices, chosen, strict=True):
            places.append(place[choice[name]])
        before, told_apart = told_apart, len(set(map(tuple, chosen)))
        shown = told_apart > before or len(facets) < ALWAYS_SHOWN
        facets.append({"name": name, "values": list(place), "shown": shown})
    return facets, chosen


# ── Counts and pictures ───────────────────────────────────────────────────────────────────────────────────────────


def pack(votes: Votes, levels: Sequence[float] | None = None) -> bytes:
    """Compress counts and facts of votes: a line of JSON, then the planes, low level first.

    The planes are `ones` of every level, then the samples in which a pixel was neither one nor zero, then `guess_ones`
    if labels are guessed. They are stored as differences from pixel to pixel, because neighbours are alike.
    """
    ordered = sorted(votes.plan.levels if levels is None else levels)
    rows = [votes.index(level) for level in ordered]
    planes = [votes.ones[rows], votes.plan.n - votes.ones[rows] - votes.zeros[rows]]
    if votes.guess_ones is not None:
        planes.append(votes.guess_ones[rows])
    kind = count_type(votes.plan.n).newbyteorder("<")
    colours = level_colours(ordered)
    answer = None
    if votes.predictions is not None:
        most = int(votes.predictions.argmax())
        answer = {"name": votes.provenance.class_name(most), "votes": int(votes.predictions[most])}
    header = {
        "size": votes.size,
        "bytes": kind.itemsize,
        "levels": ordered,
        "colours": [_bytes_of(colours[level]) for level in ordered],
        "target": votes.provenance.target_name,
        "answer": answer,
        "facts": facts_of(votes),
    }
    flat = np.stack(planes).astype(kind).reshape(-1)
    differences = np.diff(flat, prepend=flat.dtype.type(0))  # wraps around, and so does the sum that undoes it
    return zlib.compress(json.dumps(header).encode() + b"\n" + differences.astype(kind).tobytes(), 6)


def palette() -> dict[str, Any]:
    """Return the figures' colours as bytes."""
    shades = colormaps[RADIUS_MAP](np.arange(256), bytes=True)[:, :3]
    return {"zero": _bytes_of(ZERO), "abstained": _bytes_of(ABSTAINED), "radius": shades.tolist()}


def _bytes_of(colour: Colour) -> list[int]:
    return [round(255 * part) for part in colour]
