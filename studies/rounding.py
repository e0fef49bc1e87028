"""Rounding that makes gradients at the final layer of a ResNet look like a grid, certified everywhere.

    python -m studies.rounding --weights resnet18.safetensors IMAGE

Average pooling follows that layer, so the gradient is the same at each of its places. The sum of its magnitudes over
the channels still differs from place to place in the last bit, because the order of a sum in memory depends on the
place. The difference is the same in every noisy copy, and the published rule ranks it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

import pixelcert as pc
from pixelcert.noise import noisy, snap

COPIES = 16


def gradient_maps(model: pc.Classifier, images: Tensor, target: int) -> Tensor:
    """Sum the magnitudes of the gradient at the final layer over its channels, in float32: (B, h, w)."""
    split = model.split("final")
    with torch.no_grad():
        features = split.features(images)
    features.requires_grad_()
    (gradient,) = torch.autograd.grad(split.head(features)[:, target].sum(), features)
    assert bool((gradient == gradient[..., :1, :1]).all()), "the gradient differs between places"
    return gradient.abs().sum(dim=1)


def top_by_published_rule(maps: Tensor, level: float) -> NDArray[np.bool_]:
    """Return True where a map is strictly above its percentile: (B, H, W)."""
    values = maps.numpy()
    top: NDArray[np.bool_] = values > np.percentile(values, 100 - level, axis=(1, 2), keepdims=True)
    return top


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", type=Path)
    parser.add_argument("--weights", required=True)
    options = parser.parse_args()
    model = pc.load_model("resnet18", options.weights, "cpu")
    image = snap(pc.load_image(options.image))
    copies = noisy(image, 0.15, 0, range(COPIES))
    small = gradient_maps(model, copies, model.predict(image)[0])
    large = F.interpolate(small[:, None], size=image.shape[-2:], mode="bilinear", align_corners=False)[:, 0]
    spread = float((small.amax((1, 2)) / small.amin((1, 2)) - 1).max())
    values = len(set(small[0].flatten().tolist()))
    print(f"{options.image.name}, {COPIES} noisy copies: {values} distinct values, {spread:.1e} apart")
    for level in (50, 30, 10):
        top = top_by_published_rule(large, level)
        same = (top == top[:1]).all(axis=0)
        print(f"K = {level}: {100 * top[0].mean():.1f} % in the top, {100 * same.mean():.1f} % the same in every copy")


if __name__ == "__main__":
    main()
