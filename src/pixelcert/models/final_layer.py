"""Where a network's last spatial layer is."""

from __future__ import annotations

from torch import nn

from ..errors import ModelError


def final_layer(net: nn.Module) -> str:
    """The name of the module whose last output is the final spatial layer, for the architectures it knows.

    ResNet: the output of ``layer4``. VGG and AlexNet: the last ReLU of ``features``, before the pooling. ViT: the
    last encoder block. EfficientNet-Lite: the activation after the head convolution. Other networks with a
    ``features`` stack (DenseNet, MobileNet, EfficientNet, ConvNeXt): its output.
    """
    modules = dict(net.named_modules())
    if "layer4" in modules:
        return "layer4"
    if "encoder.layers" in modules:
        return f"encoder.layers.{list(dict(modules['encoder.layers'].named_children()))[-1]}"
    if "_conv_head" in modules and "_swish" in modules:
        return "_swish"
    if isinstance(features := modules.get("features"), nn.Sequential):
        children = list(features)
        if isinstance(children[-1], (nn.MaxPool2d, nn.AvgPool2d)):
            last = max(i for i, child in enumerate(children) if isinstance(child, nn.ReLU))
            return f"features.{last}"
        return "features"
    known = ", ".join(name for name, _ in net.named_children())
    raise ModelError(
        f"the final spatial layer of {type(net).__name__} is not known: name it with Classifier(…, final=NAME) or "
        f"layer=NAME. Its modules are {known}."
    )
