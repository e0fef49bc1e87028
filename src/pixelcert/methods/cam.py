"""CAM: the class's own weights, laid over the activation maps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..basics.messages import ModelError
from ..explainer import Explanation
from ..models.splitting import feature_maps
from .base import Method


@dataclass(frozen=True)
class CAM(Method):
    """Σ_c w_c A_c, with w the class's weights in the linear layer.

    - Where average pooling and one linear layer follow the layer, this is the definition: w is that layer's row.
    - Where several linear layers follow (VGG), w is the product of their matrices, the activations between them left
      out, averaged over the positions that each channel has in it.
    - In torchvision's vision transformers, A are the patch tokens behind the last normalisation, whatever layer is
      called final, and w the head's row: what the head would answer to each patch in place of the class token.
    - At the input, A is the normalised image, and w is pulled back through the first convolution: class weights are
      averaged down to its number of output channels, and its kernels over space.
    """

    name = "cam"
    title = "CAM"
    short = "CAM"
    family = "activation"
    layers = ("final", "input")
    cost = "1 forward"
    citation = "Zhou et al., 2016"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._linear_layers():
            raise ModelError(
                f"{self.model.name} has more than pooling and linear layers behind {self.model.final!r}, so CAM has no "
                f"weights for it: use grad_cam."
            )

    @torch.no_grad()
    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        body, head = self.model.split(self._layer)
        features = body(images)
        maps = feature_maps(features, images)
        weights = self._class_weights(targets)
        if self.layer == "input":
            weights = self._through_first_convolution(weights)
        elif weights.shape[1] != maps.shape[1]:
            weights = weights.view(len(weights), maps.shape[1], -1).mean(dim=2)
        return Explanation((weights[:, :, None, None] * maps).sum(dim=1), head(features))

    @property
    def _layer(self) -> str:
        """Where the maps are: in a transformer behind the final normalisation, whose class token the head reads."""
        return "encoder.ln" if self.layer == "final" and self._is_transformer else self.layer

    @property
    def _is_transformer(self) -> bool:
        return "encoder.ln" in dict(self.model.net.named_modules())

    def _linear_layers(self) -> list[nn.Linear]:
        return self.model.linear_layers("encoder.ln" if self._is_transformer else "final")

    def _class_weights(self, targets: Tensor) -> Tensor:
        """The targets' rows of the product of the linear layers behind the maps: (B, inputs)."""
        layers = self._linear_layers()
        weights = layers[-1].weight[targets]
        for layer in reversed(layers[:-1]):
            weights = weights @ layer.weight.to(weights)
        return weights

    def _through_first_convolution(self, weights: Tensor) -> Tensor:
        first = self.model.first_convolution
        if first is None:
            raise ModelError(f"{self.model.name} has no convolution, through which CAM would reach the input.")
        kernels = first.mean(dim=(2, 3))  # (out channels, in channels)
        return F.adaptive_avg_pool1d(weights[:, None], kernels.shape[0])[:, 0] @ kernels
