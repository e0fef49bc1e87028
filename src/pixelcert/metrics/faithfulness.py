"""Deletion: does the model's confidence fall once the pixels that are certified important are gone?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..basics.messages import ArgumentError
from .robustness import check_labels

if TYPE_CHECKING:
    from torch import Tensor


class DeletionCurve(NamedTuple):
    """The confidence in the target as pixels are deleted; the first point is the untouched image."""

    deleted: NDArray[np.float64]  # (steps + 1,), percent of the image's pixels
    confidence: NDArray[np.float64]  # (steps + 1,), softmax, in [0, 1]

    @property
    def area(self) -> float:
        """Mean confidence along the curve, in [0, 1]: low means that what is deleted mattered.

        The trapezoid rule over the steps, which are one unit wide together. Every step weighs the same however many
        pixels it deletes, as in the paper's plots; where maps certify different numbers of pixels, `order_masks` makes
        equal steps.

        >>> DeletionCurve(np.array([0.0, 5.0, 50.0]), np.array([1.0, 0.5, 0.25])).area
        0.5625
        """
        return float((self.confidence[:-1] + self.confidence[1:]).mean() / 2)


def deletion_masks(labels: Mapping[float, ArrayLike]) -> NDArray[np.bool_]:
    """What to delete, step by step: (levels, H, W), from the smallest K up.

    `labels` maps each K to its labels (H, W). A step holds the pixels certified 1 at its own K and at every smaller
    one, so nothing that was deleted comes back where a larger K abstains.

    >>> deletion_masks({50: [[1, -1, 1]], 10: [[-1, 1, 0]]}).astype(int)
    array([[[0, 1, 0]],
    <BLANKLINE>
           [[1, 1, 1]]])
    """
    if not labels:
        raise ArgumentError("labels is empty: give the labels of at least one level, such as certificate.labels.")
    steps = [check_labels(labels[level], f"labels[{level}]") == 1 for level in sorted(labels)]
    if len(shapes := {step.shape for step in steps}) > 1:
        raise ArgumentError(f"labels has maps of shapes {sorted(shapes)}: give the levels of one image.")
    return np.logical_or.accumulate(np.stack(steps))


def order_masks(order: ArrayLike, size: tuple[int, int], percents: Sequence[float]) -> NDArray[np.bool_]:
    """What to delete if each step takes a given percentage of the image: (percents, H, W).

    The first ⌊p N / 100⌋ pixels of `order` (flat indices into `size`, (H, W)), where N is the number of all pixels
    of the image; all of `order` if it is shorter.

    >>> order_masks([2, 0, 1], (1, 4), (25, 50, 100)).astype(int)
    array([[[0, 0, 1, 0]],
    <BLANKLINE>
           [[1, 0, 1, 0]],
    <BLANKLINE>
           [[1, 1, 1, 0]]])
    """
    height, width = size
    if height < 1 or width < 1:
        raise ArgumentError(f"size={size} holds no pixels: give the image's (H, W).")
    indices = _check_order(np.asarray(order), height * width)
    for percent in percents:
        if not 0 <= percent <= 100:
            raise ArgumentError(f"percents holds {percent}: every step deletes from 0 to 100 percent of the image.")
    masks = np.zeros((len(percents), height * width), dtype=np.bool_)
    for mask, percent in zip(masks, percents, strict=True):
        mask[indices[: math.floor(Fraction(str(percent)) * height * width / 100)]] = True
    return masks.reshape(len(percents), height, width)


def deletion_curve(
    model: Callable[[Tensor], Tensor],
    image: Tensor | NDArray[np.floating],
    target: int,
    masks: NDArray[np.bool_],
    *,
    fill: float = 0.0,
) -> DeletionCurve:
    """The model's confidence in `target` after each deletion, the untouched image first.

    Args:
        model: from images (B, C, H, W) in pixel space to logits (B, classes). The image goes to its `device`, if it
            has one; everything runs as one batch.
        image: (C, H, W) in [0, 1].
        masks: (steps, H, W), the pixels that are gone at each step, in all channels; see `deletion_masks` and
            `order_masks`.
        fill: what deleted pixels become, in [0, 1].

    >>> import torch
    >>> model = lambda images: torch.stack([images.sum(dim=(1, 2, 3)), torch.zeros(len(images))], dim=1)
    >>> curve = deletion_curve(model, torch.ones(1, 1, 4), 0, order_masks([0, 1, 2, 3], (1, 4), (50, 100)))
    >>> curve.deleted.tolist(), curve.confidence.round(2).tolist()
    ([0.0, 50.0, 100.0], [0.98, 0.88, 0.5])
    """
    import torch  # here, so that reading a certificate's shares does not wait for it

    from ..image import check_image

    pixels = check_image(image, getattr(model, "channels", None))
    steps = _check_masks(masks, pixels.shape[1], pixels.shape[2])
    if not 0 <= fill <= 1:
        raise ArgumentError(f"fill={fill} is no pixel value: use one in [0, 1], such as 0 for black.")
    if getattr(model, "training", False):
        raise ArgumentError("model is in training mode, where images of a batch mix: call model.eval().")

    pixels = pixels.float().to(getattr(model, "device", pixels.device))
    with torch.inference_mode():
        gone = torch.from_numpy(steps).to(pixels.device)[:, None]
        logits = model(torch.where(gone, fill, pixels))
        _check_answer(logits, len(steps), target)
        confidence = logits.cpu().double().softmax(dim=1)[:, target]  # not every accelerator has doubles
    return DeletionCurve(100 * steps.mean(axis=(1, 2)), confidence.numpy())


def _check_order(order: NDArray[Any], pixels: int) -> NDArray[np.int64]:
    if order.size == 0:  # nothing is certified: an empty list has no integer type
        return np.zeros(0, dtype=np.int64)
    if order.ndim != 1 or not np.issubdtype(order.dtype, np.integer):
        raise ArgumentError(f"order is {order.dtype} of shape {order.shape}: give flat pixel indices as integers (P,).")
    if order.min() < 0 or order.max() >= pixels:
        raise ArgumentError(f"order holds indices from {order.min()} to {order.max()}: size has 0 to {pixels - 1}.")
    if len(np.unique(order)) < len(order):
        raise ArgumentError("order names a pixel twice: name each pixel once.")
    return order.astype(np.int64)


def _check_masks(masks: NDArray[np.bool_], height: int, width: int) -> NDArray[np.bool_]:
    """`masks` behind an empty one, for the untouched image: (steps + 1, H, W)."""
    masks = np.asarray(masks)
    if masks.dtype != np.bool_ or masks.shape != (len(masks), height, width) or len(masks) == 0:
        raise ArgumentError(
            f"masks is {masks.dtype} of shape {masks.shape} for an image of {height} × {width}: give booleans "
            f"(steps, {height}, {width}) with at least one step."
        )
    return np.concatenate([np.zeros((1, height, width), dtype=np.bool_), masks])


def _check_answer(logits: Any, images: int, target: int) -> None:
    shape = tuple(getattr(logits, "shape", ()))
    if len(shape) != 2 or shape[0] != images:
        what = shape or type(logits).__name__
        raise ArgumentError(f"model returned {what} for {images} images: return logits ({images}, classes).")
    if isinstance(target, bool) or int(target) != target or not 0 <= target < shape[1]:
        raise ArgumentError(f"target={target!r} is no class of the model: use a whole number from 0 to {shape[1] - 1}.")
