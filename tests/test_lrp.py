"""LRP against zennit and against its own promise: what the logit gives is what the pixels get."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import pixelcert as pc
from pixelcert.methods import lrp_rules
from pixelcert.methods.lrp import LRP
from pixelcert.models.folding import Folding, fold_batch_norms
from pixelcert.models.loading import torchvision_models

MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)
TARGETS = torch.tensor([3, 0, 4])
NOTHING_FOLDED = Folding({}, frozenset())


def images(batch: int = 3, size: int = 32, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(1)).to(dtype)


def shake_batch_norms(net: nn.Module) -> None:
    """Statistics and weights with which merging a batch norm is not the same as leaving it out."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.3, 0.3)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.2, 0.2)
            module.eps = 1e-12  # zennit leaves each batch norm that it merged with a factor of 1 / √(1 + eps)


def zero_shifts(net: nn.Module) -> None:
    """No biases, and batch norms that only scale: nothing but the inputs can take relevance."""
    for name, parameter in net.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.zeros_(module.running_mean)


def small_network() -> nn.Sequential:
    relu = nn.ReLU(inplace=True)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        relu,
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, stride=2, bias=False),
        nn.BatchNorm2d(8),
        relu,  # the same module again
        nn.Conv2d(8, 8, 3, groups=2),  # its output keeps its sign
        nn.Conv2d(8, 6, 2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 10),
        nn.ReLU(),
        nn.Linear(10, 5),
    )


@pytest.fixture
def model() -> pc.Classifier:
    torch.manual_seed(0)
    net = small_network().double()
    shake_batch_norms(net)
    return pc.Classifier(net, MEAN, STD, size=32)


@pytest.fixture(scope="module")
def resnet18() -> pc.Classifier:
    torch.manual_seed(0)
    model = pc.load_model("resnet18", weights=None, device="cpu")
    model.net.double()
    shake_batch_norms(model.net)
    return model


@pytest.fixture(scope="module")
def vgg11() -> pc.Classifier:
    torch.manual_seed(0)
    model = pc.load_model("vgg11", weights=None, device="cpu")  # float32: its linear layers alone would take a gigabyte
    for name, parameter in model.net.named_parameters():
        if name.endswith("bias"):
            nn.init.uniform_(parameter, -0.1, 0.1)
    return model


@pytest.fixture(scope="module")
def vit_b_16() -> pc.Classifier:
    torch.manual_seed(0)
    model = pc.load_model("vit_b_16", weights=None, device="cpu")
    nn.init.normal_(model.net.heads.head.weight, std=0.1)  # torchvision leaves it zero, and so every relevance
    return model


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value of the maps."""
    assert actual.shape == expected.shape
    assert expected.std() > 0
    return float((actual - expected).abs().max() / expected.abs().max())


def conservation_error(maps: Tensor, logits: Tensor | None, targets: Tensor) -> Tensor:
    """|Σ R - logit| / |logit| of each image."""
    assert logits is not None
    start = logits[range(len(targets)), targets]
    return ((maps.sum(dim=(1, 2)) - start) / start).abs()


# ── zennit ────────────────────────────────────────────────────────────────────────────────────────────────────────


def zennit_relevance(
    net: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    canonizer: str | None = None,
    box: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """The same rules, put together from zennit's; summed over channels."""
    torchvision_models()  # zennit imports torchvision, which may need help
    zennit = pytest.importorskip("zennit", reason="zennit is not installed")
    from zennit import attribution, canonizers, composites, layer, rules, types
    from zennit import torchvision as zennit_torchvision

    assert zennit
    layer_map: list[Any] = [
        (types.Activation, rules.Pass()),
        (layer.Sum, rules.Norm(1e-15)),  # its stabiliser is the one thing that ours has not
        (types.AvgPool, rules.Norm(1e-15)),
        (types.Convolution, rules.ZPlus()),
        (nn.Linear, rules.Epsilon(0.25)),
    ]
    merge = {
        None: [],
        "sequential": [canonizers.SequentialMergeBatchNorm()],
        "resnet": [zennit_torchvision.ResNetCanonizer()],
    }[canonizer]
    if box is None:
        composite = composites.LayerMapComposite(layer_map, canonizers=merge)
    else:
        first = [(types.Convolution, rules.ZBox(*box))]
        composite = composites.SpecialFirstLayerMapComposite(layer_map, first, canonizers=merge)
    with attribution.Gradient(net, composite) as attributor:
        _, relevance = attributor(inputs, lambda output: F.one_hot(targets, output.shape[1]) * output)
    return relevance.detach().sum(dim=1)


def pixel_box(model: pc.Classifier, x: Tensor) -> tuple[Tensor, Tensor]:
    return model.normalise(torch.zeros_like(x[:1])), model.normalise(torch.ones_like(x[:1]))


@pytest.mark.parametrize("seed", range(5))
def test_small_networks_agree_with_zennit(seed: int) -> None:
    torch.manual_seed(seed)
    net = small_network().double()
    shake_batch_norms(net)
    model, x = pc.Classifier(net, MEAN, STD, size=32), images(dtype=torch.float64)
    expected = zennit_relevance(net, model.normalise(x), TARGETS, "sequential", pixel_box(model, x))
    assert relative_error(LRP(model=model, layer="input")(x, TARGETS), expected) < 1e-9


def test_resnet18_agrees_with_zennit(resnet18: pc.Classifier) -> None:
    x, targets = images(2, 64, torch.float64), torch.tensor([7, 900])
    expected = zennit_relevance(resnet18.net, resnet18.normalise(x), targets, "resnet", pixel_box(resnet18, x))
    assert relative_error(LRP(model=resnet18, layer="input")(x, targets), expected) < 1e-9


def test_vgg11_agrees_with_zennit(vgg11: pc.Classifier) -> None:
    x, targets = images(2, 64), torch.tensor([7, 900])
    expected = zennit_relevance(vgg11.net, vgg11.normalise(x), targets, None, pixel_box(vgg11, x))
    assert relative_error(LRP(model=vgg11, layer="input")(x, targets), expected) < 1e-4


@pytest.mark.parametrize("layer", [1, 3, 5, 7])
def test_a_named_module_agrees_with_zennit_on_what_follows_it(model: pc.Classifier, layer: int) -> None:
    x = images(dtype=torch.float64)
    before, after = model.net[: layer + 1], model.net[layer + 1 :]
    with torch.no_grad():
        features = before(model.normalise(x))
    expected = zennit_relevance(after, features.clone(), TARGETS, "sequential")  # a ReLU behind it works in place
    assert relative_error(LRP(model=model, layer=str(layer))(x, TARGETS), expected) < 1e-9


def test_the_closed_form_before_a_linear_head_agrees_with_zennit(resnet18: pc.Classifier) -> None:
    x, targets = images(2, 64, torch.float64), torch.tensor([7, 900])
    net = resnet18.net
    with torch.no_grad():
        features = resnet18.split("final").features(x)
    after = nn.Sequential(net.avgpool, nn.Flatten(), net.fc)
    maps, logits = LRP(model=resnet18, layer="final").explain(x, targets)
    assert relative_error(maps, zennit_relevance(after, features, targets)) < 1e-9
    torch.testing.assert_close(logits, resnet18(x).detach())


def test_padding_that_is_a_function_of_its_own_is_followed_to_the_first_convolution() -> None:
    torch.manual_seed(0)

    class Padded(nn.Conv2d):
        def forward(self, inputs: Tensor) -> Tensor:
            return F.conv2d(F.pad(inputs, (0, 1, 0, 1)), self.weight, self.bias, self.stride)

    net = nn.Sequential(Padded(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(1536, 5))
    net = net.double()
    shake_batch_norms(net)
    model, x = pc.Classifier(net, MEAN, STD, size=32), images(dtype=torch.float64)
    expected = zennit_relevance(net, model.normalise(x), TARGETS, "sequential", pixel_box(model, x))
    assert relative_error(LRP(model=model, layer="input")(x, TARGETS), expected) < 1e-9


# ── Conservation ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layer", ["input", "2", "9"])
def test_relevance_is_conserved_where_nothing_else_can_take_it(model: pc.Classifier, layer: str) -> None:
    zero_shifts(model.net)
    maps, logits = LRP(model=model, layer=layer, epsilon=1e-9).explain(images(dtype=torch.float64), TARGETS)
    assert conservation_error(maps, logits, TARGETS).max() < 1e-4


@pytest.mark.parametrize("name", ["resnet18", "vgg11"])
def test_relevance_is_conserved_in_the_papers_networks(name: str) -> None:
    torch.manual_seed(0)
    model = pc.load_model(name, weights=None, device="cpu")
    zero_shifts(model.net)
    x, targets = images(2, 64), torch.tensor([7, 900])
    tiny = conservation_error(*LRP(model=model, layer="input", epsilon=1e-7).explain(x, targets), targets)
    real = conservation_error(*LRP(model=model, layer="input").explain(x, targets), targets)
    assert tiny.max() < 1e-3, f"{name} loses {tiny.tolist()} of the logit, {real.tolist()} with ε = 0.25"
    assert (real > tiny).all()  # ε takes its part, for the small logits of random weights a large one


def test_all_relevance_of_a_transformer_is_accounted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Softmax alone does not conserve it; what it takes in each block is read off the gradients around attention."""
    model = small_transformer()
    net = model.net
    for parameter in (net.class_token, net.encoder.pos_embedding):
        nn.init.zeros_(parameter)
    zero_shifts(net)
    taken: list[Tensor] = []
    attention = lrp_rules._attention

    def watched(func: Any, *factors: Tensor) -> Tensor:
        output = attention(func, *factors)
        output.register_hook(lambda gradient: taken.append((output * gradient).detach().sum(dim=(1, 2, 3))))
        for factor in factors:
            factor.register_hook(lambda gradient, x=factor: taken.append(-(x * gradient).detach().sum(dim=(1, 2, 3))))
        return output

    monkeypatch.setattr(lrp_rules, "_attention", watched)
    explainer = LRP(model=model, layer="input", epsilon=1e-12)
    maps, logits = explainer.explain(images(dtype=torch.float64), TARGETS)
    assert logits is not None
    assert len(taken) == 2 * 4
    received, given = maps.sum(dim=(1, 2)), logits[range(3), TARGETS]
    lost = torch.stack(taken).sum(dim=0)
    assert (lost.abs() > 1e-3 * given.abs()).all()
    torch.testing.assert_close(received + lost, given, rtol=1e-4, atol=0)  # the stabilisers take the rest


def small_transformer() -> pc.Classifier:
    torch.manual_seed(0)
    net = torchvision_models().VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=5
    )
    for name, parameter in net.named_parameters():  # torchvision leaves the head zero, and attention nearly uniform
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.5)
        elif not name.endswith(("ln_1.weight", "ln_2.weight", "ln.weight")):
            nn.init.normal_(parameter, std=0.1)
    return pc.Classifier(net.double(), MEAN, STD, size=32)


# ── Transformers ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_attention_shares_relevance_by_the_formulas_of_attn_lrp() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True) for _ in range(3))
    with lrp_rules.Rules(0.25, NOTHING_FOLDED):
        y = F.scaled_dot_product_attention(q, k, v)
    relevance = torch.randn_like(y)
    gradients = torch.autograd.grad(y, (q, k, v), relevance / y.detach())
    q, k, v, y = (x.detach() for x in (q, k, v, y))
    scores = q @ k.mT / 5**0.5
    attention = scores.softmax(dim=-1)
    terms = torch.einsum("bhij,bhjc,bhic->bhijc", attention, v, relevance / y)  # equation 7
    of_attention = terms.sum(dim=-1) / 2
    of_scores = scores * (of_attention - attention * of_attention.sum(dim=-1, keepdim=True))  # equation 13
    products = torch.einsum("bhic,bhjc,bhij->bhijc", q, k, of_scores / scores) / 5**0.5
    expected = (products.sum(dim=3) / 2, products.sum(dim=2) / 2, terms.sum(dim=2) / 2)
    for x, gradient, share in zip((q, k, v), gradients, expected, strict=True):
        torch.testing.assert_close(x * gradient, share)


@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention_answers_as_torch_does(need_weights: bool) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    nn.init.normal_(layer.in_proj_bias)
    x = torch.randn(3, 5, 8, requires_grad=True)
    expected = layer(x, x, x, need_weights=need_weights)
    with lrp_rules.Rules(0.25, NOTHING_FOLDED):
        actual = layer(x, x, x, need_weights=need_weights)
    torch.testing.assert_close(actual, expected)


def test_layer_norm_and_gelu_conserve_relevance() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 7, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(8, dtype=torch.float64)
    for function in (lambda x: F.layer_norm(x, (8,), weight), F.gelu, F.silu, lambda x: F.normalize(x, dim=2)):
        with lrp_rules.Rules(0.25, NOTHING_FOLDED):
            y = function(x)
        torch.testing.assert_close(y, function(x))
        (gradient,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close((x * gradient).sum(dim=2), y.sum(dim=2), rtol=1e-4, atol=1e-4)


def test_vit_b_16_has_maps_of_its_pixels_and_of_its_patches(vit_b_16: pc.Classifier) -> None:
    x, targets = images(2, 224), torch.tensor([5, 6])
    for layer, size in (("input", 224), ("final", 14)):
        explainer = LRP(model=vit_b_16, layer=layer)
        maps, logits = explainer.explain(x, targets)
        assert maps.shape == (2, size, size)
        assert maps.isfinite().all()
        assert (maps.flatten(1).std(dim=1) > 0).all()
        torch.testing.assert_close(logits, vit_b_16(x).detach(), rtol=1e-4, atol=1e-4)
        other = explainer(x[:1], targets[1:])
        assert relative_error(other, maps[:1]) > 0.1


def test_a_small_transformer_in_batches_and_alone() -> None:
    assert_batch_is_single_calls(small_transformer(), "input")
    assert_batch_is_single_calls(small_transformer(), "encoder.layers.encoder_layer_0")


# ── What every method promises ────────────────────────────────────────────────────────────────────────────────────


def assert_batch_is_single_calls(model: pc.Classifier, layer: str) -> None:
    explainer, x = LRP(model=model, layer=layer), images(dtype=torch.float64)
    maps = explainer(x, TARGETS)
    for i in range(3):
        assert relative_error(maps[i : i + 1], explainer(x[i : i + 1], TARGETS[i : i + 1])) < 1e-9


@pytest.mark.parametrize("layer", ["input", "3", "9"])
def test_a_batch_with_different_targets_is_as_many_single_calls(model: pc.Classifier, layer: str) -> None:
    assert_batch_is_single_calls(model, layer)


@pytest.mark.parametrize("layer", ["input", "4"])
@pytest.mark.filterwarnings("ignore:.*affine layers")
def test_model_is_left_as_it_was_found(model: pc.Classifier, layer: str) -> None:
    net = model.net
    net[14].weight.requires_grad_(False)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    addresses = {key: value.data_ptr() for key, value in net.state_dict().items()}
    flags = {key: parameter.requires_grad for key, parameter in net.named_parameters()}
    x = images(dtype=torch.float64)
    with torch.no_grad():
        LRP(model=model, layer=layer)(x, TARGETS)
        assert not torch.is_grad_enabled()
    assert torch.equal(x, images(dtype=torch.float64))
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert {key: value.data_ptr() for key, value in net.state_dict().items()} == addresses
    assert {key: parameter.requires_grad for key, parameter in net.named_parameters()} == flags
    assert all(parameter.grad is None for parameter in net.parameters())
    for module in net.modules():
        assert not module.training
        assert not any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks))


def test_maps_are_the_same_without_the_callers_gradients(model: pc.Classifier) -> None:
    explainer, x = LRP(model=model, layer="input"), images(dtype=torch.float64)
    expected = explainer(x, TARGETS)
    model.net.requires_grad_(False)
    with torch.no_grad():
        assert torch.equal(explainer(x, TARGETS), expected)
    maps, logits = explainer.explain(x.requires_grad_(), TARGETS)
    assert logits is not None
    assert not maps.requires_grad
    assert not logits.requires_grad


@pytest.mark.parametrize("change", ["weight", "statistics"])
def test_a_network_that_is_trained_on_is_folded_anew(model: pc.Classifier, change: str) -> None:
    explainer, x = LRP(model=model, layer="input"), images(dtype=torch.float64)
    before = explainer(x, TARGETS)
    with torch.no_grad():
        (model.net[4].weight if change == "weight" else model.net[5].running_var).mul_(2)
    after = explainer.explain(x, TARGETS)
    assert relative_error(after.maps, before) > 1e-3
    assert relative_error(after.maps, LRP(model=model, layer="input")(x, TARGETS)) == 0
    torch.testing.assert_close(after.logits, model(x).detach())


def test_a_network_that_moves_is_followed(model: pc.Classifier) -> None:
    explainer = LRP(model=model, layer="input")
    expected = explainer(images(dtype=torch.float64), TARGETS)
    model.net.float()  # new memory, as on another device
    maps = explainer(images(), TARGETS)
    assert maps.dtype == torch.float32
    assert relative_error(maps.double(), expected) < 1e-4


def test_the_embedded_model_is_explained(embedded: pc.Classifier) -> None:
    x, targets = images(2, 224), torch.tensor([967, 285])
    inputs, final = (LRP(model=embedded, layer=layer).explain(x, targets) for layer in ("input", "final"))
    assert inputs.maps.shape == (2, 224, 224)
    assert final.maps.shape == (2, 7, 7)
    for maps, logits in (inputs, final):
        assert maps.isfinite().all()
        assert (maps.flatten(1).std(dim=1) > 0).all()
        torch.testing.assert_close(logits, embedded(x).detach(), rtol=1e-4, atol=1e-4)
    assert relative_error(LRP(model=embedded, layer="input")(x[:1], targets[1:]), inputs.maps[:1]) > 0.1


def test_every_batch_norm_of_the_embedded_model_is_folded(embedded: pc.Classifier) -> None:
    folding, _ = fold_batch_norms(embedded.net, images(1, 224))
    norms = [module for module in embedded.net.modules() if isinstance(module, nn.BatchNorm2d)]
    assert folding.batch_norms == {norm.running_mean.data_ptr() for norm in norms}


# ── Networks of other shapes ──────────────────────────────────────────────────────────────────────────────────────


class Block(nn.Module):
    """A convolution and a batch norm, with `forward` for the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def head(self, x: Tensor) -> Tensor:
        return self.fc(x.mean(dim=(2, 3)))


def classifier(kind: type[Block]) -> pc.Classifier:
    torch.manual_seed(0)
    net = kind().double()
    shake_batch_norms(net)
    return pc.Classifier(net, MEAN, STD, size=32)


def test_a_batch_norm_whose_convolution_is_read_elsewhere_stays_and_is_told() -> None:
    class Twice(Block):
        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            return self.head(self.norm(x).relu() + x)

    model = classifier(Twice)
    with pytest.warns(pc.PixelcertWarning, match="1 of 1 batch norms"):
        maps, logits = LRP(model=model, layer="input").explain(images(dtype=torch.float64), TARGETS)
    torch.testing.assert_close(logits, model(images(dtype=torch.float64)).detach())
    assert maps.isfinite().all()


def test_a_batch_norm_behind_an_activation_is_an_affine_layer() -> None:
    class Behind(Block):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.norm(self.conv(x).relu()))

    model, x = classifier(Behind), images(dtype=torch.float64)
    net = model.net
    with pytest.warns(pc.PixelcertWarning, match="affine"):
        maps = LRP(model=model, layer="conv", epsilon=1e-12)(x, TARGETS)
    features = net.conv(model.normalise(x)).relu()
    scale = net.norm.weight / (net.norm.running_var + net.norm.eps).sqrt()
    weights = (net.fc.weight[TARGETS] * scale)[..., None, None] / features[0, 0].numel()
    torch.testing.assert_close(maps, (weights * features).sum(dim=1).detach())


def test_gates_and_activations_in_place_conserve_relevance() -> None:
    class Gated(Block):
        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(self.conv(x))
            F.silu(x, inplace=True)  # and what it returns is left alone
            x *= x.mean(dim=(2, 3), keepdim=True).sigmoid_()
            x = F.hardtanh(x, -0.05, 0.1, inplace=True)
            return self.head(x / x.abs().amax(dim=(1, 2, 3), keepdim=True))

    model, x = classifier(Gated), images(dtype=torch.float64)
    zero_shifts(model.net)
    maps, logits = LRP(model=model, layer="input", epsilon=1e-12).explain(x, TARGETS)
    torch.testing.assert_close(logits, model(x).detach())
    assert conservation_error(maps, logits, TARGETS).max() < 1e-3


def test_a_function_without_a_rule_is_refused() -> None:
    class Exponential(Block):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.norm(self.conv(x)).exp())

    with pytest.raises(pc.ModelError, match=r"no rule for exp\b.*another method"):
        LRP(model=classifier(Exponential), layer="input")(images(dtype=torch.float64), TARGETS)


def test_a_network_that_answers_otherwise_under_the_rules_is_refused(
    model: pc.Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def misfold(network: Any, inputs: Tensor) -> tuple[Folding, Tensor]:
        folding, answer = fold_batch_norms(network, inputs)
        return Folding({address: (2 * w, b) for address, (w, b) in folding.convolutions.items()}, *folding[1:]), answer

    monkeypatch.setattr("pixelcert.methods.lrp.fold_batch_norms", misfold)
    with pytest.raises(pc.ModelError, match="logits change"):
        LRP(model=model, layer="input")(images(dtype=torch.float64), TARGETS)


def test_attention_with_a_mask_is_refused() -> None:
    layer, x = nn.MultiheadAttention(8, 2).eval(), torch.randn(5, 1, 8, requires_grad=True)
    with lrp_rules.Rules(0.25, NOTHING_FOLDED), pytest.raises(pc.ModelError, match="masks"):
        layer(x, x, x, attn_mask=torch.zeros(5, 5))


def test_a_network_that_begins_with_a_linear_layer() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 5)).double()
    model, x = pc.Classifier(net, MEAN, STD, size=4), images(3, 4, torch.float64)
    inputs, logits = model.normalise(x), model(x).detach()
    damped = (logits / (logits + 0.25 * logits.sign()))[range(3), TARGETS]
    expected = damped.view(3, 1, 1) * (inputs * net[1].weight[TARGETS].view(3, 3, 4, 4)).sum(dim=1)
    torch.testing.assert_close(LRP(model=model, layer="input")(x, TARGETS), expected.detach())


# ── Activations that cannot be negative ───────────────────────────────────────────────────────────────────────────


class Positive(Block):
    """Two convolutions, and between them a ReLU and what `between` does to its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv2 = nn.Conv2d(4, 4, 3)

    def between(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu().clone()  # since the gradient of a ReLU needs its answer as it was
        return self.head(self.conv2(self.between(x)).relu())


def change_in_place(x: Tensor) -> Tensor:
    x.sub_(0.5)
    return x


def change_a_view(x: Tensor) -> Tensor:
    x.flatten(2)[:, :2] -= 0.5
    return x


def change_what_is_viewed(x: Tensor) -> Tensor:
    view = x.transpose(2, 3)
    x.mul_(-1)
    return view


def set_an_item(x: Tensor) -> Tensor:
    x[:, 1] = -0.5
    return x


def set_an_item_of_a_view(x: Tensor) -> Tensor:
    x.view(x.shape)[:, 1, :4] = -0.5
    return x


def fill_in_place(x: Tensor) -> Tensor:
    x[:, 0].copy_(-x[:, 1])
    return x


def add_in_place(x: Tensor) -> Tensor:
    x += -0.5
    return x


# What may be negative again, however much the ReLU before it promises.
TRAPS = {
    "add of a scalar": lambda x: x + -0.5,
    "add of a scalar from the left": lambda x: -0.5 + x,
    "torch.add of a scalar": lambda x: torch.add(x, -0.5),
    "add with alpha": lambda x: torch.add(x, x.transpose(2, 3), alpha=-2),
    "add of a parameter-free constant": lambda x: x + torch.full_like(x, -0.5),
    "sub": lambda x: x - x.transpose(2, 3),
    "mul": lambda x: x * -0.5,
    "pad with a negative value": lambda x: F.pad(x, (1, 1, 1, 1), value=-1.0),
    "pad with a negative value in place": lambda x: F.pad(x, (1, 1, 1, 1), "constant", -1.0),
    "clamp with a negative min": lambda x: (x - 1).clamp(min=-0.5),
    "clamp with a negative min in place": lambda x: (x - 1).clamp(-0.5, 2.0),
    "clamp with no min": lambda x: (x - 1).clamp(max=0.5),
    "hardtanh": lambda x: F.hardtanh(x - 1),
    "cat with what is negative": lambda x: torch.cat([x[:, :2], x[:, 2:] - 1], dim=1),
    "tanh": lambda x: (x - 0.5).tanh(),
    "leaky": lambda x: F.leaky_relu(x - 0.5, 0.3),
    "mean of what is negative": lambda x: x - x.mean(dim=1, keepdim=True),
    **{f.__name__.replace("_", " "): f for f in (
        change_in_place, change_a_view, change_what_is_viewed, set_an_item, set_an_item_of_a_view, fill_in_place,
        add_in_place,
    )},
}  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS)
def test_the_short_way_is_taken_only_where_nothing_can_be_negative(trap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Trapped(Positive):
        def between(self, x: Tensor) -> Tensor:
            return TRAPS[trap](x)

    model, x = classifier(Trapped), images(dtype=torch.float64)
    maps, logits = LRP(model=model, layer="input").explain(x, TARGETS)
    torch.testing.assert_close(logits, model(x).detach())
    monkeypatch.setattr(lrp_rules, "_cannot_be_negative", lambda *_, **__: False)
    assert relative_error(maps, LRP(model=model, layer="input")(x, TARGETS)) < 1e-12
    with torch.no_grad():
        features = TRAPS[trap](model.net.norm(model.net.conv(model.normalise(x))).relu())
    assert features.min() < 0, "there is no trap"


# Where the short way is right, and must be taken.
SAFE = {
    "nothing": lambda x: x,
    "pooling": lambda x: F.avg_pool2d(F.max_pool2d(x, 2), 3, 1, 1),
    "sum": lambda x: x + x.transpose(2, 3),
    "sum in place": lambda x: x.clone().add_(x),
    "sum in place by an operator": lambda x: x.clone().__iadd__(x),
    "pad": lambda x: F.pad(x, (1, 1, 1, 1)),
    "clamp": lambda x: (x - 1).clamp(0, 2.0),
    "clamp by name": lambda x: (x - 1).clamp(min=0),
    "relu6": lambda x: F.relu6(x - 1),
    "hardtanh from zero": lambda x: F.hardtanh(x - 1, 0.0, 2.0),
    "cat": lambda x: torch.cat([x.relu(), x.sigmoid()], dim=1)[:, 2:6].relu(),
    "in place": lambda x: F.relu(x - 0.5, inplace=True),
    "dropout": lambda x: F.dropout(x, training=False),
    "negative and then cut off again": lambda x: set_an_item(x).relu(),
}


def convolutions_of(model: pc.Classifier, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many convolutions one explanation takes."""
    calls: list[Any] = []
    convolution, conv2d = lrp_rules.Rules._convolution, F.conv2d

    def counting(self: Any, func: Any, *given: Any, **named: Any) -> Tensor:
        def counted(*terms: Any, **options: Any) -> Tensor:
            calls.append(terms)
            return conv2d(*terms, **options)

        return convolution(self, counted, *given, **named)

    explainer = LRP(model=model, layer="input")
    explainer(x, TARGETS[: len(x)])  # folds and checks, once
    with monkeypatch.context() as patch:
        patch.setattr(lrp_rules.Rules, "_convolution", counting)
        explainer(x, TARGETS[: len(x)])
    return len(calls)


@pytest.mark.parametrize("name", SAFE)
def test_the_short_way_is_taken_where_it_is_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Safe(Positive):
        def between(self, x: Tensor) -> Tensor:
            return SAFE[name](x)

    model, x = classifier(Safe), images(dtype=torch.float64)
    assert convolutions_of(model, x, monkeypatch) == 2 + 2  # the value and its shares, by z^B in one convolution too
    maps = LRP(model=model, layer="input")(x, TARGETS)
    monkeypatch.setattr(lrp_rules, "_cannot_be_negative", lambda *_, **__: False)
    assert convolutions_of(model, x, monkeypatch) == 2 + 3
    assert relative_error(maps, LRP(model=model, layer="input")(x, TARGETS)) < 1e-12


def test_all_convolutions_of_a_resnet_but_the_first_take_the_short_way(
    resnet18: pc.Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = images(1, 32, torch.float64)
    count = sum(isinstance(module, nn.Conv2d) for module in resnet18.net.modules())
    assert convolutions_of(resnet18, x, monkeypatch) == 2 * count
    monkeypatch.setattr(lrp_rules, "_cannot_be_negative", lambda *_, **__: False)
    assert convolutions_of(resnet18, x, monkeypatch) == 3 * count - 1


def test_nothing_is_kept_alive_after_the_rules_are_left() -> None:
    rules = lrp_rules.Rules(0.25, NOTHING_FOLDED)
    with rules:
        torch.ones(2, requires_grad=True).relu()
        assert rules._nonnegative
    assert not rules._nonnegative


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), float("inf")])
def test_epsilon_that_keeps_nothing_from_zero_is_refused(model: pc.Classifier, epsilon: float) -> None:
    with pytest.raises(pc.ArgumentError, match="epsilon"):
        LRP(model=model, layer="input", epsilon=epsilon)
