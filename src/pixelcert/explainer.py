"""Explainer: the one interface of everything that can be certified, and the checks of what it answers.

An explainer turns images (B, C, H, W) and targets (B,) into one map per image. It must be deterministic, and each map
must depend on its own image only: not on the rest of the batch, not on the clean image. `sample` wraps a plain callable
once, with `as_explainer`; all code after that sees only objects with the attributes of `Explainer`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from .basics.locks import one_at_a_time
from .basics.messages import ArgumentError, ExplainerError, check_choice, check_logits, check_whole
from .basics.training import refuse_training

if TYPE_CHECKING:
    from .models.classifier import Classifier

Precision = Literal["auto", "float32", "tf32", "bfloat16"]
Compile = bool | Literal["auto"]

Surrogate = Callable[[Tensor], Tensor]  # images (B, C, H, W) → maps (B, H, W) that can be differentiated


RANDOM = "random numbers"  # the step of surgery on an explanation that draws them


class Explanation(NamedTuple):
    """The answer of an explainer to a batch of images."""

    maps: Tensor  # (B, H, W), or (B, C, H, W) whose channels are summed; at the images' size or coarser
    logits: Tensor | None = None  # (B, classes), so that the prediction can be certified by the same noise


@dataclass(frozen=True)
class Tuning:
    """The way an explainer is computed: images at once, number format, and whether its network is compiled.

    A caller may leave each of them open; `pixelcert.sampling.precision` settles them.
    """

    batch_size: int | None = None
    precision: str = "auto"  # a Precision; once settled, also a black box's own format
    compile: Compile = "auto"

    def check(self) -> None:
        """Refuse values that no tuning can have."""
        check_choice("precision", self.precision, Precision)
        if self.compile not in (True, False, "auto"):
            raise ArgumentError(f'compile={self.compile!r} is not known: use True, False or "auto".')
        if self.batch_size is not None:
            size = check_whole("batch_size", self.batch_size, 1, example=16)
            object.__setattr__(self, "batch_size", size)  # assignment is frozen


def _not_known(height: int, width: int) -> None:
    """Answer for a model whose number of classes is not known."""


@dataclass(frozen=True)
class NoModel:
    """The model of a black box, as far as it is known. A `pixelcert.Classifier` has the same parts."""

    name: str = ""
    weights_hash: str = ""  # SHA-256 of the parameters
    device: torch.device | None = None  # None: the image's own
    channels: int | None = None
    classes: Sequence[str] | None = None
    precision: str = "float32"  # the number format of its parameters
    origin: Mapping[str, str] | None = None  # the names that `load_model` was given
    count_classes: Callable[[int, int], int | None] = _not_known  # by height and width of an image


Model: TypeAlias = "Classifier | NoModel"
NO_MODEL = NoModel()
_PARTS: dict[str, Any] = dict.fromkeys(("name", "weights_hash", "precision"), str)
_PARTS |= {"device": torch.device, "channels": int, "classes": Sequence, "count_classes": Callable, "origin": Mapping}


def as_model(told: Any) -> Model:
    """Return a model as it is; of any other network or object, keep the parts of a model that it tells."""
    if all(hasattr(told, name) for name in _PARTS):
        return told  # type: ignore[no-any-return]
    return NoModel(
        **{name: part for name, kind in _PARTS.items() if isinstance(part := getattr(told, name, None), kind)}
    )


class Explainer:
    """Anything that can be certified. A subclass defines `explain`, and overrides the defaults that do not fit it."""

    name: str = ""
    layer: str = ""
    model: Model = NO_MODEL
    tunable: bool = False  # `tuned` gives another precision, and a faster network
    fusable: bool = False  # it does not change the network while it runs, so convolutions may be fused
    compilable: bool = False  # fusable with few input sizes, so the network may be compiled

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters, by name."""
        return {}

    @property
    def passes(self) -> int:
        """About how many passes of the network one image takes: a guide for the batch size."""
        return 1

    @property
    def bears_bfloat16(self) -> bool:
        """True if certificates hardly change with that precision (docs/performance.md)."""
        return False

    @property
    def reach(self) -> int | None:
        """The distance in pixels within which the image decides most of a map value; None without such a limit."""
        return None

    @property
    def examined(self) -> set[Hashable] | None:
        """The batches in which its maps were seen to be independent; None if they must be checked for every image."""
        return None

    @property
    def surgery(self) -> Mapping[str, str]:
        """The steps of surgery on the network: each done, or the reason why not."""
        return {}

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        """Return the maps of images (B, C, H, W) in pixel space, for one target each (B,)."""
        raise TypeError(f"{type(self).__name__} does not define explain")

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        """Return the maps only."""
        return self.explain(images, targets).maps

    def tuned(self, tuning: Tuning) -> Explainer:
        """Return this explainer as it is computed under a settled `tuning`."""
        return self

    def surrogate(self, target: int) -> Surrogate | None:
        """Return maps that an attack can differentiate, if there is a formula for them."""
        return None


Explains = Explainer | Callable[[Tensor, Tensor], Any]  # what `sample` takes


_TOLD: dict[str, type] = {"name": str, "params": Mapping, "layer": str, "passes": int}


class BlackBox(Explainer):
    """A plain callable ``(images, targets) → maps`` as an explainer, known by its name only.

    An object may have a method `explain` instead, and describe itself in attributes named as an explainer's.
    """

    params: Mapping[str, Any] = MappingProxyType({})
    passes: int = 1

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = getattr(call, "explain", call)
        self.name = str(getattr(call, "__qualname__", type(call).__qualname__))
        for attribute, kind in _TOLD.items():
            if isinstance(told := getattr(call, attribute, None), kind):
                setattr(self, attribute, told)
        self.model = as_model(getattr(call, "model", None))

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        answer = self._call(images, targets)
        return answer if isinstance(answer, Explanation) else Explanation(answer)


def as_explainer(explains: Explains) -> Explainer:
    """Return an explainer as it is, and any other callable as a `BlackBox`; refuse one on a network in training."""
    if isinstance(explains, BlackBox) or (isinstance(explains, Explainer) and explains.tunable):
        return explains  # looked through already, or its model watches the network
    refuse_training(explains)
    if isinstance(explains, Explainer):
        return explains
    if not callable(getattr(explains, "explain", explains)):
        raise ArgumentError(
            f"explainer is {type(explains).__name__}: give a callable (images, targets) → maps, or pixelcert.adapt(it)."
        )
    return BlackBox(explains)


def describe(explainer: Explainer) -> dict[str, Any]:
    """Return the facts about an explainer's method and model that a provenance holds."""
    model = {"model": explainer.model.name, "weights": explainer.model.weights_hash}
    made = {"method": explainer.name, "params": dict(explainer.params), "layer": explainer.layer}
    return {**made, **model, "origin": explainer.model.origin}


def class_names(explainer: Explainer, indices: Iterable[int]) -> dict[str, str]:
    """Return the names of classes by index, as far as the explainer's model has them."""
    names = explainer.model.classes or ()
    return {str(index): str(names[index]) for index in indices if index < len(names)}


# ── Maps ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def explain(explainer: Explainer, images: Tensor, target: int | Tensor) -> Explanation:
    """Return one checked map (B, H, W) per image, at the images' size and on their device.

    `target` is one class for all images, or one for each (B,). Channels are summed and coarser maps are upsampled
    bilinearly.
    """
    targets = target if isinstance(target, Tensor) else torch.full((len(images),), target, device=images.device)
    with one_at_a_time:
        maps, logits = explainer.explain(images, targets)
    _check_maps(maps, images)
    if logits is not None:
        check_logits(logits, len(images), "the explainer")
    maps = maps.detach() if maps.dtype == torch.float64 else maps.detach().float()
    return Explanation(at_full_size(maps, images), logits)


def at_full_size(maps: Tensor, images: Tensor) -> Tensor:
    """Return maps as an explainer gives them, at the images' size (B, H, W); channels are summed."""
    return upsample(sum_channels(maps) if maps.ndim == 4 else maps, images)


def sum_channels(values: Tensor) -> Tensor:
    """Sum (B, C, h, w) to (B, h, w), in the same order at every place.

    A plain sum rounds differently at different places in memory. Equal places would then be ranked the same way in
    every sample, and their order would be certified.
    """
    if values.shape[1] <= 4:  # as an image has
        return reduce(torch.add, values.unbind(dim=1))
    return values.movedim(1, -1).contiguous().sum(dim=-1)


def upsample(maps: Tensor, images: Tensor) -> Tensor:
    """Resize maps (B, h, w) bilinearly to the images' size. A constant map stays exactly constant."""
    if maps.shape[1:] == images.shape[2:]:
        return maps
    first = maps[:, :1, :1]
    constant = (maps == first).all(dim=2, keepdim=True).all(dim=1, keepdim=True)
    base = torch.where(constant, first, 0)  # 0 for other maps, so that the zeros of a ReLU stay zeros
    above = F.interpolate((maps - base)[:, None], size=images.shape[2:], mode="bilinear", align_corners=False)[:, 0]
    return base + above


def _check_maps(maps: Any, images: Tensor) -> None:
    batch, _, height, width = images.shape
    if not isinstance(maps, Tensor):
        raise ExplainerError(
            f"the explainer returned {type(maps).__name__}: return a tensor (B, H, W), such as torch.from_numpy(maps)."
        )
    if maps.ndim not in (3, 4) or len(maps) != batch or maps.shape[-2] > height or maps.shape[-1] > width:
        raise ExplainerError(
            f"the explainer returned shape {tuple(maps.shape)} for {batch} images of {height} × {width}: return "
            f"({batch}, H, W) or ({batch}, C, H, W), at that size or coarser."
        )
    if maps.numel() == 0 or not maps.is_floating_point():
        raise ExplainerError(f"the explainer returned {maps.numel()} values of {maps.dtype}: return floats.")
    if maps.device != images.device:
        raise ExplainerError(
            f"the explainer returned maps on {maps.device} for images on {images.device}: leave them there, or move "
            f"them back with maps.to(images.device)."
        )
