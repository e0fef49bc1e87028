"""What a notebook shows of votes and certificates: a picture, the shares, and one sentence. Static and small."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..certificate import Certificate
from ..figures.sheet import level_colours, paint_labels
from ..votes import Votes

_SHOWN = 160  # pixels, the height of the row


def certificate_html(certificate: Certificate) -> str:
    """Photograph and certified maps side by side, with the shares of each level and the promise."""
    votes, colours = certificate.votes, level_colours(certificate.levels)
    maps = [_to_bytes(paint_labels(certificate.labels[level], colours[level])) for level in certificate.levels]
    names = "".join(f'<th scope="col">{text}</th>' for text in ("top K %", "robustly in", "robustly out", "abstain"))
    rows = "".join(
        f'<tr><th scope="row">{level} %</th>{"".join(f"<td>{s:.1f} %</td>" for s in certificate.shares(level))}</tr>'
        for level in certificate.levels
    )
    levels = ", ".join(f"{level} %" for level in certificate.levels)
    return (
        f"<div><p><b>{_title(votes)}</b></p>{_pictures(votes, maps, f'certified maps for K = {levels}')}"
        f"<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table><p>{escape(certificate.promise)}</p></div>"
    )


def votes_html(votes: Votes) -> str:
    """Photograph and smoothed maps side by side, and how many samples are counted."""
    maps = [_to_bytes(1 - votes.smoothed(level)) for level in votes.plan.levels]
    levels = ", ".join(f"{level} %" for level in votes.plan.levels)
    counted = f"{votes.counted} of {votes.plan.n} samples at σ = {votes.plan.sigma:g}"
    what = f"share of samples with each pixel in the top K %, for K = {levels}"
    return (
        f"<div><p><b>{_title(votes)}</b></p>{_pictures(votes, maps, what)}"
        f"<p>{escape(counted)}; dark: the {escape(what)}.</p></div>"
    )


def _title(votes: Votes) -> str:
    source = votes.provenance
    name, target = source.image_name or "image", source.target_name
    return escape(f"{name}, {target}: {source.method} at {source.layer} of {source.model or 'a model'}")


def _to_bytes(picture: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.rint(255 * picture).astype(np.uint8)


def _pictures(votes: Votes, maps: Sequence[NDArray[np.uint8]], what: str) -> str:
    """The photograph, if there is one, and `maps` in one row, with their alternative in words."""
    photo = "" if votes.photo is None else _tag(_encode(votes.photo, "JPEG"), "jpeg", "Photograph")
    first, *others = maps
    texts = [what, *("" for _ in others)]  # one alternative for all of them, read once
    return photo + "".join(
        _tag(_encode(picture, "PNG"), "png", text) for picture, text in zip((first, *others), texts, strict=True)
    )


def _encode(picture: NDArray[np.uint8], kind: str) -> str:
    buffer = io.BytesIO()
    image = Image.fromarray(picture)
    if kind == "PNG" and image.mode == "RGB":
        image = image.quantize(8)  # labels have three colours
    image.save(buffer, format=kind, optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def _tag(data: str, kind: str, alt: str) -> str:
    return f'<img alt="{escape(alt)}" height="{_SHOWN}" style="margin: 2px" src="data:image/{kind};base64,{data}">'
