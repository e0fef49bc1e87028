"""Classifier, split, final layer, loading: every model is the real thing, with random weights unless said otherwise."""

from __future__ import annotations

import csv
import math
import pickle
import re
import subprocess
import sys
from collections import OrderedDict
from enum import Enum
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

import pixelcert as pc
from pixelcert.models.inspection import structure
from pixelcert.models.loading import torchvision_models
from pixelcert.models.splitting import feature_maps

SHARED = Path(__file__).resolve().parents[2] / "shared"
HALF = (0.5, 0.5, 0.5)
MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)


def load(name: str) -> pc.Classifier:
    torch.manual_seed(0)
    return pc.load_model(name, weights=None, device="cpu")


@pytest.fixture(scope="module")
def resnet18() -> pc.Classifier:
    return load("resnet18")


@pytest.fixture(scope="module")
def vgg11() -> pc.Classifier:
    return load("vgg11")


@pytest.fixture(scope="module")
def vit_b_16() -> pc.Classifier:
    model = load("vit_b_16")
    nn.init.normal_(model.net.heads.head.weight, std=0.1)  # torchvision leaves it zero, and so every logit
    return model


@pytest.fixture(scope="module")
def densenet121() -> pc.Classifier:
    return load("densenet121")


@pytest.fixture(scope="module")
def efficientnet_lite0() -> pc.Classifier:
    pytest.importorskip("efficientnet_lite_pytorch", reason="the demo extra is not installed")
    return pc.load_model("efficientnet_lite0", device="cpu")


ZOO = """
import pixelcert as pc
from torch import nn

NUMBER = 3

def build():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return pc.Classifier(net, mean=(0.5,) * 3, std=(0.5,) * 3, name="mine")

def build_net():
    return build().net

def build_wide(width):
    return build()
"""


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zoo_of_mine.py").write_text(ZOO)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "zoo_of_mine", raising=False)


def images(batch: int = 2, size: int = 64) -> Tensor:
    return torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(1))


class Tiny(nn.Module):
    """A network in four modules: conv, pool, fc, and one it never calls."""

    def __init__(self, outputs: int = 5) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(4, outputs)
        self.unused = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.pool(self.conv(x)).flatten(1))


def tiny(mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> pc.Classifier:
    torch.manual_seed(0)
    return pc.Classifier(Tiny(), mean=mean, std=std, size=16)


def assert_same(actual: Tensor, expected: Tensor) -> None:
    """Equal to rounding, at the scale of the values themselves."""
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5 * float(expected.detach().abs().max()))


# ── Classifier ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_normalisation_comes_before_the_network() -> None:
    model = tiny()
    x = images()
    by_hand = torch.stack([(x[:, c] - MEAN[c]) / STD[c] for c in range(3)], dim=1)
    assert_same(model(x), model.net(by_hand))
    assert_same(model.normalise(x), by_hand)
    assert not torch.allclose(model(x), model.net(x))


def test_predict_gives_class_and_softmax_confidence() -> None:
    model = tiny()
    image = images()[0]
    target, confidence = model.predict(image)
    softmax = model(image[None]).softmax(dim=1)[0]
    assert target == int(softmax.argmax())
    assert confidence == pytest.approx(softmax.max().item())


@pytest.mark.parametrize("image", [images()[0] * 255, images()[0] - 0.5, (images()[0] - 0.45) / 0.22])
def test_predict_refuses_pixels_outside_zero_to_one(image: Tensor) -> None:
    with pytest.raises(pc.ImageError, match=r"\[0, 1\]"):
        tiny().predict(image)


def test_predict_refuses_a_batch() -> None:
    with pytest.raises(pc.ImageError, match="one image"):
        tiny().predict(images())


def test_predict_refuses_a_wrong_number_of_channels() -> None:
    with pytest.raises(pc.ImageError, match="1 channels and the model takes 3"):
        tiny().predict(images()[0, :1])


def test_predict_refuses_a_network_that_returns_no_tensor() -> None:
    class Pair(Tiny):
        def forward(self, x: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
            return super().forward(x), None

    with pytest.raises(pc.ModelError, match="tuple"):
        pc.Classifier(Pair(), HALF, HALF, size=16).predict(images()[0])


def test_device_is_where_network_and_preprocessing_are() -> None:
    model = tiny()
    assert model.device == torch.device("cpu")
    assert model.to("meta") is model
    assert model.device.type == "meta"
    assert {parameter.device.type for parameter in model.net.parameters()} == {"meta"}
    assert model(images().to("meta")).device.type == "meta"


def test_device_argument_moves_the_network() -> None:
    model = pc.Classifier(Tiny(), HALF, HALF, device="meta")
    assert model.device.type == next(model.net.parameters()).device.type == "meta"


def test_evaluation_mode_is_set_and_nothing_else_changed() -> None:
    net = Tiny().train()
    net.conv.weight.requires_grad_(False)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    model = pc.Classifier(net, HALF, HALF)
    assert model.net is net
    assert not any(module.training for module in net.modules())
    assert not net.conv.weight.requires_grad
    assert net.fc.weight.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_number_of_classes_is_read_off_the_network(resnet18: pc.Classifier) -> None:
    assert resnet18.num_classes == 1000
    assert pc.Classifier(Tiny(outputs=7), HALF, HALF, size=16).num_classes == 7


def test_channels_follow_the_mean() -> None:
    assert pc.Classifier(nn.Conv2d(1, 2, 3), mean=(0.5,), std=(0.5,)).channels == 1


def test_name_and_classes_are_told() -> None:
    model = pc.Classifier(Tiny(), HALF, HALF, size=16, classes=list("abcde"))
    assert model.name == "Tiny"
    assert model.classes == ("a", "b", "c", "d", "e")
    assert repr(model) == "Classifier(Tiny, cpu)"
    assert pc.Classifier(Tiny(), HALF, HALF, name="mine").name == "mine"


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        ((), ()),
        ((0.5,), (0.5, 0.5)),
        (HALF, (0.5, 0.0, 0.5)),
        (HALF, (0.5, -0.1, 0.5)),
        (HALF, (0.5, math.nan, 0.5)),
        ((math.nan, 0.5, 0.5), HALF),
        ((math.inf, 0.5, 0.5), HALF),
        (0.5, 0.5),
    ],
)
def test_bad_mean_or_std_is_refused(mean: object, std: object) -> None:
    with pytest.raises(pc.ModelError, match=r"mean=.* std="):
        pc.Classifier(Tiny(), mean=mean, std=std)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_mean_and_std_may_be_lists_arrays_or_tensors(kind: type) -> None:
    assert tiny(kind(MEAN), kind(STD)).weights_hash == tiny().weights_hash


# ── Hash of the weights ───────────────────────────────────────────────────────────────────────────────────────────


def test_hash_is_the_same_for_the_same_weights() -> None:
    assert tiny().weights_hash == tiny().weights_hash


def test_hash_changes_with_one_weight() -> None:
    changed = tiny()
    with torch.no_grad():
        changed.net.conv.weight[1, 2, 0, 1] += 1e-6
    assert changed.weights_hash != tiny().weights_hash


def test_hash_changes_with_a_weight_changed_after_it_was_first_read() -> None:
    model = tiny()
    before = model.weights_hash
    with torch.no_grad():
        model.net.fc.bias[0] += 1
    assert model.weights_hash != before


def test_hash_changes_with_a_buffer() -> None:
    hashes = set()
    for count in (0, 1):
        norm = nn.BatchNorm2d(3)
        norm.num_batches_tracked.fill_(count)
        hashes.add(pc.Classifier(norm, HALF, HALF).weights_hash)
    assert len(hashes) == 2


def test_hash_changes_with_the_preprocessing() -> None:
    hashes = {tiny().weights_hash, tiny(mean=(0.1, 0.2, 0.31)).weights_hash, tiny(std=(0.5, 0.25, 2.1)).weights_hash}
    assert len(hashes) == 3


@pytest.mark.parametrize("name", ["mean", "std"])
def test_hash_sees_a_buffer_that_is_called_like_the_preprocessing(name: str) -> None:
    hashes = set()
    for value in (0.0, 1.0):
        net = tiny().net
        net.register_buffer(name, torch.tensor(value))
        hashes.add(pc.Classifier(net, HALF, HALF).weights_hash)
    assert len(hashes) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_hash_takes_weights_of_any_precision(dtype: torch.dtype) -> None:
    assert pc.Classifier(Tiny().to(dtype), HALF, HALF).weights_hash


# ── Splitting ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "layer", "size"),
    [
        ("resnet18", "input", 64),
        ("resnet18", "final", 64),
        ("resnet18", "maxpool", 64),
        ("resnet18", "layer2", 64),
        ("resnet18", "layer4.0", 64),
        ("resnet18", "avgpool", 64),
        ("resnet18", "fc", 64),
        ("vgg11", "input", 64),
        ("vgg11", "final", 64),
        ("vgg11", "features.0", 64),  # an in-place ReLU follows
        ("vgg11", "features", 64),
        ("vgg11", "classifier.3", 64),
        ("vit_b_16", "input", 224),
        ("vit_b_16", "final", 224),
        ("vit_b_16", "encoder.layers.encoder_layer_0", 224),
        ("vit_b_16", "encoder.ln", 224),
        ("densenet121", "input", 64),
        ("densenet121", "final", 64),  # F.relu(features, inplace=True) follows
        ("densenet121", "features.denseblock2", 64),
        ("efficientnet_lite0", "input", 64),
        ("efficientnet_lite0", "final", 64),  # x.size(0) of the input is used by the head
        ("efficientnet_lite0", "_bn1", 64),
    ],
)
def test_head_of_features_is_the_whole_network(
    name: str, layer: str, size: int, request: pytest.FixtureRequest
) -> None:
    model: pc.Classifier = request.getfixturevalue(name)
    x = images(2, size)
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


def test_features_at_a_module_are_its_output(resnet18: pc.Classifier) -> None:
    seen: list[Tensor] = []
    hook = resnet18.net.layer3.register_forward_hook(lambda module, args, output: seen.append(output))
    with torch.no_grad():
        resnet18(images())
        hook.remove()
        assert_same(resnet18.split("layer3").features(images()), seen[0])


def test_features_run_once_and_the_head_alone(resnet18: pc.Classifier) -> None:
    calls = {"conv1": 0, "fc": 0}

    def count(name: str):
        def hook(*_: object) -> None:
            calls[name] += 1

        return resnet18.net.get_submodule(name).register_forward_hook(hook)

    hooks = [count(name) for name in calls]
    try:
        with torch.no_grad():
            features, head = resnet18.split("final")  # which tries the network out, the first time
            calls.update(conv1=0, fc=0)
            assert resnet18.split("final").features is features
            assert calls == {"conv1": 0, "fc": 0}
            inner = features(images())
            assert calls == {"conv1": 1, "fc": 0}
            for _ in range(3):
                head(inner)
            assert calls == {"conv1": 1, "fc": 3}
    finally:
        for hook in hooks:
            hook.remove()


class Kind(Enum):
    ONE = 1
    OTHER = 2


USED_TWICE = nn.ReLU()


class Scaled(nn.Conv2d):
    """A module of somebody's own, on top of one of torch's."""

    def __init__(self, *args, power=1, activation=F.relu, note=None, **options):
        super().__init__(*args, **options)
        self.power, self.activation, self.note, self.calls = power, activation, note, 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3, stride=2)),
        (nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")),
        (nn.BatchNorm2d(3), nn.BatchNorm2d(3, eps=1e-3)),
        (nn.ReLU(), nn.SiLU()),
        (nn.LeakyReLU(0.1), nn.LeakyReLU(0.2)),
        (nn.Sequential(nn.ReLU(), nn.Identity()), nn.Sequential(nn.Identity(), nn.ReLU())),
        (Scaled(3, 4, 3), Scaled(3, 4, 3, dilation=2)),
        (Scaled(3, 4, 3), Scaled(3, 4, 3, power=2)),
        (Scaled(3, 4, 3), Scaled(3, 4, 3, activation=F.silu)),
        (Scaled(3, 4, 3, note=(1, "a")), Scaled(3, 4, 3, note=(1, "b"))),
        (Scaled(3, 4, 3, note=[1, 2]), Scaled(3, 4, 3, note=[1, 3])),
        (Scaled(3, 4, 3, note={"a": 1}), Scaled(3, 4, 3, note={"a": 2})),
        (Scaled(3, 4, 3, note={1, 2}), Scaled(3, 4, 3, note={1, 3})),
        (Scaled(3, 4, 3, note=b"a"), Scaled(3, 4, 3, note=1j)),
        (Scaled(3, 4, 3, note=torch.half), Scaled(3, 4, 3, note=torch.float)),
        (Scaled(3, 4, 3, note=np.float32(1)), Scaled(3, 4, 3, note=np.float32(2))),
        (Scaled(3, 4, 3, note=nn.ReLU), Scaled(3, 4, 3, note=nn.SiLU)),
        (Scaled(3, 4, 3, note=partial(F.relu, inplace=True)), Scaled(3, 4, 3, note=partial(F.relu))),
        (Scaled(3, 4, 3, note=Kind.ONE), Scaled(3, 4, 3, note=Kind.OTHER)),
        (Scaled(3, 4, 3, activation=F.gelu), Scaled(3, 4, 3, activation=torch.tanh)),
        (Scaled(3, 4, 3, note=0), Scaled(3, 4, 3, note=None)),
        (nn.Sequential(OrderedDict(one=nn.ReLU())), nn.Sequential(OrderedDict(other=nn.ReLU()))),
        (nn.Sequential(USED_TWICE, nn.Identity()), nn.Sequential(USED_TWICE, nn.Identity(), USED_TWICE)),
    ],
)
def test_structure_tells_settings_and_kinds_of_modules_apart(one, other):
    assert structure(one) != structure(other)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_structure_tells_scripted_modules_apart():
    one, other = (torch.jit.script(module) for module in (nn.ReLU(), nn.Tanh()))
    assert structure(one) != structure(other)


def test_structure_takes_the_default_of_the_class_itself():
    class Steep(nn.LeakyReLU):
        def __init__(self, negative_slope=0.5):
            super().__init__(negative_slope)

    assert structure(Steep()) == ": Steep()"
    assert structure(Steep(0.01)) == ": Steep(negative_slope=0.01)"


def test_hash_knows_the_shapes_of_parameters() -> None:
    hashes = set()
    for shape in ((2, 8), (4, 4)):
        net = tiny().net
        net.extra = nn.ParameterList([nn.Parameter(torch.zeros(shape))])
        hashes.add(pc.Classifier(net, HALF, HALF).weights_hash)
    assert len(hashes) == 2


def test_structure_does_not_change_as_a_network_runs_or_trains():
    module = Scaled(3, 4, 3)
    before = structure(module)
    module.calls += 1
    module.train()
    module(torch.zeros(1, 3, 8, 8))
    assert structure(module) == before


def test_structure_is_the_same_when_a_later_torch_knows_another_setting(monkeypatch):
    """As torch 2.13 prints of batch norms whether they have a bias, which they always had before."""
    before, printed = structure(nn.BatchNorm2d(3)), repr(nn.BatchNorm2d(3))
    original = nn.BatchNorm2d.__init__

    def later(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, tilted=False):
        original(self, num_features, eps, momentum, affine, track_running_stats)
        self.tilted = tilted

    monkeypatch.setattr(nn.BatchNorm2d, "__init__", later)
    monkeypatch.setattr(nn.BatchNorm2d, "extra_repr", lambda self: f"tilted={self.tilted}")
    assert repr(nn.BatchNorm2d(3)) != printed
    assert structure(nn.BatchNorm2d(3)) == before
    assert structure(nn.BatchNorm2d(3, tilted=True)) != before


def test_hash_knows_the_structure_and_not_only_the_parameters() -> None:
    nets = [nn.Sequential(nn.Conv2d(3, 4, 3, stride=stride), nn.ReLU()) for stride in (1, 2)]
    nets[1].load_state_dict(nets[0].state_dict())
    assert pc.Classifier(nets[0], HALF, HALF).weights_hash != pc.Classifier(nets[1], HALF, HALF).weights_hash


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


def test_unknown_layer_is_refused_with_the_names_there_are(resnet18: pc.Classifier) -> None:
    with pytest.raises(pc.ModelError, match=r"'layer5' is not a module of ResNet.*layer1.*layer4"):
        resnet18.split("layer5")
    with pytest.raises(pc.ModelError, match=r"'layer4\.2' is not a module of ResNet.*layer4\.0\.conv1"):
        resnet18.split("layer4.2")


def test_module_that_is_never_called_is_refused() -> None:
    with pytest.raises(pc.ModelError, match="'unused' is a module that Tiny never calls"):
        tiny().split("unused")


@pytest.mark.parametrize("layer", ["layer4.1.conv1", "layer1.0.bn2"])
def test_bypassed_layer_is_refused(resnet18: pc.Classifier, layer: str) -> None:
    with pytest.raises(pc.ModelError, match=rf"{re.escape(layer)}.* is bypassed.*later layer"):
        resnet18.split(layer)


class Branching(Tiny):
    """Asks what its values are, which a trace cannot answer."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if x.sum() > 0 else -x)


def test_untraceable_network_is_split_by_hooks() -> None:
    model = pc.Classifier(Branching(), HALF, HALF, size=16)
    features, head = model.split("conv")
    activations = features(images())
    assert_same(head(activations), model(images()))
    assert_same(head(activations[:1]), model(images())[:1])
    assert not any(module._forward_hooks for module in model.net.modules())


class Suspicious(Tiny):
    """Takes another way for what is no tensor, as a trace is not."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if isinstance(x, Tensor) else super().forward(x) * 2 - 1


def test_a_trace_that_takes_another_way_than_images_is_not_used() -> None:
    model = pc.Classifier(Suspicious(), HALF, HALF, size=16)
    features, head = model.split("conv")
    assert_same(head(features(images())), model(images()))
    assert model.linear_head("conv") is None
    assert tiny().linear_head("conv") is not None


def test_a_network_that_does_not_take_its_size_is_traced_all_the_same() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16 * 16, 5)).eval()
    model = pc.Classifier(net, HALF, HALF, final="1", size=32)
    assert model.linear_layers("final") == [net[3]]
    small = images()[..., :16, :16]
    features, head = model.split("final")
    assert_same(head(features(small)), model(small))


def test_memory_that_runs_out_in_a_trial_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()

    def full(given: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(model.net, "forward", full)
    with pytest.raises(torch.OutOfMemoryError):
        model.local_parts("input")


def test_what_a_head_computes_is_asked_again_when_its_weights_change() -> None:
    class Clipped(Tiny):
        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.pool(torch.relu(self.conv(x))).flatten(1))

    model = pc.Classifier(Clipped(), HALF, HALF, size=16)
    weights = model.net.fc.weight.detach().clone()
    with torch.no_grad():
        model.net.fc.weight.zero_()
        model.linear_head("conv")  # all heads look alike now
        model.net.fc.weight.copy_(weights)
    assert model.linear_head("conv") is None


def test_hooked_split_explains_like_a_traced_one() -> None:
    hooked, traced = (pc.Classifier(kind, HALF, HALF, size=16) for kind in (Branching(), Tiny()))
    hooked.net.load_state_dict(traced.net.state_dict())
    shift = 2 * images()  # a positive sum: both take the same way
    targets = torch.arange(len(shift)) % 5
    for name in ("grad", "ixg", "grad_cam", "ablation_cam", "occlusion"):
        one, other = (pc.method(name, model, "conv")(shift, targets) for model in (hooked, traced))
        assert torch.allclose(one, other, atol=1e-5)


def test_hooked_split_refuses_a_bypassed_layer() -> None:
    class Skipping(Tiny):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.sum() > 0 else -x) + x.mean(dim=(1, 2, 3))[:, None]

    model = pc.Classifier(Skipping(), HALF, HALF, size=16)
    with pytest.raises(pc.ModelError, match="'conv' is bypassed"):
        model.split("conv").features(images())


# ── The final layer ───────────────────────────────────────────────────────────────────────────────────────────────


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


def test_final_layer_of_the_embedded_model(efficientnet_lite0: pc.Classifier) -> None:
    assert efficientnet_lite0.final == "_swish"
    assert efficientnet_lite0.split("final").features(images(1, 224)).shape == (1, 1280, 7, 7)


def test_final_layer_of_swin_has_its_channels_first() -> None:
    assert without_weights("swin_t").split("final").features(images(1, 224).to("meta")).shape == (1, 768, 7, 7)


def test_patches_at_the_final_layer_of_a_vit_reach_the_logits(vit_b_16: pc.Classifier) -> None:
    features, head = vit_b_16.split("final")
    with torch.no_grad():
        tokens = features(images(1, 224))
    (gradient,) = torch.autograd.grad(head(tokens.requires_grad_())[0, 3], tokens)
    assert feature_maps(gradient, images(1, 224)).abs().max() > 0, (
        "only the class token counts there, so every map would be zero"
    )


def test_final_layer_may_be_named(resnet18: pc.Classifier) -> None:
    model = pc.Classifier(resnet18.net, HALF, HALF, final="layer3")
    assert model.final == "layer3"
    assert model.split("final").features(images()).shape == (2, 256, 4, 4)


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


def test_densenet_is_not_taken_for_pooling_and_a_linear_layer(densenet121: pc.Classifier) -> None:
    """Its ReLU behind the features is a function, not a module."""
    assert densenet121.linear_head("final") is None


def test_splits_follow_a_module_that_is_replaced() -> None:
    model = tiny()
    model.split("conv")
    model.net.fc = nn.Linear(model.net.fc.in_features, 7).eval()
    features, head = model.split("conv")
    assert_same(head(features(images())), model(images()))


def test_batch_norm_without_running_statistics_is_refused() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.Flatten())
    with pytest.raises(pc.ModelError, match="running statistics"):
        pc.method("grad", pc.Classifier(net, HALF, HALF))


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


def test_networks_of_other_precisions_get_images_in_theirs() -> None:
    model = pc.Classifier(Tiny().double(), HALF, HALF, size=16)
    assert model(images()).dtype == torch.float64


# ── Loading by name ───────────────────────────────────────────────────────────────────────────────────────────────


def test_names_start_with_the_embedded_and_the_papers_models() -> None:
    names = pc.model_names()
    assert names[:6] == ["efficientnet_lite0", "resnet18", "wide_resnet50_2", "resnet152", "vgg11", "vit_b_16"]
    assert "densenet121" in names
    assert len(set(names)) == len(names)
    assert not any("rcnn" in name or "quantized" in name for name in names)


def test_torchvision_model_brings_its_preprocessing_size_and_classes(resnet18: pc.Classifier) -> None:
    mean, std = torch.tensor((0.485, 0.456, 0.406)), torch.tensor((0.229, 0.224, 0.225))
    assert_same(resnet18.normalise(torch.zeros(1, 3, 1, 1)).flatten(), -mean / std)
    assert (resnet18.name, resnet18.size) == ("resnet18", 224)
    assert resnet18.classes is not None
    assert (len(resnet18.classes), resnet18.classes[967]) == (1000, "espresso")


def test_size_is_one_that_the_network_takes() -> None:
    with torch.device("meta"):
        model = pc.load_model("vit_h_14", weights=None, device="meta")  # its published weights are for 518 pixels
    assert model.num_classes == 1000


@pytest.mark.parametrize("name", ["resnet19", "Resnet18", "rsnet18"])
def test_unknown_model_is_refused_with_near_names(name: str) -> None:
    with pytest.raises(pc.ModelError, match=rf"{name}.*\bresnet18\b.*package.module:function"):
        pc.load_model(name)


def test_failed_download_is_told_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for variable in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # nobody listens there
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(pc.ModelError, match=r"weights of alexnet could not be downloaded.*weights=PATH"):
        pc.load_model("alexnet", device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
@pytest.mark.parametrize("device", ["cuda", "nonsense"])
def test_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(pc.PixelcertError, match=device):
        pc.load_model("squeezenet1_1", weights=None, device=device)


# ── Weights files ─────────────────────────────────────────────────────────────────────────────────────────────────


def save_weights(model: pc.Classifier, path: Path) -> Path:
    state = model.net.state_dict()
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path


@pytest.mark.parametrize("file", ["weights.safetensors", "weights.pth", "weights.pt"])
def test_weights_file_gives_the_same_model(resnet18: pc.Classifier, tmp_path: Path, file: str) -> None:
    loaded = pc.load_model("resnet18", save_weights(resnet18, tmp_path / file), device="cpu")
    assert loaded.weights_hash == resnet18.weights_hash
    with torch.no_grad():
        assert torch.equal(loaded(images()), resnet18(images()))


def test_weights_path_may_be_a_string(resnet18: pc.Classifier, tmp_path: Path) -> None:
    path = save_weights(resnet18, tmp_path / "weights.safetensors")
    assert pc.load_model("resnet18", str(path), device="cpu").weights_hash == resnet18.weights_hash


class Evil:
    """Unpickling it creates a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return open, (str(self.marker), "w")


@pytest.mark.parametrize("how", ["torch.save", "pickle"])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_pickled_code_is_refused_and_never_runs(tmp_path: Path, how: str, suffix: str) -> None:
    marker, path = tmp_path / "marker", tmp_path / f"evil{suffix}"
    content = {"conv1.weight": torch.zeros(1), "evil": Evil(marker)}
    if how == "pickle":
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path)
    with pytest.raises(pc.ModelError, match="evil"):
        pc.load_model("squeezenet1_1", path)
    assert not marker.exists()
    if (how, suffix) == ("torch.save", ".pth"):  # the trap works: the unsafe way springs it
        torch.load(path, weights_only=False)["evil"].close()
        assert marker.exists()


def test_refused_pickle_comes_with_no_advice_to_load_it_unsafely(tmp_path: Path) -> None:
    path = tmp_path / "evil.pth"
    torch.save(Evil(tmp_path / "marker"), path)
    with pytest.raises(pc.ModelError) as refused:
        pc.load_model("squeezenet1_1", path)
    assert "state_dict()" in str(refused.value)
    assert not re.search("weights_only|can still be loaded|\033", str(refused.value))


def test_checkpoint_is_refused_with_a_remedy(resnet18: pc.Classifier, tmp_path: Path) -> None:
    torch.save({"state_dict": resnet18.net.state_dict(), "epoch": 3}, tmp_path / "last.pth")
    with pytest.raises(pc.ModelError, match=r"last\.pth is a checkpoint.*save net\.state_dict\(\)"):
        pc.load_model("resnet18", tmp_path / "last.pth")


@pytest.mark.parametrize("file", ["cut.safetensors", "cut.pth"])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_truncated_weights_are_refused(resnet18: pc.Classifier, tmp_path: Path, file: str, share: float) -> None:
    path = save_weights(resnet18, tmp_path / file)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(pc.ModelError, match=re.escape(str(path))):
        pc.load_model("resnet18", path)


@pytest.mark.parametrize("content", [b"hello world\n", b"version https://git-lfs.github.com\n", b"\x80\x02\x9c"])
@pytest.mark.parametrize("file", ["text.safetensors", "text.pth"])
def test_file_that_holds_no_weights_is_refused(tmp_path: Path, file: str, content: bytes) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(pc.ModelError, match=file):
        pc.load_model("squeezenet1_1", tmp_path / file)


@pytest.mark.parametrize("file", ["nowhere.safetensors", "nowhere.pth"])
def test_missing_weights_are_refused(tmp_path: Path, file: str) -> None:
    with pytest.raises(pc.ModelError, match=rf"{file} does not exist"):
        pc.load_model("squeezenet1_1", tmp_path / file)


@pytest.mark.parametrize("file", ["resnet18.safetensors", "resnet18.pth"])
def test_weights_of_another_architecture_are_refused_in_a_few_lines(
    resnet18: pc.Classifier, tmp_path: Path, file: str
) -> None:
    path = save_weights(resnet18, tmp_path / file)
    with pytest.raises(pc.ModelError, match=rf"{file} are not those of SqueezeNet") as refused:
        pc.load_model("squeezenet1_1", path)
    assert len(str(refused.value)) < 1000


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize("name", ["efficientnet_lite0", "zoo_of_mine:build"])
def test_weights_are_refused_where_they_would_be_ignored(name: str, tmp_path: Path) -> None:
    with pytest.raises(pc.ModelError, match="weights"):
        pc.load_model(name, tmp_path / "nowhere.pth", device="cpu")


@pytest.mark.filterwarnings("ignore:The default weight initialization:FutureWarning")
def test_published_weights_from_a_file_are_preprocessed_as_published(tmp_path: Path) -> None:
    """torchvision's GoogLeNet and Inception transform their input again, but only if built with weights=."""
    state = torchvision_models().googlenet(weights=None, init_weights=False).state_dict()
    save_file(state, tmp_path / "googlenet.safetensors")
    model = pc.load_model("googlenet", tmp_path / "googlenet.safetensors", device="cpu")
    assert model.net.transform_input


# ── A user's own function ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("zoo")
def test_own_function_is_called() -> None:
    model = pc.load_model("zoo_of_mine:build", device="cpu")
    assert (model.name, model.num_classes) == ("mine", 4)


@pytest.mark.usefixtures("zoo")
def test_own_function_must_return_a_classifier() -> None:
    with pytest.raises(pc.ModelError, match=r"zoo_of_mine:build_net returned Sequential.*Classifier\(net, mean"):
        pc.load_model("zoo_of_mine:build_net")


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize(
    "name",
    [
        "zoo_of_mine:missing",
        "zoo_of_mine:",
        "zoo_of_yours:build",
        ":build",
        ".zoo_of_mine:build",
        "zoo_of_mine:NUMBER",
        "zoo_of_mine:build_wide",
    ],
)
def test_own_function_that_cannot_be_had_is_refused(name: str) -> None:
    with pytest.raises(pc.ModelError, match=re.escape(name)):
        pc.load_model(name)


# ── Importing torchvision ─────────────────────────────────────────────────────────────────────────────────────────


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_torchvision_imports_whatever_torch_is_beside_it() -> None:
    code = """
from pixelcert.models.loading import torchvision_models
print(type(torchvision_models().resnet18()).__name__)
import torchvision.transforms
print(torchvision_models() is torchvision.models)
"""
    assert run_python(code).split() == ["ResNet", "True"]


def test_torchvision_imports_after_the_user_has_tried_in_vain() -> None:
    code = """
try:
    import torchvision
except RuntimeError:
    pass
from pixelcert.models.loading import torchvision_models
print(type(torchvision_models().resnet18()).__name__)
"""
    assert run_python(code) == "ResNet"


def test_torchvision_that_imports_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = ModuleType("torchvision")
    stub.models = ModuleType("torchvision.models")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", stub)
    monkeypatch.setattr(torch.library, "define", lambda *_: pytest.fail("declared an operator"))
    assert torchvision_models() is stub.models
    assert sys.modules["torchvision"] is stub


def test_missing_torchvision_is_told_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)  # Python's own way to say that it cannot be imported
    with pytest.raises(pc.ModelError, match="pip install torchvision"):
        torchvision_models()


def test_another_fault_of_torchvision_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('CUDA versions differ')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    with pytest.raises(RuntimeError, match="CUDA versions differ"):
        torchvision_models()


# ── Real weights ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(not (SHARED / "weights").is_dir(), reason=f"no real weights: {SHARED / 'weights'} is not there")
@pytest.mark.skipif(not (SHARED / "images").is_dir(), reason=f"no photographs: {SHARED / 'images'} is not there")
def test_real_resnet18_recognises_photographs() -> None:
    model = pc.load_model("resnet18", SHARED / "weights" / "resnet18.safetensors", device="cpu")
    with (SHARED / "images" / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:40]
    batch = torch.stack([pc.load_image(SHARED / "images" / row["file"]) for row in rows])
    with torch.inference_mode():
        answers = model(batch).argmax(dim=1)
    right = sum(int(answer) == int(row["label"]) for answer, row in zip(answers, rows, strict=True))
    assert right >= 24


def test_embedded_model_recognises_the_embedded_photographs(efficientnet_lite0: pc.Classifier) -> None:
    pytest.importorskip("skimage", reason="the demo extra is not installed")
    from pixelcert.models.loading import photographs

    coffee, cat = (efficientnet_lite0.predict(pc.load_image(path)) for path in photographs())
    assert efficientnet_lite0.classes is not None
    assert efficientnet_lite0.classes[coffee[0]] == "espresso"
    assert coffee[1] > 0.9
    assert "cat" in efficientnet_lite0.classes[cat[0]]


def test_a_network_made_in_inference_mode_is_refused() -> None:
    with torch.inference_mode():
        net = Tiny()
    with pytest.raises(pc.ModelError, match=r"Tiny was made under torch.inference_mode\(\).*make it outside"):
        pc.Classifier(net, HALF, HALF)
