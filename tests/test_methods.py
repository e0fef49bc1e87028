"""Attribution methods against direct computations, and what every method promises."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import pixelcert as pc
from pixelcert.methods.gradient import target_logits

MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)
TARGETS = torch.tensor([3, 0, 4])


@pytest.fixture(scope="module")
def resnet18() -> pc.Classifier:
    torch.manual_seed(0)
    return pc.load_model("resnet18", weights=None, device="cpu")


@pytest.fixture(scope="module")
def vit_b_16() -> pc.Classifier:
    torch.manual_seed(0)
    model = pc.load_model("vit_b_16", weights=None, device="cpu")
    nn.init.normal_(model.net.heads.head.weight, std=0.1)  # torchvision leaves it zero, and so every gradient
    return model


@pytest.fixture
def model() -> pc.Classifier:
    """A small network of the usual shape: convolutions, global average, one linear layer."""
    torch.manual_seed(0)
    net = nn.Sequential()
    net.add_module("features", nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 3)))
    net.add_module("pool", nn.AdaptiveAvgPool2d(1))
    net.add_module("flat", nn.Flatten())
    net.add_module("fc", nn.Linear(8, 5))
    return pc.Classifier(net, MEAN, STD, size=32)


def images(batch: int = 3, size: int = 32) -> Tensor:
    return torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(1))


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5 * float(expected.detach().abs().max()))


def normalised(x: Tensor) -> Tensor:
    return torch.stack([(x[:, c] - MEAN[c]) / STD[c] for c in range(3)], dim=1)


def activation_and_gradient(net: nn.Module, layer: nn.Module, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """What a layer answers, and the gradient of each image's target logit there, with a hook on the whole network."""
    seen: list[Tensor] = []
    hook = layer.register_forward_hook(lambda module, args, output: seen.append(output))
    logits = net(x)
    hook.remove()
    score = sum(logits[i, target] for i, target in enumerate(targets))
    (gradient,) = torch.autograd.grad(score, seen[0])
    return seen[0].detach(), gradient


# ── Gradient ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_grad_is_the_absolute_gradient_at_the_normalised_image_summed_over_channels(model: pc.Classifier) -> None:
    inputs = normalised(images()).requires_grad_()
    logits = model.net(inputs)
    (gradient,) = torch.autograd.grad(logits[0, 3] + logits[1, 0] + logits[2, 4], inputs)
    maps = pc.method("grad", model)(images(), TARGETS)
    assert_same(maps, gradient.abs().sum(dim=1))
    assert not torch.allclose(maps, gradient.sum(dim=1).abs())
    assert not torch.allclose(maps, (gradient / torch.tensor(STD).view(1, 3, 1, 1)).abs().sum(dim=1))  # of pixels


def test_grad_is_large_where_a_linear_model_looks() -> None:
    class OnePixel(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([2 * x[:, 0, 1, 2] - 3 * x[:, 2, 1, 2], x[:, 1, 0, 0]], dim=1)

    maps = pc.method("grad", pc.Classifier(OnePixel(), MEAN, STD, size=4))(images(2, 4), torch.tensor([0, 1]))
    expected = torch.zeros(2, 4, 4)
    expected[0, 1, 2], expected[1, 0, 0] = 5, 1
    assert_same(maps, expected)


def test_grad_of_a_network_that_begins_in_place() -> None:
    net = nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(48, 5))
    model = pc.Classifier(net, MEAN, STD, size=4)
    inputs = normalised(images(3, 4))
    maps = pc.method("grad", model)(images(3, 4), TARGETS)
    assert_same(maps, ((inputs > 0) * net[2].weight[TARGETS].view(3, 3, 4, 4)).abs().sum(dim=1).detach())


# ── Grad-CAM ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("relu", [True, False])
def test_grad_cam_is_the_weighted_sum_of_layer4(resnet18: pc.Classifier, relu: bool) -> None:
    x, targets = images(3, 96), torch.tensor([1, 500, 999])
    net = resnet18.net
    activation, gradient = activation_and_gradient(net, net.layer4, resnet18.normalise(x), targets)
    weights = gradient.mean(dim=(2, 3))
    expected = torch.einsum("bc,bchw->bhw", weights, activation)
    assert (expected > 0).any()
    assert (expected < 0).any()
    maps = pc.method("grad_cam", resnet18, relu=relu)(x, targets)
    assert maps.shape == (3, 3, 3)
    assert_same(maps, expected.clamp(min=0) if relu else expected)


def test_grad_cam_at_a_named_module(resnet18: pc.Classifier) -> None:
    x, targets = images(2, 64), torch.tensor([7, 8])
    activation, gradient = activation_and_gradient(resnet18.net, resnet18.net.layer2, resnet18.normalise(x), targets)
    expected = (gradient.mean(dim=(2, 3), keepdim=True) * activation).sum(dim=1).relu()
    assert_same(pc.method("grad_cam", resnet18, layer="layer2")(x, targets), expected)


def test_grad_cam_takes_the_relu_by_default(model: pc.Classifier) -> None:
    signed = pc.method("grad_cam", model, relu=False)(images(), TARGETS)
    assert (signed < 0).any()
    assert torch.equal(pc.method("grad_cam", model)(images(), TARGETS), signed.relu())


def test_grad_cam_of_a_vit_lies_on_the_grid_of_its_patches(vit_b_16: pc.Classifier) -> None:
    x, targets, layer = images(2, 224), torch.tensor([5, 6]), "encoder.layers.encoder_layer_5"
    block = vit_b_16.net.get_submodule(layer)
    activation, gradient = activation_and_gradient(vit_b_16.net, block, vit_b_16.normalise(x), targets)
    weights = gradient[:, 1:].mean(dim=1)  # over the patches, without the class token
    expected = torch.einsum("bc,btc->bt", weights, activation[:, 1:]).view(2, 14, 14)
    maps = pc.method("grad_cam", vit_b_16, layer, relu=False)(x, targets)
    assert maps.shape == (2, 14, 14)
    assert expected.std() > 0
    assert_same(maps, expected)


def test_grad_cam_at_the_final_layer_of_a_vit_tells_patches_apart(vit_b_16: pc.Classifier) -> None:
    maps = pc.method("grad_cam", vit_b_16, relu=False)(images(1, 224), torch.tensor([5]))
    assert maps.shape == (1, 14, 14)
    assert maps.std() > 0, "the patches do not reach the logits from there"


def test_grad_cam_where_an_activation_works_in_place_behind_the_layer() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(3600, 5))
    model = pc.Classifier(net, MEAN, STD, size=32)
    maps = pc.method("grad_cam", model, layer="0", relu=False)(images(), TARGETS)
    activation = net[0](normalised(images()))
    gradient = (activation > 0) * net[4].weight[TARGETS].view(3, 4, 30, 30)
    assert_same(maps, (gradient.mean(dim=(2, 3), keepdim=True) * activation).sum(dim=1).detach())


def test_grad_cam_at_a_layer_without_a_grid_is_refused(model: pc.Classifier) -> None:
    with pytest.raises(pc.ModelError, match="no maps of images"):
        pc.method("grad_cam", model, layer="fc")(images(), TARGETS)


def test_grad_cam_at_a_module_that_is_not_there_is_refused(model: pc.Classifier) -> None:
    with pytest.raises(pc.PixelcertError, match=r"'feature'.*features"):
        pc.method("grad_cam", model, layer="feature")(images(), TARGETS)


# ── What every method promises ────────────────────────────────────────────────────────────────────────────────────

every_method = pytest.mark.parametrize("name", sorted(pc.METHODS))


@every_method
def test_a_batch_with_different_targets_is_as_many_single_calls(model: pc.Classifier, name: str) -> None:
    explainer = pc.method(name, model)
    maps, logits = explainer.explain(images(), TARGETS)
    assert maps.ndim == 3
    assert maps.std() > 0
    for i in range(3):
        one = explainer.explain(images()[i : i + 1], TARGETS[i : i + 1])
        assert_same(maps[i : i + 1], one.maps)
        assert logits is not None
        assert one.logits is not None
        assert_same(logits[i : i + 1], one.logits)


@every_method
def test_maps_depend_on_the_target(model: pc.Classifier, name: str) -> None:
    explainer = pc.method(name, model)
    assert not torch.allclose(explainer(images(), TARGETS), explainer(images(), TARGETS.roll(1)))


@every_method
def test_logits_are_the_models(model: pc.Classifier, name: str) -> None:
    logits = pc.method(name, model).explain(images(), TARGETS).logits
    assert logits is not None
    assert_same(logits, model(images()).detach())


@every_method
def test_maps_and_logits_have_no_graph(model: pc.Classifier, name: str) -> None:
    for x in (images(), images().requires_grad_()):
        maps, logits = pc.method(name, model).explain(x, TARGETS)
        assert not maps.requires_grad
        assert logits is not None
        assert not logits.requires_grad
        assert x.grad is None


@every_method
def test_calling_gives_the_maps(model: pc.Classifier, name: str) -> None:
    explainer = pc.method(name, model)
    assert torch.equal(explainer(images(), TARGETS), explainer.explain(images(), TARGETS).maps)


@every_method
def test_images_are_not_changed(model: pc.Classifier, name: str) -> None:
    x = images()
    pc.method(name, model)(x, TARGETS)
    assert torch.equal(x, images())


@every_method
@pytest.mark.parametrize("frozen", [False, True])
def test_model_is_left_as_it_was_found(model: pc.Classifier, name: str, frozen: bool) -> None:
    model.net.fc.weight.requires_grad_(not frozen)
    before = {key: value.clone() for key, value in model.net.state_dict().items()}
    flags = {key: parameter.requires_grad for key, parameter in model.net.named_parameters()}
    pc.method(name, model)(images(), TARGETS)
    assert all(torch.equal(value, before[key]) for key, value in model.net.state_dict().items())
    assert {key: parameter.requires_grad for key, parameter in model.net.named_parameters()} == flags
    assert all(parameter.grad is None for parameter in model.net.parameters())
    for module in model.net.modules():
        assert not module.training
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
        assert not any(hooks)


@every_method
def test_maps_come_from_a_model_without_trainable_parameters(model: pc.Classifier, name: str) -> None:
    expected = pc.method(name, model)(images(), TARGETS)
    model.net.requires_grad_(False)
    assert torch.equal(pc.method(name, model)(images(), TARGETS), expected)


@every_method
def test_gradients_that_the_caller_switched_off_are_no_hindrance(model: pc.Classifier, name: str) -> None:
    explainer = pc.method(name, model)
    expected = explainer(images(), TARGETS)
    with torch.no_grad():
        assert torch.equal(explainer(images(), TARGETS), expected)
        assert not torch.is_grad_enabled()


@every_method
def test_votes_can_be_sampled(model: pc.Classifier, name: str) -> None:
    votes = pc.sample(pc.method(name, model), images()[0], 3, n=4, levels=(50, 10), tau=None)
    assert votes.counted == 4
    assert votes.provenance.method == name
    assert votes.provenance.weights == model.weights_hash
    assert votes.ones.max() == 4


# ── Making one by name ────────────────────────────────────────────────────────────────────────────────────────────


def test_registry_lists_names() -> None:
    assert {"grad", "grad_cam"} <= set(pc.METHODS)
    assert all(kind.name == name for name, kind in pc.METHODS.items())


def test_registry_cannot_be_changed_by_accident() -> None:
    with pytest.raises(TypeError):
        pc.METHODS["mine"] = pc.Method  # type: ignore[index]


@every_method
def test_every_method_says_what_it_is(name: str) -> None:
    kind = pc.METHODS[name]
    assert kind.title
    assert kind.citation
    assert kind.family in ("backpropagation", "activation", "perturbation")
    assert kind.layers[0] in ("input", "final")


def test_layer_is_the_methods_own_by_default(model: pc.Classifier) -> None:
    assert pc.method("grad", model).layer == "input"
    assert pc.method("grad_cam", model).layer == "final"


def test_parameters_are_names_and_defaults(model: pc.Classifier) -> None:
    assert pc.METHODS["grad"].parameters() == {}
    assert pc.METHODS["grad_cam"].parameters() == {"relu": True}
    assert pc.method("grad", model).params == {}
    assert pc.method("grad_cam", model).params == {"relu": True}
    assert pc.method("grad_cam", model, relu=False).params == {"relu": False}


def test_unknown_method_is_refused_with_the_known(model: pc.Classifier) -> None:
    with pytest.raises(pc.ArgumentError, match=r"'gradcam' is not known.*\bgrad\b.*\bgrad_cam\b"):
        pc.method("gradcam", model)


def test_unknown_parameter_is_refused_with_the_known(model: pc.Classifier) -> None:
    with pytest.raises(pc.ArgumentError, match=r"grad_cam has no parameter rellu.*relu"):
        pc.method("grad_cam", model, rellu=False)
    with pytest.raises(pc.ArgumentError, match=r"grad has no parameter relu, steps.*none"):
        pc.method("grad", model, steps=3, relu=True)


@pytest.mark.parametrize("relu", ["False", None, 0.5])
def test_parameter_of_another_type_is_refused(model: pc.Classifier, relu: object) -> None:
    with pytest.raises(pc.ArgumentError, match="relu"):
        pc.method("grad_cam", model, relu=relu)


def test_cam_at_a_named_module_is_refused(model: pc.Classifier) -> None:
    with pytest.raises(pc.ArgumentError, match="cam cannot explain layer='features': choose 'final', 'input'"):
        pc.method("cam", model, layer="features")


def test_network_without_its_preprocessing_is_refused(model: pc.Classifier) -> None:
    with pytest.raises(pc.ArgumentError, match=r"Classifier\("):
        pc.method("grad", model.net)  # type: ignore[arg-type]


# ── A new method ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Brightness(pc.Method):
    """The layer's values where they exceed a threshold, summed over channels."""

    name = "brightness"
    title = "Brightness"
    family = "perturbation"
    layers = ("input", "*")
    citation = "nobody"

    threshold: float = 0.0

    def explain(self, images: Tensor, targets: Tensor) -> pc.Explanation:
        features, head = self.model.split(self.layer)
        inner = features(images).detach()
        return pc.Explanation(inner.clamp(min=self.threshold).sum(dim=1), head(inner).detach())


def test_new_method_is_a_short_subclass(model: pc.Classifier) -> None:
    explainer = Brightness(model, "input", threshold=-9.0)
    image = torch.zeros(3, 32, 32)
    image[:, :, :12] = 1  # 37.5 % of the pixels: all in the top 50 %, and none of the others in the top 25 %
    votes = pc.sample(explainer, image, 2, sigma=0.01, n=8, levels=(50, 25), tau=None)
    assert (votes.ones[0][:, :12] == 8).all()
    assert (votes.zeros[1][:, 12:] == 8).all()
    told = votes.provenance
    assert (told.method, told.params, told.layer) == ("brightness", {"threshold": -9.0}, "input")
    assert votes.predictions is not None
    assert votes.predictions.sum() == 8


def test_new_method_checks_its_layer(model: pc.Classifier) -> None:
    assert Brightness(model, "features")(images(), TARGETS).shape == (3, 28, 28)
    with pytest.raises(pc.ArgumentError, match="brightness cannot explain layer='final'"):
        type("Narrow", (Brightness,), {"layers": ("input",)})(model, "final")


def test_method_without_explain_says_so(model: pc.Classifier) -> None:
    nameless = type("Nameless", (pc.Method,), {"name": "nameless", "layers": ("input",)})
    with pytest.raises(TypeError, match="Nameless does not define explain"):
        nameless(model, "input")(images(), TARGETS)


def test_target_logits_are_each_images_own() -> None:
    logits = torch.arange(15.0).view(3, 5)
    assert target_logits(logits, TARGETS).tolist() == [3, 5, 14]


@pytest.mark.parametrize(("name", "params"), [
    ("rise", {"masks": 0}), ("rise", {"cells": 0}), ("rise", {"probability": 0.0}), ("rise", {"probability": 1.0}),
    ("occlusion", {"window": -1}), ("occlusion", {"stride": -3}), ("occlusion", {"window": 4, "stride": 5}),
    ("intgrad", {"steps": 0}), ("lrp", {"epsilon": 0.0}), ("lrp", {"epsilon": -1.0}),
])  # fmt: skip
def test_parameters_without_sense_are_refused(model: pc.Classifier, name: str, params: dict[str, float]) -> None:
    (parameter, value) = list(params.items())[-1]
    with pytest.raises(pc.ArgumentError, match=f"{name}: {parameter}={value} is not valid: use"):
        pc.method(name, model, **params)
