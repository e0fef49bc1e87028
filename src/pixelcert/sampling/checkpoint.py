"""Checkpoint: votes in files, named and checked before sampling, found, continued, and saved as they are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..basics.messages import ArgumentError, VotesFileError
from ..explainer import Explainer, Tuning, class_names, describe
from ..image import image_hash, load_image, to_photo
from ..methods import METHODS, Method, check_method, method
from ..models import Classifier
from ..noise import snap
from ..plan import Plan
from ..votes import Provenance, Votes
from .sample import Image, Interrupted, SamplingError, Subject, differences, on_lattice, resume, sample_plans


class Place(NamedTuple):
    """The files of a subject's votes: one for whole votes, one for partial votes after an interruption."""

    whole: Path
    partial: Path

    @classmethod
    def of(cls, file: Path) -> Place:
        """Return the place of `file`, with partial votes beside it."""
        return cls(file, file.with_suffix(".partial.safetensors"))

    def save(self, votes: Votes) -> None:
        """Write votes to the whole or the partial file; whole votes also remove the partial file."""
        votes.save(self.whole if votes.complete else self.partial)
        if votes.complete:
            self.partial.unlink(missing_ok=True)


def sample_into(
    places: Sequence[Sequence[Place]],  # of each subject, one for each plan
    plans: Sequence[Plan],
    explainer: Explainer,
    subjects: Sequence[Subject],
    found: Sequence[Votes | None],
    tuning: Tuning,
) -> Iterator[tuple[Votes, ...]]:
    """Yield every subject's votes, saved in its places: started ones are resumed, new ones share batches.

    After an interruption or a failure it saves partial votes, and then raises the exception again.
    """
    fresh = [subject for subject, votes in zip(subjects, found, strict=True) if votes is None]
    sampled = sample_plans(plans, explainer, fresh, tuning)
    for own, subject, votes in zip(places, subjects, found, strict=True):
        try:
            if votes is None:
                done = next(sampled)
            else:
                size, progress = tuning.batch_size, subject.progress
                done = (resume(votes, explainer, subject.image, batch_size=size, progress=progress),)
        except (Interrupted, SamplingError) as stop:
            for place, part in zip(own, stop.all_votes, strict=True):
                place.save(part)
            raise
        for place, one in zip(own, done, strict=True):
            place.save(one)
        yield done


def find_votes(
    place: Place, plan: Plan, explainer: Explainer, subject: Subject, tuning: Tuning, overwrite: bool
) -> Votes | None:
    """Return earlier votes with the same settings, if there are any; refuse other votes unless `overwrite` is set."""
    found = None
    for path in filter(Path.exists, place):
        try:
            votes = Votes.load(path)
        except VotesFileError:
            if not overwrite:
                raise
            continue
        if not (changed := differences(votes, plan, explainer, subject, tuning)):
            found = found or votes
        elif not overwrite:
            remedy = "give the same settings, another --out, or --overwrite"
            raise ArgumentError(f"{path} holds votes of another run ({'; '.join(changed)}): {remedy}.")
    return found


# ── What votes are about ──────────────────────────────────────────────────────────────────────────────────────────────


def explainer_of(source: Provenance, load: Callable[[], Classifier]) -> Method:
    """Make the method that a provenance names, at its layer, on the model that `load` returns."""
    if source.method not in METHODS:
        raise ArgumentError(
            f"{source.method} is not one of `pixelcert methods`, so this command cannot make it: use Python, with "
            f"pixelcert.verify(votes, explainer, image) or pixelcert.attack(votes, explainer, image)."
        )
    check_method(source.method, source.params)
    return method(source.method, load(), source.layer, **source.params)


def check_same(votes: Votes, explainer: Explainer, image: Image) -> Tensor:
    """Return `image` on the lattice and the explainer's device; refuse another image or explainer than the votes'."""
    source, (clean, device) = votes.provenance, on_lattice(image, explainer)
    now = replace(source, **describe(explainer), image=image_hash(clean))  # on any machine
    if changed := source.differences(now):
        raise ArgumentError(
            f"these votes are about something else: {'; '.join(changed)}. Give the model, weights, method and image "
            f"that they were sampled with."
        )
    shown, names = to_photo(clean), class_names(explainer, map(int, source.class_names))
    same_photo = votes.photo is None or (shown is not None and np.array_equal(votes.photo, shown))
    if votes.channels != len(clean) or not same_photo:
        raise ArgumentError("the votes hold a picture, or a number of channels, that is not the image's: trust none.")
    if names and names != dict(source.class_names):
        raise ArgumentError(f"the votes name classes {dict(source.class_names)}, and the model {names}: trust none.")
    return clean.to(device)


def image_of(votes: Votes, files: Sequence[Path] = ()) -> Tensor:
    """Return exactly the image that was certified: one of the files, or the picture in the votes if that is exact."""
    given = [load_image(file, votes.size[0]) for file in files]
    stored = [] if votes.photo is None else [torch.from_numpy(votes.photo.astype("float32") / 255).permute(2, 0, 1)]
    for image in (*given, *stored):
        if image_hash(snap(image)) == votes.provenance.image:
            return image
    name = votes.provenance.image_name or "the image"
    raise ArgumentError(f"the votes hold only a rounded picture of {name}: give the file with --image.")
