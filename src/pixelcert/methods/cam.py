"""CAM: activation maps, weighted by the class's own weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..basics.messages import ModelError
from ..explainer import Explanation
from ..models.heads import linear_layers
from ..models.splitting import feature_maps
from .base import Method, before_linear_head
from .gradient import weighted


@dataclass(frozen=True)
class CAM(Method):
    """Σ_c w_c A_c, with w the class's weights in the linear layer.

    - If average pooling and one linear layer follow the layer, this is the definition: w is that layer's row.
    - If several linear layers follow (VGG), w is the product of their matrices without the activations between them,
      averaged over the positions that each channel has in it.
    - In torchvision's vision transformers, A are the patch tokens behind the last normalisation, whatever layer is
      called final, and w is the head's row: the map is the head's answer to each patch in place of the class token.
    - At the input, A is the normalised image, and w is pulled back through the first convolution: class weights are
      averaged down to its number of output channels, and its kernels over space.
    """

    name = "cam"
    title = "CAM"
    short = "CAM"
    family = "activation"
    look = ("#ffd68a", "o")
    layers = ("final", "input")
    cost = "1 forward"
    citation = "Zhou et al., 2016"
    untried = (*Method.untried, "head")
    formula = before_linear_head(weighted)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(why := linear_layers(self.model, self._last), str):
            where = f"{self.model.name} has no weights for CAM behind {self.model.final!r}"
            raise ModelError(f"{where} ({why}): use grad_cam.")

    @property
    def place(self) -> str:
        """The layer whose maps are weighted: in a transformer behind the final normalisation, before the head."""
        return self._last if self.layer == "final" else self.layer

    @property
    def _last(self) -> str:
        return "encoder.ln" if "encoder.ln" in dict(self.model.net.named_modules()) else "final"

    @torch.no_grad()
    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        body, head = self.model.split(self.place)
        features = body(images)
        maps = feature_maps(features, images)
        weights = self._class_weights(targets)
        if self.layer == "input":
            weights = self._through_first_convolution(weights)
        elif weights.shape[1] != maps.shape[1]:
            weights = weights.view(len(weights), maps.shape[1], -1).mean(dim=2)
        return Explanation((weights[:, :, None, None] * maps).sum(dim=1), head(features))

    def _class_weights(self, targets: Tensor) -> Tensor:
        """Return the targets' rows of the product of the linear layers behind the maps: (B, inputs)."""
        layers = linear_layers(self.model, self._last)
        assert not isinstance(layers, str), "the model's head does not change"
        weights = layers[-1].weight[targets]
        for layer in reversed(layers[:-1]):
            weights = weights @ layer.weight.to(weights)
        return weights

    def _through_first_convolution(self, weights: Tensor) -> Tensor:
        first = self.model.first_convolution
        if first is None:
            raise ModelError(f"{self.model.name} has no convolution for CAM to reach the input: use layer='final'.")
        kernels = first.mean(dim=(2, 3))  # (out channels, in channels)
        return F.adaptive_avg_pool1d(weights[:, None], kernels.shape[0])[:, 0] @ kernels
