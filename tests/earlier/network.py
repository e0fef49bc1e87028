"""The network of the earlier files. It sums few values of few bits, so every machine gets the same maps."""

import torch
from torch import nn

import pixelcert as pc

SIZE = 12  # of its images
CLASSES = tuple(f"class {index}" for index in range(5))


def exact() -> pc.Classifier:
    """A convolution with weights -1, 0 and 1, pooling and a linear head, for images of any size."""
    net = nn.Sequential(
        nn.Conv2d(3, 4, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
    )
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        for place in range(4 * 3 * 5 * 5):
            if place * 7 % 11 == 3:
                net[0].weight.view(-1)[place] = (-1) ** (place * 5 % 3)
        net[4].weight.copy_((torch.arange(20) * 7 % 9 - 4).view(5, 4) / 4)
    return pc.Classifier(net, mean=(0.0,) * 3, std=(1.0,) * 3, name="exact", classes=CLASSES, size=SIZE)
