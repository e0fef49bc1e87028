"""pytorch-grad-cam and torch-cam: CAM objects and extractors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..basics.files import plain
from ..basics.messages import ArgumentError
from ..explainer import Explanation
from ..models import Classifier
from .adapted import Adapted, inputs_of, layer_names, logits_of, own_settings

_PLUMBING = ("compute_input_gradient", "uses_gradients", "detach")  # the same for every object of a class


def from_grad_cam(cam: Any, model: Classifier, *, name: str | None = None, seed: int = 0, **kwargs: Any) -> Adapted:
    """A `cam` of pytorch-grad-cam on ``model.net`` as an explainer.

    It scales each map by itself, which does not change the ranking.

    Args:
        kwargs: those of its call, such as ``aug_smooth=True``.
        seed: for CAMs that draw random numbers (``RandomCAM``).
    """
    name = name or f"pytorch_grad_cam.{type(cam).__name__}"
    bases = _bases(cam, name)
    prepare = inputs_of(model, bases[0].model, name)
    layers = [layer for base in bases for layer in base.target_layers]
    layer = layer_names(model.net, layers, name)
    if "targets" in kwargs:
        raise ArgumentError(f"{name} was given targets: leave them out, pixelcert sees to it.")

    def run(images: Tensor, targets: Tensor) -> Explanation:
        # The library calls backward(): with frozen parameters it computes no gradients for them.
        inputs = prepare(images).requires_grad_()
        model.net.requires_grad_(False)
        with _each_called_once(model, layers, name):
            maps = cam(input_tensor=inputs, targets=_targets(targets), **kwargs)
        return Explanation(torch.from_numpy(maps).to(images.device), _logits(cam, model, images, kwargs))

    params = own_settings(cam, _PLUMBING) | {key: plain(value) for key, value in kwargs.items()}
    return Adapted(run, name, params, model, layer, seed)


def _bases(cam: Any, name: str) -> list[Any]:
    """The CAM itself, or those that a method over CAMs (``SESS``, ``RefineCAM``) is made of."""
    if type(cam).__name__ == "FinerCAM":
        raise ArgumentError(f"{name} chooses its targets by itself: use FinerCAM of torch-cam, which takes a class.")
    bases: list[Any] = getattr(cam, "base_cam_per_layer", [getattr(cam, "base_cam", cam)])
    if not all(hasattr(base, "activations_and_grads") for base in bases):
        raise ArgumentError(
            f"{name} is no CAM of pytorch-grad-cam: give one such as GradCAM(model=…, target_layers=…)."
        )
    return bases


@contextmanager
def _each_called_once(model: Classifier, layers: list[Any], name: str) -> Iterator[None]:
    """Refuse a layer that the network uses several times: the library would silently explain its first use.

    A ReLU is often such a layer.
    """
    calls: Counter[nn.Module] = Counter()
    handles = [one.register_forward_hook(lambda module, *_: calls.update([module])) for one in (model.net, *layers)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    if reused := [layer for layer in layers if calls[layer] > calls[model.net]]:
        raise ArgumentError(
            f"{name} cannot explain layer={layer_names(model.net, reused, name)}, which the network calls more than "
            f"once: give a module that it calls once, such as the block before."
        )


def _targets(targets: Tensor) -> list[Callable[[Tensor], Tensor]]:
    """What the library calls ClassifierOutputTarget, without importing it."""
    return [partial(_score, index) for index in targets.tolist()]


def _score(index: int, output: Tensor) -> Tensor:
    return output[..., index]


def _logits(cam: Any, model: Classifier, images: Tensor, kwargs: dict[str, Any]) -> Tensor:
    """The logits that the CAM has just computed, where they are those of the images themselves."""
    if kwargs.get("aug_smooth") or not isinstance(getattr(cam, "outputs", None), Tensor):
        return logits_of(model, images)
    cam.outputs = cam.outputs.detach()  # it would keep a whole batch's graph until its next call
    logits: Tensor = cam.outputs
    return logits


def from_torchcam(
    extractor: Any, model: Classifier, *, name: str | None = None, seed: int = 0, **kwargs: Any
) -> Adapted:
    """A torch-cam `extractor` on ``model.net`` as an explainer; maps of several layers are fused, as it does.

    It scales each map by itself, which does not change the ranking. Its hooks must stay on the network meanwhile: call
    ``extractor.remove_hooks()`` when you are done.

    Args:
        kwargs: those of its call, such as ``normalized=False``.
        seed: for extractors that draw random numbers (``SmoothGradCAMpp``, ``SSCAM``).
    """
    name = name or f"torchcam.{type(extractor).__name__}"
    if not hasattr(extractor, "target_names"):
        raise ArgumentError(f"{name} is no extractor of torch-cam: give one such as LayerCAM(model.net, 'layer4').")
    prepare = inputs_of(model, extractor.model, name)
    if ours := kwargs.keys() & {"class_idx", "scores", "targets"}:
        raise ArgumentError(f"{name} was given {', '.join(sorted(ours))}: leave it out, pixelcert sees to it.")

    def run(images: Tensor, targets: Tensor) -> Explanation:
        # It hooks the run that comes before it, and asks for a gradient there even where all parameters are frozen.
        logits = model.split("input").head(prepare(images).requires_grad_())
        maps = extractor(targets.tolist(), logits, **kwargs)
        extractor.reset_hooks()  # it would keep a whole batch's graph until the next run
        return Explanation(maps[0] if len(maps) == 1 else extractor.fuse_cams(maps), logits)

    base = getattr(extractor, "base_cam", extractor)
    params = own_settings(base) | own_settings(extractor) | {key: plain(value) for key, value in kwargs.items()}
    return Adapted(run, name, params, model, ", ".join(extractor.target_names), seed)
