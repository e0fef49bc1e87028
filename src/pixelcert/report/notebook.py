"""Notebook: votes and certificates as small static HTML: a picture, the shares, and one sentence."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..certificate import Certificate
from ..figures.palette import level_colours, paint_labels
from ..votes import Votes

_SHOWN = 160  # pixels, the height of the row


def certificate_html(certificate: Certificate) -> str:
    """Show photograph and certified maps side by side, with the shares of each level and the promise."""
    votes, colours = certificate.votes, level_colours(certificate.levels)
    maps = [paint_labels(certificate.labels[level], colours[level]) for level in certificate.levels]
    names = "".join(f'<th scope="col">{text}</th>' for text in ("top K %", "robustly in", "robustly out", "abstain"))
    rows = "".join(
        f'<tr><th scope="row">{level} %</th>{"".join(f"<td>{s:.1f} %</td>" for s in certificate.shares(level))}</tr>'
        for level in certificate.levels
    )
    levels = ", ".join(f"{level} %" for level in certificate.levels)
    table = f"<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>"
    return _block(
        votes,
        maps,
        f"certified maps for K = {levels}",
        f"{table}<p>{escape(certificate.promise)} {escape(certificate.together)}</p>",
    )


def votes_html(votes: Votes) -> str:
    """Show photograph and smoothed maps side by side, and the number of counted samples."""
    maps = [1 - votes.smoothed(level) for level in votes.plan.levels]
    levels = ", ".join(f"{level} %" for level in votes.plan.levels)
    counted = f"{votes.counted} of {votes.plan.n} samples at σ = {votes.plan.sigma}"
    what = f"share of samples with each pixel in the top K %, for K = {levels}"
    return _block(votes, maps, what, f"<p>{escape(counted)}; dark: the {escape(what)}.</p>")


def _block(votes: Votes, maps: Sequence[NDArray[np.float64]], what: str, below: str) -> str:
    """Show a title, a row with photograph (if any) and `maps`, which share an alternative text, and the rest."""
    source = votes.provenance
    title = escape(f"{source.image_title}, {source.target_name}: {source.title}")
    photo = "" if votes.photo is None else _tag(votes.photo, "jpeg", "Photograph")
    shades = [np.rint(255 * each).astype(np.uint8) for each in maps]
    pictures = "".join(_tag(picture, "png", "" if index else what) for index, picture in enumerate(shades))
    return f"<div><p><b>{title}</b></p>{photo}{pictures}{below}</div>"


def _tag(picture: NDArray[np.uint8], kind: str, alt: str) -> str:
    image = Image.fromarray(picture)
    if kind == "png" and image.mode == "RGB":
        image = image.quantize(8)  # labels have three colours
    data = base64.b64encode(encode(image, kind)).decode()
    return f'<img alt="{escape(alt)}" height="{_SHOWN}" style="margin: 2px" src="data:image/{kind};base64,{data}">'


def encode(picture: Image.Image, kind: str) -> bytes:
    """Return a picture as a file of that kind."""
    buffer = io.BytesIO()
    picture.save(buffer, format=kind, optimize=True)
    return buffer.getvalue()
