"""What the model answers when parts of a layer are masked: the common work of the perturbation methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..explainer import images_per_batch
from ..models import Classifier

Masks = Callable[[int, int], Tensor]  # masks number start … stop - 1 of the layer's maps: (m, h, w)


def masked_logits(
    model: Classifier, layer: str, features: Tensor, count: int, masks: Masks
) -> Iterator[tuple[Tensor, Tensor]]:
    """Masks (m, h, w), and logits (B, m, classes) of every image's features times every mask, chunk by chunk.

    Masks × images share batches, as many as fill the device. Before a linear head no head is run: logits are one
    product of masks and evidence.
    """
    _, head = model.split(layer)
    linear = model.linear_head(layer)
    batch = len(features)
    if linear:
        evidence = linear.evidence(features).flatten(2).transpose(1, 2)  # (B, h·w, classes)
        bias = 0 if linear.layer.bias is None else linear.layer.bias
        most = 2**24 if features.device.type == "cpu" else 2**27  # values at once
        step = max(1, most // max(batch * evidence.shape[2], evidence.shape[1]))
    else:
        step = max(1, images_per_batch(features.device, features[0].numel()) // batch)
    for start in range(0, count, step):
        chunk = masks(start, min(start + step, count))
        if linear:
            yield chunk, chunk.flatten(1) @ evidence + bias
        else:
            yield chunk, head(_apply(features, chunk.to(features.dtype))).view(batch, len(chunk), -1)


def _apply(features: Tensor, masks: Tensor) -> Tensor:
    """Features of every image under every mask: (B·m, …). A transformer's class token is never masked."""
    if features.ndim == 4:
        return (features[:, None] * masks[None, :, None]).flatten(0, 1)
    flat = masks.flatten(1)
    prefix = features.shape[1] - flat.shape[1]
    keep = torch.cat([torch.ones_like(flat[:, :prefix]), flat], dim=1)
    return (features[:, None] * keep[None, :, :, None]).flatten(0, 1)
