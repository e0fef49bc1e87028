"""Where a network's last spatial layer is."""

from __future__ import annotations

from torch import nn

from ..errors import ModelError


def final_layer(net: nn.Module) -> str:
    """The name of the module whose last output is the final spatial layer, for the architectures it knows.

    ResNet: the output of ``layer4``. VGG and AlexNet: the last ReLU of ``features``, before the pooling. ViT: what
    enters the last encoder block, since after it only the class token counts and nothing depends on the patches.
    EfficientNet-Lite: the activation after the head convolution. Other networks with a
    ``features`` stack (DenseNet, MobileNet, EfficientNet, ConvNeXt): its output.
    """
    modules = dict(net.named_modules())
    if "layer4" in modules:
        return "layer4"
    if "encoder.layers" in modules:
        blocks = [name for name, _ in modules["encoder.layers"].named_children()]
        if len(blocks) < 2:
            raise ModelError("a transformer of one block has no layer before its last: name one with final=NAME.")
        return f"encoder.layers.{blocks[-2]}"
    if "_conv_head" in modules and "_swish" in modules:
        return "_swish"
    if isinstance(features := modules.get("features"), nn.Sequential):
        if isinstance(features[-1], (nn.MaxPool2d, nn.AvgPool2d)):
            return f"features.{len(features) - 2}"
        return "permute" if "permute" in modules else "features"  # Swin's features have their channels last
    known = ", ".join(name for name, _ in net.named_children())
    raise ModelError(
        f"the final spatial layer of {type(net).__name__} is not known: name it with Classifier(…, final=NAME) or "
        f"layer=NAME. Its modules are {known}."
    )
