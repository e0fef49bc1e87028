"""Faithfulness: the fall of a model's confidence as pixels certified important are deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..basics.locks import one_at_a_time
from ..basics.messages import ArgumentError, check_logits, check_share, check_target
from ..basics.training import refuse_training
from ..explainer import as_model
from ..image import check_image


class DeletionCurve(NamedTuple):
    """The confidence in the target as pixels are deleted; the first point is the untouched image."""

    deleted: NDArray[np.float64]  # (steps + 1,), percent of the image's pixels
    confidence: NDArray[np.float64]  # (steps + 1,), softmax, in [0, 1]

    @property
    def area(self) -> float:
        """Mean confidence along the curve, in [0, 1]: low if the deleted pixels mattered.

        This is the trapezoid rule over the steps, which are one unit wide together. Every step weighs the same however
        many pixels it deletes, as in the paper's plots. Where maps certify different numbers of pixels, `order_masks`
        makes equal steps.

        >>> DeletionCurve(np.array([0.0, 5.0, 50.0]), np.array([1.0, 0.5, 0.25])).area
        0.5625
        """
        return float((self.confidence[:-1] + self.confidence[1:]).mean() / 2)


def deletion_curve(
    model: Callable[[Tensor], Tensor],
    image: Tensor | NDArray[np.floating],
    target: int,
    masks: NDArray[np.bool_],
    *,
    fill: float = 0.0,
) -> DeletionCurve:
    """Return the model's confidence in `target` after each deletion, the untouched image first.

    Args:
        model: a function from images (B, C, H, W) in pixel space to logits (B, classes). The image moves to the
            model's `device`, if it has one; all steps run as one batch.
        image: (C, H, W) in [0, 1].
        masks: (steps, H, W), the pixels that are gone at each step, in all channels; see `deletion_masks` and
            `order_masks`.
        fill: the value of deleted pixels, in [0, 1].

    >>> import torch
    >>> model = lambda images: torch.stack([images.sum(dim=(1, 2, 3)), torch.zeros(len(images))], dim=1)
    >>> curve = deletion_curve(model, torch.ones(1, 1, 4), 0, np.array([[[1, 1, 0, 0]], [[1, 1, 1, 1]]], bool))
    >>> curve.deleted.tolist(), curve.confidence.round(2).tolist()
    ([0.0, 50.0, 100.0], [0.98, 0.88, 0.5])
    """
    refuse_training(model)
    known = as_model(model)
    pixels = check_image(image, known.channels).float()
    masks, (height, width) = np.asarray(masks), pixels.shape[1:]
    if masks.dtype != np.bool_ or masks.ndim != 3 or masks.shape[1:] != (height, width) or not len(masks):
        raise ArgumentError(
            f"masks is {masks.dtype} of shape {masks.shape} for an image of {height} × {width}: give booleans "
            f"(steps, {height}, {width}) with at least one step."
        )
    steps = np.concatenate([np.zeros((1, height, width), dtype=np.bool_), masks])
    fill = check_share("fill", fill, example=0)
    device = known.device or pixels.device
    with one_at_a_time, torch.inference_mode():
        gone = torch.from_numpy(steps).to(device)[:, None]
        logits = model(torch.where(gone, fill, pixels.to(device)))
        check_logits(logits, len(steps), "model")
        confidence = logits.cpu().double().softmax(dim=1)  # not every accelerator has doubles
        of_target = confidence[:, check_target(target, logits.shape[1])]
    return DeletionCurve(100 * steps.mean(axis=(1, 2)), of_target.numpy())
