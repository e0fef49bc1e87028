"""Which classifier explains a grid: a mosaic of images, larger than those that the network was trained on."""

from __future__ import annotations

import warnings

import torch

from ..errors import ArgumentError, ModelError, PixelcertWarning
from .classifier import Classifier
from .sliding_head import fixed_pool, slide_head


def for_grid(model: Classifier, size: int) -> Classifier:
    """The classifier for grids of size × size; its own `size` says how large an image it takes.

    - A network that takes any size (global pooling): the same network.
    - One whose fully connected head has weights for each position (VGG, AlexNet): it slides over the features, and
      its logits are averaged. The parameters are those of `model`, not copies.
    - One that takes no other size (ViT): `model` itself, with a `size` other than the one asked for. Resize grids to it
      by `resize_image` before anything else.

    What a network takes is found by trying, once for each size.
    """
    if size < 1:
        raise ArgumentError(f"size={size} is not a number of pixels: use one such as {2 * model.size}.")
    return model.recall(("grid", size), lambda: _find(model, size))


def _find(model: Classifier, size: int) -> Classifier:
    if (error := _refusal(model)) is not None:
        raise ModelError(
            f"{model.name} cannot take images of {model.size} × {model.size}, said to be its own size ({error}): give "
            f"Classifier(…, size=SIDE) the side that it was made for."
        ) from error
    if size == model.size:
        return model
    sliding = _slide(model, size) if size > model.size else None
    larger = sliding or model.around(model.net, model.name, size, Classifier)
    return larger if _refusal(larger) is None else model


def _slide(model: Classifier, size: int) -> Classifier | None:
    """With its head sliding; None where it has no head of a fixed size, or a warning where that cannot slide."""
    pool = fixed_pool(model.net)
    if pool is None:
        return None
    net = slide_head(model.net, pool, model.normalise(_blank(model)))
    if net is None:
        warnings.warn(
            f"{model.name} has a head of a fixed size behind {pool!r} that cannot slide: features of larger images are "
            f"pooled to that size.",
            PixelcertWarning,
            stacklevel=7,
        )
        return None
    # Another name, because at this size it is another function than the plain network: their votes must not mix.
    return model.around(net, f"{model.name}, sliding head", size, Classifier)


def _refusal(model: Classifier) -> Exception | None:
    """What `model` says against an image of its size."""
    try:
        with torch.inference_mode():
            model(_blank(model))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, AssertionError, ValueError, IndexError) as error:  # shapes, assertions, tables of positions
        return error
    return None


def _blank(model: Classifier) -> torch.Tensor:
    return torch.zeros(1, model.channels, model.size, model.size, device=model.device)
