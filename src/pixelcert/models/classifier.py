"""Classifier: a network with its preprocessing inside, so that noise is added in the space where the radius holds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from ..errors import ModelError
from ..image import check_image
from ..provenance import sha256
from .final_layer import final_layer
from .split import Split, split_at

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
        if not mean or len(mean) != len(std) or min(std) <= 0:
            raise ModelError(f"mean={tuple(mean)} and std={tuple(std)}: give one of each per channel, std above 0.")
        self.net = net.eval()
        self.name = name or type(net).__name__
        self.classes = tuple(classes) if classes is not None else None
        self.size = size
        self.channels = len(mean)
        self._final = final
        self._mean = torch.tensor(mean, dtype=torch.float32).view(1, -1, 1, 1)
        self._std = torch.tensor(std, dtype=torch.float32).view(1, -1, 1, 1)
        self._splits: dict[str, Split] = {}
        self.to(device or next((p.device for p in net.parameters()), torch.device("cpu")))

    def __repr__(self) -> str:
        return f"Classifier({self.name}, {self.num_classes} classes, {self.device})"

    def __call__(self, images: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, C, H, W) in pixel space."""
        logits: Tensor = self.net(self.normalise(images))
        return logits

    @property
    def device(self) -> torch.device:
        return self._mean.device

    def to(self, device: torch.device | str) -> Classifier:
        """Move network and preprocessing to `device`, in place."""
        self.net.to(device)
        self._mean, self._std = self._mean.to(device), self._std.to(device)
        return self

    def normalise(self, images: Tensor) -> Tensor:
        """What the network sees: (images - mean) / std."""
        return (images - self._mean) / self._std

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
        if layer not in self._splits:
            self._splits[layer] = self._split(layer)
        return self._splits[layer]

    def _split(self, layer: str) -> Split:
        if layer == "input":
            return Split(self.normalise, self.net)
        body, head = split_at(self.net, self.final if layer == "final" else layer)
        return Split(lambda images: body(self.normalise(images)), head)

    @cached_property
    def final(self) -> str:
        """The module whose output is the last spatial layer."""
        return self._final or final_layer(self.net)

    @cached_property
    def num_classes(self) -> int:
        with torch.inference_mode():
            blank = torch.zeros(1, self.channels, self.size, self.size, device=self.device)
            return int(self(blank).shape[1])

    @cached_property
    def weights_hash(self) -> str:
        """SHA-256 over the names and values of all parameters and buffers, and the preprocessing."""
        state = {**self.net.state_dict(), "mean": self._mean, "std": self._std}
        parts = ((name, state[name].detach().cpu().contiguous()) for name in sorted(state))
        return sha256(*(piece for name, value in parts for piece in (name.encode(), _bytes(value))))


def _bytes(value: Tensor) -> bytes:
    """The raw memory of a tensor, of any dtype: NumPy has no bfloat16."""
    return value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
