"""Networks of the reproduction that need more than a name and a weights file."""

from pathlib import Path
from typing import Any

import pixelcert as pc
from pixelcert.models.classifier import IMAGENET_MEAN, IMAGENET_STD

WEIGHTS = Path(__file__).parent / "weights"


def resnet50_v1() -> pc.Classifier:
    """ResNet-50 as first published: blocks that halve the resolution do so in their first convolution.

    In torchvision's, the second convolution does it. The weights load into both, but work well in only one.
    """
    model = pc.load_model("resnet50", WEIGHTS / "resnet50-v1.fp16.safetensors", "cpu")
    net: Any = model.net
    for stage in (net.layer2, net.layer3, net.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    return pc.Classifier(net, IMAGENET_MEAN, IMAGENET_STD, classes=model.classes, name="resnet50_v1")
