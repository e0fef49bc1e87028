"""LRP: the target's logit handed down from layer to layer; each layer shares it among its inputs by a rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..basics.machine import tf32
from ..basics.messages import ModelError
from ..explainer import Explanation
from ..models.folding import Folding, fold_batch_norms
from ..models.heads import LinearHead
from ..models.inspection import Tolerance, agree
from ..models.splitting import feature_maps
from .base import Method, before_linear_head
from .gradient import product, target_logits, widen
from .lrp_rules import Box, Rules


@dataclass(frozen=True)
class LRP(Method):
    """The relevance of each pixel or activation, summed over channels; the relevance of the logit is the logit itself.

    Convolutions: z⁺-rule, R_i = Σ_j (a_i w_ij)⁺ R_j / Σ_i (a_i w_ij)⁺, with positive biases in the denominator, and
    batch norms merged into them. At "input" the first convolution has the z^B-rule, for pixels from 0 to 1 as the
    normalisation maps them. Linear layers: ε-rule. Residual sums and average pooling: in proportion to the terms. Max
    pooling: all to the winner. Activations: relevance passes unchanged.

    Transformers, after AttnLRP: in attention, half of the relevance goes to the values and half to the attention
    weights. The softmax's gradient, which does not conserve it, passes the latter on: half to the queries and half to
    the keys. The four projections have the ε-rule. Layer norm divides by a constant and subtracts its mean as a linear
    map; GELU passes relevance unchanged; the patch embedding is the first convolution. The relevance of class token and
    position embedding is in no map. Other products of two activations (gates) go in halves too, quotients to the
    dividend, and products with a constant matrix by the ε-rule with ε = 0.

    A batch norm that cannot be merged, as behind an activation, stays an affine layer, with a warning. If `layer` is a
    convolution with a batch norm behind it, the split separates the two, and the same holds. A function without a rule
    is refused; `torch.autograd.Function` cannot be seen and keeps its own gradient.
    """

    name = "lrp"
    title = "LRP"
    short = "LRP"
    family = "backpropagation"
    look = ("#08306b", "D")
    cost = "2 forwards, 1 backward; at a layer 1 forward, and these of the head; 1 forward before a linear head"
    citation = "Bach et al., 2015; Montavon et al., 2017; for transformers Achtibat et al., 2024"
    fusable = False
    compilable = False
    formula = before_linear_head(product)

    epsilon: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.epsilon < math.inf, "epsilon", "use a number above 0")

    def explain(self, images: Tensor, targets: Tensor) -> Explanation:
        features, head = self.model.split(self.layer)
        with torch.no_grad():
            activations = features(images)
            if (linear := self.linear_head) is not None:
                return self._explain_linear(linear, activations, targets)
        bounds = (0, 1) if self.layer == "input" else ()
        box = [self.model.normalise(torch.full_like(images, bound)) for bound in bounds]
        with torch.enable_grad():
            key = ("lrp", self.layer, self.epsilon)
            folding = self.model.recall(key, lambda: self._fold(head, activations[:1]), values=True)
            leaves = [leaf.detach().requires_grad_() for leaf in (activations, *box)]
            with Rules(self.epsilon, folding, Box(*leaves) if box else None):
                logits = head(leaves[0])
            gradients = torch.autograd.grad(target_logits(logits, targets).sum(), leaves, materialize_grads=True)
        shares = [widen(leaf.detach()) * gradient for leaf, gradient in zip(leaves, gradients, strict=True)]
        return Explanation(feature_maps(torch.stack(shares).sum(dim=0), images).sum(dim=1), logits.detach())

    def _explain_linear(self, head: LinearHead, activations: Tensor, targets: Tensor) -> Explanation:
        """Explain average pooling and one ε-rule in closed form."""
        logits = head.logits(activations)
        chosen = target_logits(logits, targets)
        kept = chosen / (chosen + torch.copysign(chosen.new_full((), self.epsilon), chosen))
        weights = kept[:, None] * head.weight[targets] / activations[0, 0].numel()
        maps = torch.einsum("bc,bchw->bhw", weights, activations.to(weights))
        return Explanation(maps, logits)

    @tf32(allowed=False)
    def _fold(self, head: Callable[[Tensor], Tensor], activation: Tensor) -> Folding:
        """Fold the head's batch norms; refuse a head whose answer this changes, because the rules cannot follow it."""
        folding, expected = fold_batch_norms(head, activation)
        with Rules(self.epsilon, folding):
            logits = head(activation.detach().requires_grad_()).detach()
        half = torch.finfo(activation.dtype).bits <= 16
        if not agree(logits, expected, Tolerance.ROUNDED if half else Tolerance.REWRITTEN):
            raise ModelError(
                "lrp cannot follow this network, because its logits change when its batch norms are merged into its "
                "convolutions: use another method, a network whose weights do not depend on the image, or "
                "precision='float32' where the network rounds roughly."
            )
        return folding
