"""pytorch-grad-cam and torch-cam: CAM objects and extractors. Both scale each map, which keeps the ranking."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from ..basics.messages import ArgumentError
from ..explainer import Explanation
from ..models import Classifier
from .adapted import Adapted, check_arguments, inputs_of, layer_names, params_of

_PLUMBING = ("compute_input_gradient", "uses_gradients", "detach")  # the same for every object of a class


def from_grad_cam(cam: Any, model: Classifier, *, name: str | None = None, seed: int = 0, **kwargs: Any) -> Adapted:
    """Make an explainer of a `cam` of pytorch-grad-cam on ``model.net``.

    Args:
        kwargs: passed to each call of the CAM, such as ``aug_smooth=True``.
        seed: for CAMs that draw random numbers (``RandomCAM``).
    """
    name = name or f"pytorch_grad_cam.{type(cam).__name__}"
    bases = _bases(cam, name)
    prepare = inputs_of(model, bases[0].model, name)
    layers = [layer for base in bases for layer in base.target_layers]
    check_arguments(name, kwargs, ("input_tensor", "targets"))

    def call(images: Tensor, targets: Tensor) -> Explanation:
        # The library calls backward(): with frozen parameters it computes no gradients for them.
        inputs = prepare(images).requires_grad_()
        model.net.requires_grad_(False)
        # The library would silently explain only the first use of a layer that is used several times, as ReLUs are.
        calls: Counter[nn.Module] = Counter()
        for module in {model.net, *layers}:  # `as_found` removes these hooks
            module.register_forward_hook(lambda module, *_: calls.update([module]))
        scores = [itemgetter((..., index)) for index in targets.tolist()]  # as its ClassifierOutputTarget
        maps = cam(input_tensor=inputs, targets=scores, **kwargs)
        if reused := [layer for layer in layers if calls[layer] > calls[model.net]]:
            raise ArgumentError(
                f"{name} cannot explain layer={layer_names(model.net, reused, name)}, which the network calls more "
                f"than once: give a module that it calls once, such as the block before."
            )
        return Explanation(torch.from_numpy(maps).to(images.device), _logits(cam, kwargs))

    return Adapted(call, name, params_of(cam, _PLUMBING) | kwargs, model, layer_names(model.net, layers, name), seed)


def _bases(cam: Any, name: str) -> list[Any]:
    """Return the CAM itself, or the CAMs that it wraps (``SESS``, ``RefineCAM``)."""
    if type(cam).__name__ == "FinerCAM":
        raise ArgumentError(f"{name} chooses its targets by itself: use FinerCAM of torch-cam, which takes a class.")
    bases: list[Any] = getattr(cam, "base_cam_per_layer", [getattr(cam, "base_cam", cam)])
    if not all(hasattr(base, "activations_and_grads") for base in bases):
        raise ArgumentError(
            f"{name} is no CAM of pytorch-grad-cam: give one such as GradCAM(model=…, target_layers=…)."
        )
    return bases


def _logits(cam: Any, kwargs: dict[str, Any]) -> Tensor | None:
    """Return the logits that the CAM has just computed, if they are those of the images themselves."""
    logits = getattr(cam, "outputs", None)
    if kwargs.get("aug_smooth") or not isinstance(logits, Tensor):
        return None
    cam.outputs = logits.detach()  # otherwise it keeps a whole batch's graph until its next call
    return logits


def from_torchcam(
    extractor: Any, model: Classifier, *, name: str | None = None, seed: int = 0, **kwargs: Any
) -> Adapted:
    """Make an explainer of a torch-cam `extractor` on ``model.net``; it fuses the maps of several layers.

    Leave its hooks on the network as long as you use it, then call ``extractor.remove_hooks()``.

    Args:
        kwargs: passed to each call of the extractor, such as ``normalized=False``.
        seed: for extractors that draw random numbers (``SmoothGradCAMpp``, ``SSCAM``).
    """
    name = name or f"torchcam.{type(extractor).__name__}"
    if not hasattr(extractor, "target_names"):
        raise ArgumentError(f"{name} is no extractor of torch-cam: give one such as LayerCAM(model.net, 'layer4').")
    prepare = inputs_of(model, extractor.model, name)
    check_arguments(name, kwargs, ("class_idx", "scores", "targets"))

    def call(images: Tensor, targets: Tensor) -> Explanation:
        # The extractor's hooks record this pass. They need a gradient even if all parameters are frozen.
        logits = model.split("input").head(prepare(images).requires_grad_())
        maps = extractor(targets.tolist(), logits, **kwargs)
        extractor.reset_hooks()  # otherwise it keeps a whole batch's graph until the next pass
        return Explanation(maps[0] if len(maps) == 1 else extractor.fuse_cams(maps), logits)

    params = params_of(getattr(extractor, "base_cam", extractor)) | params_of(extractor) | kwargs
    return Adapted(call, name, params, model, ", ".join(extractor.target_names), seed)
