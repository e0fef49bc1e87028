"""Edges of the image among the pixels that Guided Backprop and the plain gradient certify at the input.

    python -m studies.edges --weights resnet18.safetensors IMAGE …

An edge pixel is one where the gradient of the grey image, averaged over 5 × 5 pixels, is above its median. So half of
all pixels are edge pixels.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

import pixelcert as pc


def edges(image: Tensor) -> Tensor:
    """Return a mask (H, W) that is True at the edges of an image (C, H, W)."""
    sobel = torch.tensor([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]])
    grey = F.pad(image.mean(dim=0)[None, None], (1, 1, 1, 1), mode="reflect")
    slopes = F.conv2d(grey, torch.stack([sobel, sobel.T])[:, None])
    strength = F.avg_pool2d(slopes.square().sum(dim=1, keepdim=True).sqrt(), 5, stride=1, padding=2)[0, 0]
    found: Tensor = strength > strength.median()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, nargs="+", metavar="IMAGE")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--weights", default="DEFAULT")
    options = parser.parse_args()
    model = pc.load_model(options.model, options.weights)
    for file in options.images:
        image = pc.load_image(file)
        edge = edges(image)
        for method in ("gb", "grad"):
            votes = pc.sample(pc.method(method, model, "input"), image, model.predict(image)[0], levels=(50,))
            labels = torch.tensor(votes.certify().labels[50])
            told = (
                f"{value}: {_percent(labels == value)}, {_percent(edge[labels == value])} edges" for value in (1, 0)
            )
            print(f"{file.name}, {pc.METHODS[method].short}, certified {'; '.join(told)}")


def _percent(share: Tensor) -> str:
    return f"{100 * share.float().mean():.1f} %" if share.numel() else "none"


if __name__ == "__main__":
    main()
