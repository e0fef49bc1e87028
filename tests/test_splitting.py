"""Splitting: features and head together are the whole network, whatever it is and wherever it is cut."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from small_networks import HALF, MEAN, STD, Tiny, assert_same, images, small_model, tiny
from torch import Tensor, nn

import pixelcert as pc
from pixelcert.models.heads import linear_head, linear_layers
from pixelcert.models.loading import torchvision_models
from pixelcert.models.splitting import feature_maps
from pixelcert.models.tracing import split_at


def densenet() -> pc.Classifier:
    torch.manual_seed(0)
    net = torchvision_models().DenseNet(8, (2, 2, 2, 2), 16, num_classes=10)
    return pc.Classifier(net, MEAN, STD, size=64)


@pytest.fixture(scope="module")
def resnet() -> pc.Classifier:
    return small_model("resnet")


@pytest.fixture(scope="module")
def model_named(embedded: pc.Classifier, resnet: pc.Classifier) -> Callable[[str], pc.Classifier]:
    made = {"resnet": resnet, "vgg": small_model("vgg"), "vit": small_model("vit"), "densenet": densenet()}
    return {**made, "embedded": embedded}.__getitem__


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("resnet", "input"),
        ("resnet", "final"),
        ("resnet", "maxpool"),
        ("resnet", "layer2"),
        ("resnet", "layer4.0"),
        ("resnet", "avgpool"),
        ("resnet", "fc"),
        ("vgg", "input"),
        ("vgg", "final"),
        ("vgg", "features.0"),  # an in-place ReLU follows
        ("vgg", "features"),
        ("vgg", "classifier.3"),
        ("vit", "input"),
        ("vit", "final"),
        ("vit", "encoder.layers.encoder_layer_0"),
        ("vit", "encoder.ln"),
        ("densenet", "input"),
        ("densenet", "final"),  # F.relu(features, inplace=True) follows
        ("densenet", "features.denseblock2"),
        ("embedded", "input"),
        ("embedded", "final"),  # x.size(0) of the input is used by the head
        ("embedded", "_bn1"),
    ],
)
def test_head_of_features_is_the_whole_network(
    name: str, layer: str, model_named: Callable[[str], pc.Classifier]
) -> None:
    model, x = model_named(name), images()
    with torch.no_grad():
        features, head = model.split(layer)
        inner = features(x)
        before = inner.clone()
        logits = model(x)
        assert logits.std() > 0
        assert_same(head(inner), logits)
        assert torch.equal(inner, before), "the head changed the features it was given"
        assert_same(head(inner[:1]), logits[:1])  # another batch size than the features had
        assert_same(head(inner[[0, 1, 1]]), logits[[0, 1, 1]])


def test_features_at_input_are_the_normalised_image() -> None:
    model = tiny()
    assert torch.equal(model.split("input").features(images()), model.normalise(images()))


def test_features_at_a_module_are_its_output(resnet: pc.Classifier) -> None:
    seen: list[Tensor] = []
    hook = resnet.net.layer3.register_forward_hook(lambda module, args, output: seen.append(output))
    with torch.no_grad():
        resnet(images())
        hook.remove()
        assert_same(resnet.split("layer3").features(images()), seen[0])


def test_features_run_once_and_the_head_alone(resnet: pc.Classifier) -> None:
    calls = {"conv1": 0, "fc": 0}

    def count(name: str):
        def hook(*_: object) -> None:
            calls[name] += 1

        return resnet.net.get_submodule(name).register_forward_hook(hook)

    hooks = [count(name) for name in calls]
    try:
        with torch.no_grad():
            features, head = resnet.split("final")  # which tries the network out, the first time
            calls.update(conv1=0, fc=0)
            assert resnet.split("final").features is features
            assert calls == {"conv1": 0, "fc": 0}
            inner = features(images())
            assert calls == {"conv1": 1, "fc": 0}
            for _ in range(3):
                head(inner)
            assert calls == {"conv1": 1, "fc": 3}
    finally:
        for hook in hooks:
            hook.remove()


def test_split_shares_the_parameters() -> None:
    model = tiny()
    with torch.no_grad():
        features, head = model.split("conv")
        model.net.conv.weight.zero_()
        model.net.fc.bias.fill_(3)
        assert_same(head(features(images())), model(images()))


def test_split_follows_the_network_to_another_device() -> None:
    class Shift(Tiny):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", torch.ones(1, 3, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + self.shift)

    model = pc.Classifier(Shift(), HALF, HALF, size=16)
    model.split("conv")
    model.to("meta")
    features, head = model.split("conv")
    assert head(features(images().to("meta"))).shape == (2, 5)


def test_gradient_flows_through_the_head() -> None:
    model = tiny()
    features, head = model.split("conv")
    inner = features(images()).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(head(inner)[:, 2].sum(), inner)
    by_hand = model.net.fc.weight[2].view(1, 4, 1, 1) / inner[0, 0].numel()
    assert_same(gradient, by_hand.expand_as(gradient).detach())


class InPlaceAfterView(Tiny):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.conv(x).flatten(2).relu_().mean(dim=2))


class InPlaceAfterDropout(Tiny):
    """Dropout returns its very input when evaluated."""

    def __init__(self) -> None:
        super().__init__()
        self.tail = nn.Sequential(nn.Dropout(), nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.pool(self.tail(self.conv(x))).flatten(1))


class InPlaceSum(Tiny):
    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        y += 1
        return self.fc(self.pool(y.mul_(2)).flatten(1))


@pytest.mark.parametrize("net", [InPlaceAfterView, InPlaceAfterDropout, InPlaceSum])
def test_head_leaves_features_alone_whatever_works_in_place_behind_them(net: type[nn.Module]) -> None:
    model = pc.Classifier(net(), HALF, HALF, size=16)
    features, head = model.split("conv")
    with torch.no_grad():
        inner = features(images())
        before = inner.clone()
        assert_same(head(inner), model(images()))
        assert torch.equal(inner, before)
    assert head(inner.requires_grad_()).requires_grad


def test_first_dimension_that_is_not_the_batch_stays_what_it_is() -> None:
    class TokensFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 4, 8, 8)
            self.fc = nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            tokens = self.patches(x).flatten(2).permute(2, 0, 1)  # (T, B, C)
            return self.fc(tokens.sum(dim=0) / tokens.size(0))

    model = pc.Classifier(TokensFirst(), HALF, HALF, size=64)
    features, head = model.split("patches")
    assert_same(head(features(images())), model(images()))


def test_a_module_called_twice_is_cut_at_its_last_call() -> None:
    class Twice(Tiny):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.pool(self.act(self.conv(self.act(x)))).flatten(1))

    model = pc.Classifier(Twice(), HALF, HALF, size=16)
    features, head = model.split("act")
    assert features(images()).shape == (2, 4, 62, 62)
    assert_same(head(features(images())), model(images()))


def test_unknown_layer_is_refused_with_the_names_there_are(resnet: pc.Classifier) -> None:
    with pytest.raises(pc.ModelError, match=r"'layer5' is not a module of ResNet.*layer1.*layer4"):
        resnet.split("layer5")
    with pytest.raises(pc.ModelError, match=r"'layer4\.2' is not a module of ResNet.*layer4\.0\.conv1"):
        resnet.split("layer4.2")


def test_module_that_is_never_called_is_refused() -> None:
    with pytest.raises(pc.ModelError, match="'unused' is a module that Tiny never calls"):
        tiny().split("unused")


@pytest.mark.parametrize("layer", ["layer4.0.conv1", "layer1.0.bn2"])
def test_bypassed_layer_is_refused(resnet: pc.Classifier, layer: str) -> None:
    with pytest.raises(pc.ModelError, match=rf"{re.escape(layer)}.* is bypassed.*later layer"):
        resnet.split(layer)


class Branching(Tiny):
    """Asks what its values are, which a trace cannot answer."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if x.sum() > 0 else -x)


def test_untraceable_network_is_split_by_hooks() -> None:
    model = pc.Classifier(Branching(), HALF, HALF, size=16)
    with pytest.warns(
        pc.PixelcertWarning, match=r"Branching is split by hooks at layer 'conv' \(it cannot be traced: .*"
    ):
        features, head = model.split("conv")
    model.split("conv")  # told once
    assert model.surgery("conv")["split"].done == "hooks"
    activations = features(images())
    assert_same(head(activations), model(images()))
    assert_same(head(activations[:1]), model(images())[:1])
    assert not any(module._forward_hooks for module in model.net.modules())


by_hooks = pytest.mark.filterwarnings("ignore:.* is split by hooks")


class Suspicious(Tiny):
    """Takes another way for what is no tensor, as a trace is not."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if isinstance(x, Tensor) else super().forward(x) * 2 - 1


def test_a_trace_that_takes_another_way_than_images_is_not_used() -> None:
    model = pc.Classifier(Suspicious(), HALF, HALF, size=16)
    with pytest.warns(pc.PixelcertWarning, match="hooks at layer 'conv' .its trace answers otherwise"):
        features, head = model.split("conv")
    assert_same(head(features(images())), model(images()))
    assert linear_head(model, "conv") is None
    assert linear_head(tiny(), "conv") is not None


def test_a_network_that_does_not_take_its_size_is_traced_all_the_same() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16 * 16, 5)).eval()
    model = pc.Classifier(net, HALF, HALF, final="1", size=32)
    with pytest.warns(pc.PixelcertWarning, match=r"error on an image of its own size, 32 × 32 .*size=SIDE"):
        model.split("final")
    assert str(model.surgery("final")["split"]).startswith("traced (untried: mat1 and mat2")
    assert linear_layers(model, "final") == [net[3]]
    small = images()[..., :16, :16]
    features, head = model.split("final")
    assert_same(head(features(small)), model(small))


def test_what_a_head_computes_is_asked_again_when_its_weights_change() -> None:
    class Clipped(Tiny):
        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.pool(torch.relu(self.conv(x))).flatten(1))

    model = pc.Classifier(Clipped(), HALF, HALF, size=16)
    weights = model.net.fc.weight.detach().clone()
    with torch.no_grad():
        model.net.fc.weight.zero_()
        linear_head(model, "conv")  # all heads look alike now
        model.net.fc.weight.copy_(weights)
    assert linear_head(model, "conv") is None


@by_hooks
def test_hooked_split_explains_like_a_traced_one() -> None:
    hooked, traced = (pc.Classifier(kind, HALF, HALF, size=16) for kind in (Branching(), Tiny()))
    hooked.net.load_state_dict(traced.net.state_dict())
    shift = 2 * images()  # a positive sum: both take the same way
    targets = torch.arange(len(shift)) % 5
    for name in ("grad", "ixg", "grad_cam", "ablation_cam", "occlusion"):
        one, other = (pc.method(name, model, "conv")(shift, targets) for model in (hooked, traced))
        assert torch.allclose(one, other, atol=1e-5)


@by_hooks
def test_hooked_split_refuses_a_bypassed_layer() -> None:
    class Skipping(Tiny):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.sum() > 0 else -x) + x.mean(dim=(1, 2, 3))[:, None]

    model = pc.Classifier(Skipping(), HALF, HALF, size=16)
    with pytest.raises(pc.ModelError, match="'conv' is bypassed"):
        model.split("conv").features(images())


@by_hooks
def test_hooked_split_keeps_features_from_what_works_in_place() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            features = self.conv(x if x.sum() > -1e9 else -x)
            return self.fc(features.relu_().mean(dim=(2, 3)))

    model = pc.Classifier(InPlace(), HALF, HALF, size=16)
    activations = model.split("conv").features(images())
    assert activations.min() < 0
    assert pc.method("grad", model, "conv")(images(), torch.tensor([0, 1])).isfinite().all()


def test_splits_follow_a_module_that_is_replaced() -> None:
    model = tiny()
    model.split("conv")
    model.net.fc = nn.Linear(model.net.fc.in_features, 7).eval()
    features, head = model.split("conv")
    assert_same(head(features(images())), model(images()))


def test_densenet_is_not_taken_for_pooling_and_a_linear_layer() -> None:
    """Its ReLU behind the features is a function, not a module."""
    assert linear_head(densenet(), "final") is None


# ── The final layer ───────────────────────────────────────────────────────────────────────────────────────────────────


def without_weights(name: str) -> pc.Classifier:
    """The structure of one of torchvision's networks, at once and in no memory."""
    with torch.device("meta"):
        net = torchvision_models().get_model(name, weights=None)
    return pc.Classifier(net, HALF, HALF)


@pytest.mark.parametrize(
    ("name", "final"),
    [
        ("resnet18", "layer4"),
        ("vgg11", "features.19"),
        ("vgg11_bn", "features.27"),
        ("alexnet", "features.11"),
        ("densenet121", "features"),
        ("mobilenet_v2", "features"),
        ("vit_b_16", r"encoder\.layers\.encoder_layer_1[01]"),
    ],
)
def test_final_layer_is_found(name: str, final: str) -> None:
    assert re.fullmatch(final, without_weights(name).final)


def test_final_layer_of_the_embedded_model(embedded: pc.Classifier) -> None:
    assert embedded.final == "_swish"
    assert embedded.split("final").features(images(1, 224)).shape == (1, 1280, 7, 7)


def test_final_layer_of_swin_has_its_channels_first() -> None:
    assert without_weights("swin_t").split("final").features(images(1, 224).to("meta")).shape == (1, 768, 7, 7)


def test_patches_at_the_final_layer_of_a_vit_reach_the_logits() -> None:
    features, head = small_model("vit").split("final")
    with torch.no_grad():
        tokens = features(images())
    (gradient,) = torch.autograd.grad(head(tokens.requires_grad_())[0, 3], tokens)
    assert feature_maps(gradient, images()).abs().max() > 0, (
        "only the class token counts there, so every map would be zero"
    )


def test_final_layer_may_be_named(resnet: pc.Classifier) -> None:
    model = pc.Classifier(resnet.net, HALF, HALF, final="layer3")
    assert model.final == "layer3"
    assert model.split("final").features(images()).shape == (2, 32, 4, 4)


def test_final_layer_before_pooling_need_not_be_a_relu() -> None:
    net = nn.Sequential()
    net.add_module("features", nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.MaxPool2d(2)))
    assert pc.Classifier(net, HALF, HALF).final == "features.1"


def test_unknown_final_layer_is_refused_with_a_remedy() -> None:
    with pytest.raises(pc.ModelError, match=r"final spatial layer of Tiny is not known.*final=NAME.*conv, pool, fc"):
        tiny().split("final")


def test_maps_of_four_dimensions_are_left_alone() -> None:
    features = torch.rand(2, 5, 3, 4)
    assert feature_maps(features, torch.rand(2, 3, 24, 32)) is features
    assert feature_maps(features, torch.rand(2, 3, 25, 30)) is features, "strides round"


@pytest.mark.parametrize("prefix", [0, 1])
def test_tokens_become_maps_row_by_row_without_the_class_token(prefix: int) -> None:
    tokens = torch.rand(2, prefix + 9, 5)
    maps = feature_maps(tokens, torch.rand(2, 3, 48, 48))
    assert maps.shape == (2, 5, 3, 3)
    for row in range(3):
        for column in range(3):
            assert torch.equal(maps[:, :, row, column], tokens[:, prefix + 3 * row + column])


def test_tokens_of_an_oblong_image_lie_on_its_own_grid() -> None:
    tokens = torch.rand(1, 1 + 8 * 32, 5)
    assert feature_maps(tokens, torch.rand(1, 3, 128, 512)).shape == (1, 5, 8, 32)


@pytest.mark.parametrize("shape", [(2, 1000), (2, 13, 5), (2, 3, 4, 5, 6), (2, 56, 56, 96)])  # the last: channels last
def test_features_without_the_images_proportions_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(pc.ModelError, match=r"no maps of images of 224 × 224: choose a layer"):
        feature_maps(torch.rand(shape), torch.rand(2, 3, 224, 224))


def test_halves_of_a_network_in_evaluation_mode_are_in_evaluation_mode():
    """Or an explainer that holds them would be refused."""

    class Functional(nn.Module):
        """A network that gives a convolution's weight to a function, as EfficientNet-Lite0 does."""

        def __init__(self) -> None:
            super().__init__()
            self.stem, self.rest = nn.Conv2d(3, 4, 3), nn.Sequential(nn.ReLU(), nn.Flatten())

        def forward(self, inputs: Tensor) -> Tensor:
            return self.rest(nn.functional.conv2d(inputs, self.stem.weight))

    halves = split_at(Functional().eval(), "rest.0")
    assert not isinstance(halves, Exception)
    assert not any(module.training for half in halves for module in half.modules())
