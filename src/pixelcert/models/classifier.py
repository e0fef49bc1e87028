"""Classifier: a network with its preprocessing inside, so that noise is added in the space where the radius holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..digest import sha256
from ..errors import ModelError
from ..image import check_image
from .final_layer import final_layer
from .hooked_split import HookedSplit
from .linear_head import LinearHead, find_linear_head, linear_layers
from .split import Split, split_at

Kind = TypeVar("Kind", bound="Classifier")

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Classifier:
    """`net` behind its normalisation: takes pixels in [0, 1] (plus noise), returns logits.

    Puts `net` in evaluation mode, since a certificate is about a deterministic function, and changes nothing else.

    Args:
        net: any module from normalised images (B, C, H, W) to logits (B, classes).
        mean, std: per channel, in units of pixels in [0, 1].
        final: the name of the last spatial layer; found by itself for the common architectures.
        classes: names of the classes, for pictures and tables.
        size: side of the square image that the network was trained on; photographs are cut to it.
    """

    _layout = torch.preserve_format  # of what the network sees

    def __init__(
        self,
        net: nn.Module,
        mean: Sequence[float],
        std: Sequence[float],
        *,
        name: str | None = None,
        final: str | None = None,
        classes: Sequence[str] | None = None,
        size: int = 224,
        device: torch.device | str | None = None,
    ) -> None:
        self.net = net.eval()
        self.name = name or type(net).__name__
        self.classes = tuple(classes) if classes is not None else None
        self.size = size
        self._mean, self._std = _check_normalisation(mean, std)
        self.channels = self._mean.shape[1]
        self._final = final
        self._splits: dict[str, Split] = {}
        self._linear_heads: dict[str, LinearHead | None] = {}
        self._linear_layers: dict[str, list[nn.Linear]] = {}
        self._modules: list[int] = []
        self._class_counts: dict[tuple[int, int], int] = {}
        self.grid_models: dict[int, Classifier] = {}  # by size, as `grid.for_grid` found them
        self.tuned_models: dict[Any, tuple[object, Classifier]] = {}  # with their versions, as `tuned.tuned` made them
        self._hashed: tuple[object, str] = (None, "")
        self.to(device or next((p.device for p in net.parameters()), torch.device("cpu")))

    def __repr__(self) -> str:
        return f"Classifier({self.name}, {self.device})"

    def __call__(self, images: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, C, H, W) in pixel space."""
        return self._logits(self.net(self.normalise(images)))

    @property
    def device(self) -> torch.device:
        return self._mean.device

    def to(self, device: torch.device | str) -> Classifier:
        """Move network and preprocessing to `device`, in place."""
        try:
            self.net.to(device)
        except (RuntimeError, AssertionError) as error:  # a CPU build of torch asserts that CUDA is there
            reason = str(error).partition("\n")[0]
            raise ModelError(f"device={device} cannot be used ({reason}): leave it out, or use cpu.") from error
        self._mean, self._std = self._mean.to(device), self._std.to(device)
        self._forget_splits()  # they may hold constants on the old device
        return self

    def normalise(self, images: Tensor) -> Tensor:
        """What the network sees: (images - mean) / std, in its own precision and layout."""
        precision = next((value.dtype for value in self.net.parameters()), images.dtype)
        return ((images - self._mean) / self._std).to(precision, memory_format=self._layout)

    def around(self, net: nn.Module, name: str, size: int, kind: type[Kind]) -> Kind:
        """A classifier of another network, or for another size, that shares all the rest with this one."""
        mean, std = self._mean.flatten().tolist(), self._std.flatten().tolist()
        return kind(net, mean, std, name=name, final=self._final, classes=self.classes, size=size, device=self.device)

    def predict(self, image: Tensor) -> tuple[int, float]:
        """The class of one clean image (C, H, W) in [0, 1], and the softmax confidence in it."""
        image = check_image(image, self.channels).to(self.device)
        with torch.inference_mode():
            confidences = self(image.float()[None]).softmax(dim=1)[0]
        top = int(confidences.argmax())
        return top, float(confidences[top])

    def split(self, layer: str) -> Split:
        """The network in two at `layer`: "input" (the normalised image), "final", or a module's name.

        ``features`` takes images in pixel space; ``head`` takes what `features` returns and gives logits. Features
        run once, and the head alone after that, as often as a method needs it.
        """
        self._check_modules()
        if layer not in self._splits:
            self._splits[layer] = self._split(layer)
        return self._splits[layer]

    def _check_modules(self) -> None:
        """Refuse what mixes the images of a batch, and forget splits of modules that were replaced since."""
        modules = list(self.net.modules())
        if any(module.training for module in modules):
            raise ModelError(f"{self.name} is in training mode, where images of a batch mix: call net.eval().")
        norms = [module for module in modules if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        if any(norm.running_mean is None for norm in norms):
            raise ModelError(f"{self.name} has a batch norm without running statistics, where images of a batch mix.")
        if self._modules != (now := [id(module) for module in modules]):
            self._modules = now
            self._forget_splits()

    def _forget_splits(self) -> None:
        found = (self._splits, self._linear_heads, self._linear_layers, self._class_counts)
        for known in (*found, self.grid_models, self.tuned_models):
            known.clear()

    def _split(self, layer: str, change: Callable[[nn.Module], nn.Module] = lambda part: part) -> Split:
        """The split whose parts are those of the network, after a `change`."""
        if layer == "input":
            net = change(self.net)
            return Split(self.normalise, lambda inputs: self._logits(net(inputs.clone())))  # it may work in place
        name = self.final if layer == "final" else layer
        if traced := split_at(self.net, name):
            self._linear_heads[layer] = find_linear_head(traced[1])
            self._linear_layers[layer] = linear_layers(traced[1])
            body, head = map(change, traced)
            return Split(lambda images: body(self.normalise(images)), lambda features: self._logits(head(features)))
        hooked = HookedSplit(self.net, name)
        return Split(
            lambda images: hooked.body(self.normalise(images)), lambda features: self._logits(hooked.head(features))
        )

    def linear_head(self, layer: str) -> LinearHead | None:
        """The head after `layer`, if it is just average pooling and a linear layer."""
        self.split(layer)
        return self._linear_heads.get(layer)

    def linear_layers(self, layer: str) -> list[nn.Linear]:
        """The linear layers after `layer`, if only ReLUs and pooling lie between them; [] otherwise."""
        self.split(layer)
        return self._linear_layers.get(layer, [])

    @property
    def first_convolution(self) -> Tensor | None:
        """The kernels (out channels, in channels, height, width) that take the image; None without any."""
        return next((module.weight for module in self.net.modules() if isinstance(module, nn.Conv2d)), None)

    def _logits(self, output: object) -> Tensor:
        output = getattr(output, "logits", output)  # as Hugging Face's models answer
        if not isinstance(output, Tensor) or output.ndim != 2:
            what = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise ModelError(
                f"{self.name} returned {what}: wrap it in a module that returns logits (B, classes) alone."
            )
        return output

    @cached_property
    def final(self) -> str:
        """The module whose output is the last spatial layer."""
        return self._final or final_layer(self.net)

    @property
    def num_classes(self) -> int:
        return self.count_classes(self.size, self.size)

    def count_classes(self, height: int, width: int) -> int:
        """How many logits an image of this size gets: the number of class names, or by trying."""
        if self.classes is not None:
            return len(self.classes)
        if (height, width) not in self._class_counts:
            self._class_counts[height, width] = self._try_size(height, width)
        return self._class_counts[height, width]

    @torch.inference_mode()
    def _try_size(self, height: int, width: int) -> int:
        try:
            return int(self(torch.zeros(1, self.channels, height, width, device=self.device)).shape[1])
        except RuntimeError as error:
            raise ModelError(
                f"{self.name} cannot take images of {height} × {width} ({error}): give the size it was made for."
            ) from error

    @property
    def version(self) -> object:
        """Changes with the memory and the values of parameters and buffers, but not when written through ``.data``."""
        tensors = (*self.net.parameters(), *self.net.buffers())
        return tuple((tensor.data_ptr(), tensor._version) for tensor in tensors)

    @property
    def weights_hash(self) -> str:
        """SHA-256 over the preprocessing, the network's structure as it prints itself, and all parameters and buffers.

        Kept until a tensor's version changes, which writing through ``.data`` does not do. Code of a module's own
        that does not show in its printed form is not seen.
        """
        if (version := self.version) != self._hashed[0]:
            parts = [("", self._mean), ("", self._std), *sorted(self.net.state_dict().items())]
            pieces = (piece for name, value in parts for piece in (name.encode(), _bytes(value)))
            self._hashed = (version, sha256(repr((self.net, self._final)).encode(), *pieces))
        return self._hashed[1]


def _check_normalisation(mean: Sequence[float], std: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Mean and std as (1, C, 1, 1)."""
    try:
        means, stds = ([float(value) for value in values] for values in (mean, std))
    except TypeError:
        means, stds = [], []
    if not means or len(means) != len(stds) or not all(map(math.isfinite, means + stds)) or min(stds) <= 0:
        raise ModelError(f"mean={mean} and std={std}: give one finite number each per channel, std above 0.")
    return torch.tensor(means).view(1, -1, 1, 1), torch.tensor(stds).view(1, -1, 1, 1)


def _bytes(value: Tensor) -> bytes:
    """The raw memory of a tensor, of any dtype: NumPy has no bfloat16."""
    flat = value.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
