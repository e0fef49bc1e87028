"""torch-cam: extractors, such as ``LayerCAM(net, "layer4")``."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import ArgumentError
from ..explainer import Explanation
from ..models import Classifier
from .adapted import Adapted, inputs_of
from .settings import own_settings, plain


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
