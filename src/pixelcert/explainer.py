"""What an explainer is, and how whatever it answers becomes one checked map per image.

An explainer is any callable ``(images (B, C, H, W), targets (B,)) → maps``. It must be deterministic, and each map must
depend on its own image alone: not on the rest of the batch, not on the clean image. One that also has a method
``explain`` returning an `Explanation` may add the model's logits, so that the prediction can be certified by the same
noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from .basics.machine import tf32_allowed
from .basics.messages import ArgumentError, ExplainerError

# Images of 224 × 224 × 3 that go through the network at once: a CPU's cache holds few, a GPU is filled by many.
_BATCH = {"cpu": 16}
_BATCH_ACCELERATOR = 256
# Such batches that one call of the explainer may take, so that progress shows and little is lost when it ends.
_FEW = 4  # channels, as an image has
_CALL = {"cpu": 1}
_CALL_ACCELERATOR = 64


class Explanation(NamedTuple):
    """The answer of an explainer to a batch of images."""

    maps: Tensor  # (B, H, W)
    logits: Tensor | None = None  # (B, classes)


class Explainer(Protocol):
    """Anything that can be certified."""

    def __call__(self, images: Tensor, targets: Tensor, /) -> Tensor: ...


def explain(explainer: Explainer, images: Tensor, target: int | Tensor) -> Explanation:
    """One finite-precision map (B, H, W) per image, at the images' size and on their device.

    `target` is one class for all images, or one for each (B,). Channels are summed and coarser maps are upsampled
    bilinearly.
    """
    targets = target if isinstance(target, Tensor) else torch.full((len(images),), target, device=images.device)
    answer = explainer.explain(images, targets) if hasattr(explainer, "explain") else explainer(images, targets)
    maps, logits = answer if isinstance(answer, Explanation) else (answer, None)
    _check_maps(maps, images)
    _check_logits(logits, images)
    maps = maps.detach()
    maps = maps if maps.dtype == torch.float64 else maps.float()
    maps = sum_channels(maps) if maps.ndim == 4 else maps
    return Explanation(upsample(maps, images), logits)


def sum_channels(values: Tensor) -> Tensor:
    """(B, C, h, w) → (B, h, w), in the same order at every place.

    Plain sums round by the place in memory. That would rank places that are equal, alike in every sample, and so
    certify their order.
    """
    if values.shape[1] <= _FEW:
        return reduce(torch.add, values.unbind(dim=1))
    return values.movedim(1, -1).contiguous().sum(dim=-1)


def upsample(maps: Tensor, images: Tensor) -> Tensor:
    """Maps (B, h, w) at the images' size, bilinearly. For that reason, what is constant stays so to the last bit."""
    if maps.shape[1:] == images.shape[2:]:
        return maps
    first = maps[:, :1, :1]
    constant = (maps == first).all(dim=2, keepdim=True).all(dim=1, keepdim=True)
    base = torch.where(constant, first, 0)  # only there: zeros that a ReLU left must stay zeros in other maps
    above = F.interpolate((maps - base)[:, None], size=images.shape[2:], mode="bilinear", align_corners=False)[:, 0]
    return base + above


def describe(explainer: Any) -> dict[str, Any]:
    """What can be told of an explainer's method and model, for the provenance."""
    model = _model_of(explainer)
    qualified = getattr(explainer, "__qualname__", type(explainer).__qualname__)
    return {
        "method": str(getattr(explainer, "name", qualified)),
        "params": dict(getattr(explainer, "params", {})),
        "layer": str(getattr(explainer, "layer", "")),
        "model": str(getattr(model, "name", "")),
        "weights": str(getattr(model, "weights_hash", "")),
    }


def device_of(explainer: Any, image: Tensor) -> torch.device:
    """Where the explainer computes: its model's device if it tells, else the image's."""
    device = getattr(_model_of(explainer), "device", image.device)
    return device if isinstance(device, torch.device) else image.device


def channels_of(explainer: Any) -> int | None:
    """How many channels an image must have, where the explainer tells."""
    channels: int | None = getattr(_model_of(explainer), "channels", None)
    return channels


def check_target(explainer: Any, target: int, image: Tensor) -> int:
    """`target` as an int within the model's classes, where the explainer tells how many there are."""
    if isinstance(target, bool) or int(target) != target or target < 0:
        raise ArgumentError(f"target={target!r} is not a class index: use a whole number from 0.")
    count = getattr(_model_of(explainer), "count_classes", None)
    if count is not None and target >= (classes := count(*image.shape[1:])):
        raise ArgumentError(f"target={target} is out of range: the model has classes 0 to {classes - 1}.")
    return int(target)


def own_precision(explainer: Any, device: torch.device) -> str:
    """The number format of the explainer's model as it is, and where torch may round it further."""
    parameters = getattr(getattr(_model_of(explainer), "net", None), "parameters", tuple)
    dtype = next((str(value.dtype).removeprefix("torch.") for value in parameters()), "float32")
    convolutions, products = tf32_allowed() if device.type == "cuda" and dtype == "float32" else (False, False)
    rounding = [
        name
        for name, on in (
            ("tf32 convolutions", convolutions),
            ("tf32 products", products),
            ("autocast", torch.is_autocast_enabled(device.type)),
        )
        if on
    ]
    return ", ".join((dtype, *rounding))


def class_names(explainer: Any, indices: Iterable[int]) -> dict[str, str]:
    """Names of the given classes, where the explainer's model has them."""
    names = getattr(_model_of(explainer), "classes", None)
    return {str(index): str(names[index]) for index in indices if index < len(names)} if names else {}


def choose_batch_size(explainer: Any, device: torch.device, values: int) -> int:
    """Noisy images of so many values each per call, from the network runs that the explainer says one takes."""
    full = images_per_batch(device, values)
    batches = _CALL.get(device.type, _CALL_ACCELERATOR)
    return max(1, min(full, batches * full // runs_per_image(explainer)))


def runs_per_image(explainer: Any) -> int:
    """About how many runs of its network the explainer says that one image takes."""
    return max(1, getattr(explainer, "forwards", 1))


def images_per_batch(device: torch.device, values: int) -> int:
    """How many inputs of so many values each fill the device in one batch."""
    full = _BATCH.get(device.type, _BATCH_ACCELERATOR)
    return max(1, math.floor(full * 3 * 224 * 224 / values))


def _model_of(explainer: Any) -> Any:
    return getattr(explainer, "model", None)


def _check_logits(logits: Tensor | None, images: Tensor) -> None:
    if logits is not None and (logits.ndim != 2 or len(logits) != len(images)):
        raise ExplainerError(
            f"the explainer returned logits of shape {tuple(logits.shape)}: return ({len(images)}, classes), or None."
        )


def _check_maps(maps: Any, images: Tensor) -> None:
    batch, (height, width) = len(images), images.shape[2:]
    if not isinstance(maps, Tensor):
        raise ExplainerError(
            f"the explainer returned {type(maps).__name__}: return a tensor (B, H, W), for NumPy by torch.from_numpy."
        )
    if maps.ndim not in (3, 4) or len(maps) != batch or maps.shape[-2] > height or maps.shape[-1] > width:
        raise ExplainerError(
            f"the explainer returned shape {tuple(maps.shape)} for {batch} images of {height} × {width}: return "
            f"({batch}, H, W) or ({batch}, C, H, W), at that size or coarser."
        )
    if maps.numel() == 0 or not maps.is_floating_point():
        raise ExplainerError(f"the explainer returned {maps.numel()} values of {maps.dtype}: return floats.")
    if maps.device != images.device:
        raise ExplainerError(
            f"the explainer returned maps on {maps.device} for images on {images.device}: leave them there, or move "
            f"them back with maps.to(images.device)."
        )
