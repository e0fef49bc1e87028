"""Classifier: a network with its preprocessing inside, so that noise is added in the space where the radius holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, fx, nn

from ..basics.files import sha256
from ..basics.messages import ArgumentError, ModelError, check_target
from ..image import check_image
from .cropping import LocalParts, find_local_parts
from .heads import LinearHead, find_linear_head, linear_layers
from .inspection import Memory, any_image, close, structure
from .splitting import HookedSplit, Split, final_layer, split_at

Kind = TypeVar("Kind", bound="Classifier")
T = TypeVar("T")

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_SAME = 1e-4  # how far logits may be apart that come by the same arithmetic, as a share of the largest


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

    _layout: torch.memory_format = torch.preserve_format  # of what the network sees
    _watched = True  # whether somebody else might change the network

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
        if any(tensor.is_inference() for tensor in (*net.parameters(), *net.buffers())):
            raise ModelError(
                f"{self.name} was made under torch.inference_mode(), where a change of weights leaves no trace: make "
                f"it outside."
            )
        self.classes = tuple(classes) if classes is not None else None
        self.size = size
        self._mean, self._std = _check_normalisation(mean, std)
        self.channels = self._mean.shape[1]
        self._final = final
        self._memory = Memory(net, self._watched)
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
        self._memory.clear()  # it may hold constants on the old device
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
        return self.recall(("split", layer), lambda: self._split(layer))

    def recall(self, key: Hashable, find: Callable[[], T], *, values: bool = False) -> T:
        """What was found out about the network under `key`, found anew if it has changed: see `Memory`."""
        self._check_modules()
        return self._memory.recall(key, find, values=values)

    def _check_modules(self) -> None:
        """Refuse what mixes the images of a batch."""
        modules = list(self.net.modules())
        if any(module.training for module in modules):
            raise ModelError(f"{self.name} is in training mode, where images of a batch mix: call net.eval().")
        norms = [module for module in modules if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        if any(norm.running_mean is None for norm in norms):
            raise ModelError(f"{self.name} has a batch norm without running statistics, where images of a batch mix.")

    def _split(self, layer: str, change: Callable[[nn.Module], nn.Module] = lambda part: part) -> Split:
        """The split whose parts are those of the network, after a `change`."""
        if layer == "input":
            net = change(self.net)
            return Split(self.normalise, lambda inputs: self._logits(net(inputs.clone())))  # it may work in place
        if traced := self._traced(layer):
            return self._joined(*map(change, traced))
        hooked = HookedSplit(self.net, self.final if layer == "final" else layer)
        return Split(
            lambda images: hooked.body(self.normalise(images)), lambda features: self._logits(hooked.head(features))
        )

    def _traced(self, layer: str) -> tuple[fx.GraphModule, fx.GraphModule] | None:
        """The network's graph in two at `layer`; None at the input, and where it cannot be traced."""
        if layer == "input":
            return None
        return self.recall(("graph", layer), lambda: self._trace(layer))

    def _trace(self, layer: str) -> tuple[fx.GraphModule, fx.GraphModule] | None:
        """A trace follows one way through the network's code, which must be the one that images take.

        That cannot be tried of a network that does not take images of its `size`.
        """
        if (traced := split_at(self.net, self.final if layer == "final" else layer)) is None:
            return None
        expected = None if self.device.type == "meta" else self._try_out(Classifier._split(self, "input"))
        if expected is None:
            return traced
        answer = self._try_out(self._joined(*traced))
        return traced if answer is not None and close(answer, expected, _SAME) else None

    def _joined(self, body: nn.Module, head: nn.Module) -> Split:
        """Two halves of the network as a split."""
        return Split(lambda images: body(self.normalise(images)), lambda features: self._logits(head(features)))

    def local_parts(self, layer: str) -> LocalParts:
        """What follows `layer`, beginning with parts whose places depend on places nearby alone, if it has such."""
        return self.recall(("local parts", layer), lambda: self._local_parts(layer))

    def _local_parts(self, layer: str) -> LocalParts:
        # As the modules compute it: a split that was fused or compiled rounds otherwise.
        whole, traced = Classifier._split(self, layer), self._traced(layer)
        if layer == "input":
            found = find_local_parts(self.net)
        elif traced:
            found = find_local_parts(traced[1])
        else:
            return LocalParts((), whole.head)
        same = found.parts and self._agree(whole, Split(whole.features, found.run), _SAME)
        return found if same else LocalParts((), whole.head)

    def _agree(self, one: Split, other: Split, share: float) -> bool:
        """Whether two splits answer the same, but for rounding: torch.fx does not see every way to write a network."""
        expected, answer = self._try_out(one), self._try_out(other)
        return expected is not None and answer is not None and close(answer, expected, share)

    @torch.no_grad()
    def _try_out(self, split: Split) -> Tensor | None:
        """The logits of an image; None if cuDNN has no kernel, it answers no tensor, or takes images of other sizes."""
        try:
            return split.head(split.features(any_image(self.channels, self.size, self.device))).float()
        except torch.OutOfMemoryError:
            raise
        except Exception:  # whatever the network's code raises
            return None

    def linear_head(self, layer: str) -> LinearHead | None:
        """The head after `layer`, if it is just average pooling and a linear layer."""
        if (traced := self._traced(layer)) is None:
            return None
        return self.recall(("linear head", layer), lambda: find_linear_head(traced[1]), values=True)

    def linear_layers(self, layer: str) -> list[nn.Linear]:
        """The linear layers after `layer`, if only ReLUs and pooling lie between them; [] otherwise."""
        if (traced := self._traced(layer)) is None:
            return []
        return self.recall(("linear layers", layer), lambda: linear_layers(traced[1]))

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

    @property
    def final(self) -> str:
        """The module whose output is the last spatial layer."""
        return self._final or self._memory.recall("final", lambda: final_layer(self.net))

    @property
    def precision(self) -> str:
        """The number format of the network's parameters."""
        dtype = next((value.dtype for value in self.net.parameters()), torch.float32)
        return str(dtype).removeprefix("torch.")

    def class_index(self, name: str) -> int:
        """Return the index of the class that is called `name`, or whose index `name` is."""
        if name.isdecimal():
            return check_target(int(name), self.num_classes)
        found = [index for index, known in enumerate(self.classes or ()) if known == name]
        if len(found) > 1:
            indices = ", ".join(map(str, found))
            raise ArgumentError(f"target {name!r} is the name of classes {indices}: give the index.")
        if not found:
            raise ArgumentError(f"target {name!r} is neither an index nor a class name of {self.name}: give its index.")
        return found[0]

    @property
    def num_classes(self) -> int:
        return self.count_classes(self.size, self.size)

    def count_classes(self, height: int, width: int) -> int:
        """How many logits an image of this size gets: the number of class names, or by trying."""
        if self.classes is not None:
            return len(self.classes)
        return self._memory.recall(("classes", height, width), lambda: self._try_size(height, width))

    @torch.inference_mode()
    def _try_size(self, height: int, width: int) -> int:
        try:
            return int(self(torch.zeros(1, self.channels, height, width, device=self.device)).shape[1])
        except RuntimeError as error:
            raise ModelError(
                f"{self.name} cannot take images of {height} × {width} ({error}): give the size it was made for."
            ) from error

    @property
    def weights_hash(self) -> str:
        """SHA-256 over the preprocessing, the network's modules and their settings, and all parameters and buffers.

        Kept until the network changes, which writing through ``.data`` does not show. Code, hooks, and settings that a
        module does not keep under the names it was made with are not seen.
        """
        return self._memory.recall("hash", self._hash, values=True)

    def _hash(self) -> str:
        tensors = [("", self._mean), ("", self._std), *sorted(self.net.state_dict().items())]
        said = (f"{name} {tuple(value.shape)} {value.dtype}" for name, value in tensors)
        words = "\n".join((structure(self.net), str(self._final), *said))
        return sha256(words.encode(), *(_bytes(value) for _, value in tensors))


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
