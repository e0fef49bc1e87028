"""Classifier: a network with its preprocessing inside, so that noise is added where the radius holds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from ..basics.files import sha256
from ..basics.locks import one_at_a_time
from ..basics.machine import out_of_memory, why_unusable
from ..basics.messages import ArgumentError, ModelError, check_target, naming
from ..image import check_image
from .inspection import Memory, Step, Surgery, any_image, in_words, logits_of, structure, try_out
from .splitting import Split, final_layer, find_split

T = TypeVar("T")

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
INDEX = re.compile("[0-9]{1,9}")  # of a class, given instead of its name


class Classifier:
    """A network behind its normalisation: it takes pixels in [0, 1] (plus noise) and returns logits.

    It puts `net` in evaluation mode, because a certificate is about a deterministic function, and changes nothing else.

    Args:
        net: any module from normalised images (B, C, H, W) to logits (B, classes).
        mean, std: per channel, in units of pixels in [0, 1].
        final: the name of the last spatial layer; found automatically for the common architectures.
        classes: names of the classes, for pictures and tables.
        size: side of the square image that the network was trained on; photographs are cut to it.
        trace: whether the network's code may be run on symbols by ``torch.fx``; if not, it is split by hooks.
        steps: the surgery that made `net` out of another network.
    """

    origin: Mapping[str, str] | None = None  # the names that `load_model` was given, by which others find it
    is_copy: ClassVar[bool] = False  # nobody else changes the network of a copy
    compiled: bool = False
    fused: bool = False

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
        trace: bool = True,
        steps: Iterable[Step] = (),
    ) -> None:
        self.net = net.eval()
        self.name = name or type(net).__name__
        if any(tensor.is_inference() for tensor in (*net.parameters(), *net.buffers())):
            raise ModelError(
                f"{self.name} was made under torch.inference_mode(), which hides changes of weights: create it outside."
            )
        self.classes = tuple(classes) if classes is not None else None
        self.size, self.trace = size, trace
        self._mean, self._std = _check_normalisation(mean, std)
        self.channels = self._mean.shape[1]
        self._final, self._steps = final, tuple(steps)
        self._memory = Memory(net, watched=not self.is_copy)
        self.to(device or next((p.device for p in net.parameters()), torch.device("cpu")))

    def __repr__(self) -> str:
        return f"Classifier({self.name}, {self.device})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the network and what a classifier is made with; what was found out about it is found out again."""
        return _made_again, (self.net, self.arguments(), self.origin)

    def __call__(self, images: Tensor) -> Tensor:
        """Return logits (B, classes) of images (B, C, H, W) in pixel space."""
        return logits_of(self.net(self.normalise(images)), self.name)

    @property
    def device(self) -> torch.device:
        return self._mean.device

    def to(self, device: torch.device | str) -> Classifier:
        """Move network and preprocessing to `device`, in place."""
        try:
            self.net.to(device)
        except (RuntimeError, AssertionError) as error:  # a CPU build of torch asserts that CUDA is there
            if out_of_memory(error):
                raise
            raise ModelError(why_unusable(device, error)) from error
        self._mean, self._std = self._mean.to(device), self._std.to(device)
        self._memory.clear()  # it may hold constants on the old device
        return self

    def normalise(self, images: Tensor) -> Tensor:
        """Return the network's input: (images - mean) / std, in the network's precision."""
        return ((images - self._mean) / self._std).to(_dtype_of(self.net) or images.dtype)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that make this classifier, except for its network."""
        normalisation = {"mean": self._mean.flatten().tolist(), "std": self._std.flatten().tolist()}
        known = {name: getattr(self, name) for name in ("name", "classes", "size", "device", "trace")}
        return {**normalisation, **known, "final": self._final, "steps": self._steps}

    def predict(self, image: Tensor) -> tuple[int, float]:
        """Return the class of one clean image (C, H, W) in [0, 1], and the softmax confidence in it."""
        image = check_image(image, self.channels).to(self.device)
        with one_at_a_time, torch.inference_mode():
            confidences = self(image.float()[None]).softmax(dim=1)[0]
        top = int(confidences.argmax())
        return top, float(confidences[top])

    def split(self, layer: str) -> Split:
        """Return the network in two at `layer`: "input" (the normalised image), "final", or a module's name.

        ``features`` takes images in pixel space; ``head`` takes the features and returns logits. A method runs the
        features once, and then only the head, as often as it needs.
        """
        return self.recall(("split", layer), lambda: find_split(self, layer))

    def recall(self, key: Hashable, find: Callable[[], T], *, values: bool = False) -> T:
        """Return the answer to `key`, found anew if the network changed; see `Memory`."""
        if not self.is_copy:
            _refuse_mixing(self)
        return self._memory.recall(key, find, values=values)

    def surgery(self, layer: str) -> Surgery:
        """Return the record of surgery on the network for `layer`, to which every new step is added."""
        return self._memory.recall(("surgery", layer), lambda: Surgery((step.name, step) for step in self._steps))

    @property
    def first_convolution(self) -> Tensor | None:
        """The kernels (out channels, in channels, height, width) that take the image; None without any."""
        return next((module.weight for module in self.net.modules() if isinstance(module, nn.Conv2d)), None)

    @property
    def final(self) -> str:
        """The module whose output is the last spatial layer."""
        return self._final or self._memory.recall("final", lambda: final_layer(self.net))

    @property
    def precision(self) -> str:
        """The number format of the network's parameters."""
        return str(_dtype_of(self.net) or torch.float32).removeprefix("torch.")

    def class_index(self, name: str) -> int:
        """Return the index of the class `name`, which is a class's name or an index."""
        if INDEX.fullmatch(name):
            return check_target(int(name), self.num_classes)
        with naming("target"):
            return class_of_name(name, self.classes or ())

    @property
    def num_classes(self) -> int:
        return self.count_classes(self.size, self.size)

    def count_classes(self, height: int, width: int) -> int:
        """Return how many logits an image of this size gets: the number of class names, or by a trial."""
        if self.classes is not None:
            return len(self.classes)
        return self._memory.recall(("classes", height, width), lambda: _count(self, height, width))

    @property
    def weights_hash(self) -> str:
        """SHA-256 over the preprocessing, the network's modules and their settings, and all parameters and buffers.

        It is kept until the network changes; writing through ``.data`` is not seen as a change. The hash does not cover
        code, hooks, and settings that a module does not keep under the names of its arguments.
        """
        return self._memory.recall("hash", lambda: _hash(self), values=True)


def _made_again(net: nn.Module, arguments: Mapping[str, Any], origin: Mapping[str, str] | None) -> Classifier:
    model = Classifier(net, **arguments)
    model.origin = origin
    return model


def _dtype_of(net: nn.Module) -> torch.dtype | None:
    """Return the number format of the first parameter, if there is any."""
    return next((value.dtype for value in net.parameters()), None)


def class_of_name(name: str, classes: Sequence[str]) -> int:
    """Return the index of the only class of this name."""
    if len(found := [index for index, known in enumerate(classes) if known == name]) == 1:
        return found[0]
    if found:
        raise ArgumentError(f"{name!r} is the name of the classes {found}: use the index of one.")
    if near := " or ".join(map(repr, get_close_matches(name, dict.fromkeys(classes)))):
        raise ArgumentError(f"{name!r} is not a class: did you mean {near}?")
    known = "the index, or the model's own name" if classes else "indices, or give classes, the model's own names"
    raise ArgumentError(f"{name!r} is not a class: use {known}.")


def _check_normalisation(mean: Sequence[float], std: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return mean and std as (1, C, 1, 1)."""
    try:
        means, stds = ([float(value) for value in values] for values in (mean, std))
    except TypeError:
        means, stds = [], []
    if not means or len(means) != len(stds) or not all(map(math.isfinite, means + stds)) or min(stds) <= 0:
        raise ModelError(f"mean={mean} and std={std}: give one finite number each per channel, std above 0.")
    return torch.tensor(means).view(1, -1, 1, 1), torch.tensor(stds).view(1, -1, 1, 1)


def _refuse_mixing(model: Classifier) -> None:
    """Refuse a network in which the images of a batch mix."""
    modules = list(model.net.modules())
    if any(module.training for module in modules):
        raise ModelError(f"{model.name} is in training mode, where images of a batch mix: call net.eval().")
    norms = [module for module in modules if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    if any(norm.running_mean is None for norm in norms):
        raise ModelError(
            f"{model.name} has a batch norm without running statistics, where images of a batch mix: use one with "
            f"track_running_stats=True."
        )


def _count(model: Classifier, height: int, width: int) -> int:
    answer = try_out(model, any_image(model, height, width))
    if isinstance(answer, ModelError):
        raise answer
    if isinstance(answer, Exception):
        raise ModelError(
            f"{model.name} cannot take images of {height} × {width} ({in_words(answer)}): give the size it is made for."
        ) from answer
    return answer.shape[1]


def _hash(model: Classifier) -> str:
    state = (leaf for name, value in sorted(model.net.state_dict().items()) for leaf in _tensors(name, value))
    tensors = [("", model._mean), ("", model._std), *state]
    said = (f"{name} {tuple(value.shape)} {value.dtype}" for name, value in tensors)
    words = "\n".join((structure(model.net), str(model._final), *said))
    return sha256(words.encode(), *(_bytes(value) for _, value in tensors))


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of an entry of a state; quantised layers keep them in tuples, beside settings."""
    if isinstance(value, Tensor):
        yield name, value.dequantize() if value.is_quantized else value
    elif isinstance(value, tuple):
        for inner in value:
            yield from _tensors(name, inner)


def _bytes(value: Tensor) -> bytes:
    """Return the raw memory of a tensor of any dtype: NumPy has no bfloat16."""
    flat = value.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
