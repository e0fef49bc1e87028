"""Split a classifier at a layer: the part before runs once, the part after as often as a method needs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from ..basics.locks import one_at_a_time
from ..basics.messages import ModelError, PixelcertWarning
from .folding import Fusing
from .inspection import Tolerance, agree, any_image, in_words, logits_of, own_answer, try_out, why_unlike
from .tracing import SWITCHED_OFF, check_layer, split_at

if TYPE_CHECKING:
    from .classifier import Classifier


class Split(NamedTuple):
    """A classifier in two: ``logits = head(features(images))``."""

    features: Callable[[Tensor], Tensor]
    head: Callable[[Tensor], Tensor]

    def run(self, images: Tensor) -> Tensor:
        """Return the logits of images."""
        return self.head(self.features(images))


def find_split(model: Classifier, layer: str) -> Split:
    """Return `model` in two at `layer`, compiled or fused if it is a copy made for that."""
    plain = plain_split(model, layer)
    if model.compiled:
        return Split(*map(_compiled, plain))
    if not model.fused:
        return plain
    change = Fusing()
    split = plain_split(model, layer, change)
    why = change.why_not or why_unlike(plain.run, split.run, any_image(model), Tolerance.ROUNDED)
    model.surgery(layer).note("fused", "no" if why else "yes", why)
    return plain if why else split


def plain_split(model: Classifier, layer: str, change: Callable[[nn.Module], nn.Module] = lambda part: part) -> Split:
    """Return `model` in two at `layer`, neither compiled nor fused, each part after a `change`."""
    if layer == "input":
        net = change(model.net)
        return Split(model.normalise, lambda inputs: logits_of(net(inputs.clone()), model.name))  # it may work in place
    if halves := traced_halves(model, layer):
        return _joined(model, *map(change, halves))
    hooked = HookedSplit(model.net, _module_at(model, layer))
    return _joined(model, hooked.body, hooked.head)


def traced_halves(model: Classifier, layer: str) -> tuple[fx.GraphModule, fx.GraphModule] | None:
    """Return the network's graph in two at `layer`; None at the input, and where the network must be split by hooks."""
    if layer == "input":
        return None
    return model.recall(("halves", layer), lambda: _trace_halves(model, layer))


def _trace_halves(model: Classifier, layer: str) -> tuple[fx.GraphModule, fx.GraphModule] | None:
    """Trace and cut the network, then test the halves, because a trace follows only one path through its code."""
    if not model.trace:
        check_layer(model.net, _module_at(model, layer))
        model.surgery(layer).note("split", "hooks", SWITCHED_OFF)
        return None
    halves, why = split_at(model.net, _module_at(model, layer)), ""
    if isinstance(halves, Exception):
        why = f"it cannot be traced: {in_words(halves)}"
    elif model.device.type == "meta":
        model.surgery(layer).note("split", "traced", "untried: the meta device holds no values")
    elif isinstance(expected := own_answer(model), Exception):
        model.surgery(layer).note("split", "traced", f"untried: {in_words(expected)}")
    else:
        answer = try_out(_joined(model, *halves).run, any_image(model))
        if isinstance(answer, Exception):
            why = f"its trace fails: {in_words(answer)}"
        elif not agree(answer, expected, Tolerance.SAME):
            why = "its trace answers otherwise"
        else:
            model.surgery(layer).note("split", "traced")
    if not why:
        return halves  # type: ignore[return-value]  # an error has a reason
    model.surgery(layer).note("split", "hooks", why)
    if not model.is_copy:
        warnings.warn(
            f"{model.name} is split by hooks at layer {layer!r} ({why}), so each run of its head costs a run of the "
            f"whole network: explain at layer 'input', or give a network that torch.fx can trace.",
            PixelcertWarning,
            stacklevel=8,
        )
    return None


def _module_at(model: Classifier, layer: str) -> str:
    return model.final if layer == "final" else layer


def _joined(model: Classifier, body: Callable[..., Any], head: Callable[..., Any]) -> Split:
    """Return two halves of the network as a split of the classifier."""
    return Split(lambda images: body(model.normalise(images)), lambda features: logits_of(head(features), model.name))


def _compiled(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Compile a function with its own copy of the code, because torch compiles only a few functions that share code."""
    if isinstance(function, FunctionType):
        code, about = function.__code__.replace(), (function.__globals__, function.__name__, function.__defaults__)
        function = FunctionType(code, *about, function.__closure__)
    compiled: Callable[[Tensor], Tensor] = torch.compile(function)
    return compiled


def final_layer(net: nn.Module) -> str:
    """Return the name of the module whose last output is the final spatial layer, for the architectures it knows.

    - ResNet: the output of ``layer4``.
    - VGG and AlexNet: the last ReLU of ``features``, before the pooling.
    - ViT: the input of the last encoder block; behind that block the logits depend on the class token only.
    - EfficientNet-Lite: the activation after the head convolution.
    - Other networks with a ``features`` stack (DenseNet, MobileNet, EfficientNet, ConvNeXt): its output.
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


def feature_maps(features: Tensor, images: Tensor) -> Tensor:
    """Return features of `images` (B, …, H, W) as maps (B, C, h, w); refuse those without the images' proportions.

    Tokens (B, T, C) lose the class token and others before the patches, and are laid out in rows like the patches.
    """
    height, width = images.shape[-2:]
    if features.ndim == 4 and abs(features.shape[2] * width - features.shape[3] * height) <= max(height, width):
        return features  # one row or column more or less comes from rounding at strides
    for prefix in (1, 0, 2) if features.ndim == 3 else ():
        patches = features.shape[1] - prefix
        rows = round((patches * height / width) ** 0.5)
        if rows > 0 and patches % rows == 0 and rows * width == patches // rows * height:
            return features[:, prefix:].transpose(1, 2).reshape(len(features), -1, rows, patches // rows)
    raise ModelError(
        f"features of shape {tuple(features.shape)} are no maps of images of {height} × {width}: choose a layer that "
        f"returns (B, C, h, w), or tokens (B, T, C) of a transformer."
    )


class HookedSplit:
    """A network before and after the last call of the module `layer`, by hooks that it removes again."""

    def __init__(self, net: nn.Module, layer: str) -> None:
        self._net, self._layer = net, layer
        self._module = net.get_submodule(layer)
        self._input: torch.Size | None = None  # of the images last seen, without the batch
        self._calls = 0
        self._checked = False

    def body(self, inputs: Tensor) -> Tensor:
        """Return the layer's last output for normalised images (B, C, H, W)."""
        outputs: list[Any] = []
        keep = lambda module, args, output: outputs.append(_first(output))  # noqa: E731
        with one_at_a_time, self._module.register_forward_hook(keep):
            answer = self._net(inputs)
        if not outputs or not isinstance(outputs[-1], Tensor):
            raise ModelError(
                f"layer={self._layer!r} returns no tensor when {type(self._net).__name__} runs: name another."
            )
        self._input, self._calls = inputs.shape[1:], len(outputs)
        self._check(outputs[-1], answer)
        return outputs[-1]

    def head(self, features: Tensor) -> Any:
        """Return the network's answer when the layer returns `features`, whatever the image is."""
        assert self._input is not None, "the body runs before the head"
        calls = 0

        def replace(module: nn.Module, args: Any, output: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls < self._calls:
                return output
            fresh = features.clone()  # what follows may work in place
            return fresh if isinstance(output, Tensor) else (fresh, *output[1:])

        with one_at_a_time, self._module.register_forward_hook(replace):
            return self._net(features.new_zeros(len(features), *self._input))

    def _check(self, features: Tensor, answer: Any) -> None:
        """Refuse, once, a head that needs more than the layer: it must give the same answer with a blank image."""
        if self._checked:
            return
        with torch.no_grad():
            again, expected = logits_of(self.head(features)), logits_of(answer).detach()
        if not agree(again, expected, Tolerance.REORDERED):
            raise ModelError(
                f"layer={self._layer!r} is bypassed: what follows also uses the input. Name a later layer."
            )
        self._checked = True


def _first(output: Any) -> Any:
    """Return a layer's tensor, copied before later modules can change it in place."""
    tensor = output[0] if isinstance(output, (tuple, list)) else output
    return tensor.clone() if isinstance(tensor, Tensor) else tensor
