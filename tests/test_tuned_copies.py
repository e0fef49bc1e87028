"""Tuned copies: the same function as the user's own network, which stays as it was; and copies that are up to date."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_networks import SIZE, models, resnet, small_model, tuning, vgg
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import pixelcert as pc
from pixelcert.explainer import Tuning
from pixelcert.models.cropping import local_parts
from pixelcert.models.variants import TunedClassifier, tuned
from pixelcert.sampling.precision import settle

QUICK = {"rise": {"masks": 12}, "intgrad": {"steps": 4}}
IMAGES = torch.rand(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(2))
SMALL = IMAGES[:, :, :32, :32]
TARGETS = torch.tensor([1, 4, 9])
BFLOAT16 = torch.bfloat16


def shaken(net: nn.Module) -> nn.Module:
    """Batch norms that are far from the identity, and heads far from zero."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in net.named_parameters():
        if "head" in name or "fc" in name or "classifier" in name:
            nn.init.normal_(parameter, std=0.3, generator=generator)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1, generator=generator)
            nn.init.uniform_(module.running_var, 0.2, 2.0, generator=generator)
            nn.init.uniform_(module.weight, 0.5, 2.0, generator=generator)
            nn.init.normal_(module.bias, std=0.1, generator=generator)
    return net


def classifier(make: Callable[[], nn.Module], size: int = SIZE, **settings: Any) -> pc.Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = shaken(make())
    return pc.Classifier(net, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), size=size, **settings)


def efficientnet() -> nn.Module:
    """Depthwise convolutions, SiLU, squeeze and excitation."""
    blocks = models.efficientnet.MBConvConfig
    return models.EfficientNet(
        [blocks(1, 3, 1, 16, 8, 1, 1, 1), blocks(4, 3, 2, 8, 16, 2, 1, 1)], dropout=0.1, num_classes=10
    )


def vgg_bn() -> nn.Module:
    return vgg(batch_norm=True)


NETWORKS = {
    "resnet": lambda: classifier(resnet),
    "vgg_bn": lambda: classifier(vgg_bn),
    "vit": lambda: small_model("vit"),
    "efficientnet": lambda: classifier(efficientnet),
}
CELLS = [(name, layer) for name in pc.METHODS for layer in ("input", "final")]


@pytest.fixture(scope="module", params=NETWORKS)
def model(request: pytest.FixtureRequest) -> pc.Classifier:
    return NETWORKS[request.param]()


def explainer_of(name: str, model: pc.Classifier, layer: str) -> Any:
    return pc.method(name, model, layer, **QUICK.get(name, {}))


def batch_norms(net: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in net.modules())


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    """On the whole: rounding may push a single activation over the edge of a ReLU."""
    assert actual.shape == expected.shape
    assert expected.std() > 0
    assert (actual - expected).abs().mean() <= tolerance * expected.abs().mean()


# ── The same function ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("name", "layer"), CELLS)
def test_every_method_has_the_same_maps_on_the_tuned_model(name, layer, model):
    if (name, layer) == ("grad_cam_pp", "input"):  # near its pole, where float32 is too coarse
        model = pc.Classifier(copy.deepcopy(model.net).double(), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3), size=SIZE)
    explainer = explainer_of(name, model, layer)
    fast = explainer.tuned(tuning(None, False))
    assert isinstance(fast.model, TunedClassifier)
    maps, logits = explainer.explain(IMAGES, TARGETS)
    fast_maps, fast_logits = fast.explain(IMAGES, TARGETS)
    assert_close(fast_logits, logits, 1e-5)
    if "vit" in model.name and (name, layer) == ("ixg", "final"):
        assert fast_maps.abs().max() < 1e-5 > maps.abs().max()  # zero but for rounding
    else:
        assert_close(fast_maps, maps, 1e-3)


@pytest.mark.parametrize(("name", "layer"), CELLS)
def test_every_method_runs_in_bfloat16_and_answers_in_float32(name, layer, model):
    explainer = explainer_of(name, model, layer)
    maps, logits = explainer.explain(IMAGES, TARGETS)
    rough_maps, rough_logits = explainer.tuned(tuning(BFLOAT16, False)).explain(IMAGES, TARGETS)
    assert rough_maps.dtype == rough_logits.dtype == torch.float32
    assert not torch.equal(rough_logits, logits), "nothing was rounded"
    assert_close(rough_logits, logits, 0.1)
    assert rough_maps.isfinite().all()
    # A patch reaches the class token through a normalisation, whose gradient is at right angles to it: their product,
    # and its mean along a way from zero, are all but zero.
    vanishing = "vit" in model.name and layer == "final" and name in ("ixg", "intgrad")
    if explainer.bears_bfloat16 and not vanishing:
        similar = torch.corrcoef(torch.stack([rough_maps.flatten(), maps.flatten()]))[0, 1]
        assert similar > 0.8


def test_layers_by_name_have_the_same_features_and_logits(model):
    layer = {"ResNet": "layer2", "VGG": "features.5", "EfficientNet": "features.1"}.get(model.name)
    layer = layer or "encoder.layers.encoder_layer_0"
    own, fast = model.split(layer), tuned(model, layer=layer).split(layer)
    assert_close(fast.features(IMAGES), own.features(IMAGES))
    assert_close(fast.head(fast.features(IMAGES)), model(IMAGES))


def test_float64_stays_float64():
    model = classifier(lambda: vgg_bn().double())
    fast = tuned(model)
    assert fast(IMAGES).dtype == torch.float64
    assert_close(fast(IMAGES), model(IMAGES), 1e-12)


def test_batch_norms_are_gone_where_they_can_be_folded():
    for name, count in (("resnet", 13), ("vgg_bn", 3), ("efficientnet", 10)):
        model = NETWORKS[name]()
        assert batch_norms(model.net) == count
        fast = tuned(model)
        assert batch_norms(fast.net) == 0, name
        assert str(fast.surgery("input")["folded"]) == f"{count} of {count}"


class Rounding(TorchFunctionMode):
    """Convolutions and products as on a GPU that may round what goes into them; more roughly than TF32 does."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        cudnn, products = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
        name = getattr(func, "__name__", "")
        if (name == "conv2d" and cudnn) or (name in ("linear", "matmul", "mm", "addmm") and products):
            args = (*(each.to(torch.float8_e5m2).to(each) for each in args[:2]), *args[2:])
        return func(*args, **(kwargs or {}))


@pytest.fixture
def rounding():
    products = torch.backends.cuda.matmul
    before, products.allow_tf32 = products.allow_tf32, True
    with Rounding():
        yield
    products.allow_tf32 = before


def test_rounding_is_not_taken_for_a_difference(rounding):
    for name in ("resnet", "vgg_bn", "efficientnet"):
        model = NETWORKS[name]()
        assert batch_norms(tuned(model).net) == 0, name
        pc.method("lrp", model, "input")(IMAGES, torch.tensor([1] * len(IMAGES)))
    assert torch.backends.cudnn.allow_tf32
    assert torch.backends.cuda.matmul.allow_tf32


class Rounded(nn.Module):
    """A part of a network that answers up to rounding what it answers."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, inputs: Tensor) -> Tensor:
        return self.part(inputs) * 1.01


def test_fused_networks_keep_their_local_parts(monkeypatch):
    monkeypatch.setattr("pixelcert.models.folding.fuse", lambda part: (Rounded(part), ""))
    model = NETWORKS["resnet"]()
    plain, fused = tuned(model), tuned(model, fused=True)
    assert_close(fused(IMAGES), plain(IMAGES))
    assert_close(fused.split("input").head(fused.normalise(IMAGES)), plain(IMAGES) * 1.01)
    assert len(local_parts(fused, "input").parts) == len(local_parts(plain, "input").parts) > 0


def test_copies_are_channels_last_and_work_nothing_in_place(model):
    fast = tuned(model)
    inputs = fast.normalise(IMAGES)
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    for module in fast.net.modules():
        assert getattr(module, "inplace", False) is False
        if isinstance(module, nn.Conv2d):
            assert module.weight.is_contiguous(memory_format=torch.channels_last)
    assert not any(parameter.requires_grad for parameter in fast.net.parameters())


def test_copies_keep_what_the_classifier_knows():
    names = tuple(f"class {index}" for index in range(10))
    model = classifier(vgg_bn, name="mine", classes=names, final="features.5")
    fast = tuned(model, BFLOAT16)
    assert (fast.name, fast.classes, fast.size, fast.final) == ("mine", names, SIZE, "features.5")
    assert torch.equal(fast.normalise(IMAGES), model.normalise(IMAGES).to(BFLOAT16))


# ── The user's own network ────────────────────────────────────────────────────────────────────────────────────────


def state_of(net: nn.Module) -> Any:
    modules = {
        name: (id(module), module.training, getattr(module, "inplace", None), len(module._forward_hooks))
        for name, module in net.named_modules()
    }
    hooks = [len(module._forward_pre_hooks) for module in net.modules()]
    tensors = {
        name: (id(value), value.data_ptr(), value._version, value.dtype, value.stride(), value.requires_grad)
        for name, value in [*net.named_parameters(), *net.named_buffers()]
    }
    return modules, hooks, tensors


@pytest.mark.parametrize("dtype", [None, BFLOAT16])
def test_nothing_in_the_users_network_is_changed(dtype, model):
    state, values = state_of(model.net), copy.deepcopy(model.net.state_dict())
    for layer in ("input", "final"):
        pc.method("gb", model, layer).tuned(tuning(dtype, False)).explain(IMAGES, TARGETS)
    assert state_of(model.net) == state
    assert all(torch.equal(value, values[name]) for name, value in model.net.state_dict().items())


def test_no_tensor_is_shared_with_the_users_network(model):
    own = {value.data_ptr() for value in model.net.state_dict().values()}
    assert own.isdisjoint(value.data_ptr() for value in tuned(model).net.state_dict().values())


def test_a_network_in_training_mode_is_refused():
    model = classifier(vgg_bn)
    tuned(model)
    model.net.features[1].train()
    with pytest.raises(pc.ModelError, match="training mode"):
        tuned(model)


# ── Batch norms that are not what they seem ───────────────────────────────────────────────────────────────────────


class Net(nn.Module):
    """Two convolutions and a batch norm, with `forward` for the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.conv2 = nn.Conv2d(3, 6, 3, bias=False), nn.Conv2d(6, 6, 3)
        self.norm, self.norm2, self.fc = nn.BatchNorm2d(6), nn.BatchNorm2d(6), nn.Linear(6, 10)
        self.relu = nn.ReLU(inplace=True)

    def head(self, x: Tensor) -> Tensor:
        return self.fc(x.mean(dim=(2, 3)))

    def forward(self, x: Tensor) -> Any:
        return self.head(self.relu(self.norm2(self.conv2(self.relu(self.norm(self.conv(x)))))))


class ClippingNorm(nn.BatchNorm2d):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).clamp(max=4.0)  # which no image of uniform noise reaches


class WithClipping(Net):
    def __init__(self) -> None:
        super().__init__()
        self.norm = ClippingNorm(6)
        nn.init.constant_(self.conv.weight, 0.1)  # the brighter the image, the higher


class WithNormTwice(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.conv2(self.norm(self.conv(x)).relu())))


class WithConvolutionTwice(Net):
    def __init__(self) -> None:
        super().__init__()
        self.norm3 = nn.BatchNorm2d(6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu()
        return self.head(self.norm3(self.conv2(self.norm2(self.conv2(x)))))


class WithAnotherReader(Net):
    def forward(self, x: Tensor) -> Tensor:
        x = self.conv2(self.norm(self.conv(x)).relu())
        return self.head(self.norm2(x).relu() + x)


class Biasless(nn.Conv2d):
    def forward(self, inputs: Tensor) -> Tensor:
        return F.conv2d(inputs, self.weight)


class WithIgnoredBias(Net):
    def __init__(self) -> None:
        super().__init__()
        self.conv2 = Biasless(6, 6, 3)


class WithDoubledBias(Net):
    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu()
        return self.head(self.norm2(F.conv2d(x, self.conv2.weight, 2 * self.conv2.bias)))


class WithLookingForTheNorm(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(x)).relu()) * self.norm.weight.sum()


class WithAliasing(Net):
    """What a ReLU does in place is seen where the same tensor is read again."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        return self.head(self.relu(x) + x)


class WithNormInFrontOfItself(Net):
    """The norm is called by one name, and known by another too."""

    def __init__(self) -> None:
        super().__init__()
        self.another = self.norm

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.another(self.conv(x)).relu())


TRAPS = {  # and how many batch norms are left
    WithClipping: 1,
    WithNormTwice: 2,  # one is not called at all
    WithConvolutionTwice: 2,
    WithAnotherReader: 1,
    WithIgnoredBias: 2,
    WithDoubledBias: 2,
    WithLookingForTheNorm: 2,
    WithAliasing: 2,
}


@pytest.mark.parametrize(("kind", "left"), TRAPS.items())
def test_what_cannot_be_folded_stays_and_the_answer_is_the_same(kind, left):
    model = classifier(kind, 32)
    if kind is WithClipping:
        model.net.norm.reset_parameters()
    images = torch.cat([SMALL, torch.ones(1, 3, 32, 32), torch.zeros(1, 3, 32, 32)])
    fast = tuned(model)
    torch.testing.assert_close(fast(images), model(images), rtol=1e-4, atol=1e-4)
    assert batch_norms(fast.net) == left


def test_a_norm_that_is_known_by_two_names_keeps_its_answer():
    model = classifier(WithNormInFrontOfItself, 32)
    torch.testing.assert_close(tuned(model)(SMALL), model(SMALL), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [WithAliasing, WithIgnoredBias])
def test_where_folding_fails_modules_still_work_in_place(kind):
    """The network is left just as it was, since it may count on it."""
    fast = tuned(classifier(kind, 32))
    assert fast.net.relu.inplace


def test_methods_see_what_a_network_does_in_place():
    model = classifier(WithAliasing, 32)
    for name in ("gb", "grad"):
        explainer = pc.method(name, model)
        assert_close(explainer.tuned(tuning(None, False))(SMALL, TARGETS), explainer(SMALL, TARGETS))


# ── Layers by name ────────────────────────────────────────────────────────────────────────────────────────────────


class Contained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3))
        self.norm = nn.BatchNorm2d(6)
        self.stem2, self.norm2 = nn.Conv2d(6, 6, 3, bias=False), nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x)).relu()
        return self.fc(self.norm2(self.stem2(x)).relu().mean(dim=(2, 3)))


@pytest.mark.parametrize(
    ("layer", "kept"),
    [
        ("stem", ["norm"]),
        ("stem.3", ["norm"]),
        ("stem.0", ["stem.1"]),
        ("stem.1", []),
        ("norm", []),
        ("stem2", ["norm2"]),
    ],
)
def test_what_a_layer_returns_stays_the_same(layer, kept):
    model = classifier(Contained, 32)
    fast = tuned(model, layer=layer)
    norms = [name for name, module in fast.net.named_modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms == kept
    assert_close(fast.split(layer).features(SMALL), model.split(layer).features(SMALL))
    assert_close(fast(SMALL), model(SMALL))
    explainer = pc.method("grad_cam", model, layer, relu=False)
    assert_close(explainer.tuned(tuning(None, False))(SMALL, TARGETS), explainer(SMALL, TARGETS))


def test_the_final_layer_is_kept_by_its_own_name():
    model = classifier(Contained, 32, final="stem")
    fast = pc.method("grad_cam", model, "final").tuned(tuning(None, False)).model
    assert isinstance(fast.net.norm, nn.BatchNorm2d)
    assert_close(fast.split("final").features(SMALL), model.split("final").features(SMALL))


def test_cam_at_the_input_uses_the_kernels_before_folding():
    model = NETWORKS["resnet"]()
    fast = tuned(model, BFLOAT16)
    assert torch.equal(fast.first_convolution, model.net.conv1.weight)
    assert not torch.equal(fast.net.conv1.weight, model.net.conv1.weight.to(BFLOAT16))
    explainer = pc.method("cam", model, "input")
    assert_close(explainer.tuned(tuning(None, False))(IMAGES, TARGETS), explainer(IMAGES, TARGETS))


# ── Networks of other kinds ───────────────────────────────────────────────────────────────────────────────────────


class Answering(Net):
    """As Hugging Face's models do."""

    def forward(self, x: Tensor) -> Any:
        return SimpleNamespace(logits=super().forward(x), loss=None)


@pytest.mark.parametrize("dtype", [None, BFLOAT16])
def test_a_network_that_answers_an_object_with_logits(dtype):
    model = classifier(Answering, 32)
    fast = tuned(model, dtype)
    assert batch_norms(fast.net) == 0
    assert fast(SMALL).dtype == fast.net.fc.weight.dtype == torch.float32
    assert_close(fast(SMALL), model(SMALL), 1e-5 if dtype is None else 0.1)


class Untraceable(Net):
    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.conv(x)))
        for _ in range(int(x.sum() * 0) + 1):  # which depends on values
            x = self.relu(self.norm2(self.conv2(x)))
        return self.head(x)


@pytest.mark.parametrize("name", ["grad", "gb", "lrp", "grad_cam", "occlusion", "ablation_cam"])
@pytest.mark.parametrize("layer", ["input", "conv2"])
@pytest.mark.filterwarnings("ignore:.*affine layers", "ignore:.*split by hooks")  # conv2 is cut off from its batch norm
def test_a_network_that_cannot_be_traced(name, layer):
    model = classifier(Untraceable, 32)
    explainer = pc.method(name, model, layer)
    fast = explainer.tuned(tuning(None, False))
    assert batch_norms(fast.model.net) == (1 if layer == "conv2" else 0)
    assert_close(fast(SMALL, TARGETS), explainer(SMALL, TARGETS), 1e-3)
    assert explainer.tuned(tuning(BFLOAT16, False))(SMALL, TARGETS).isfinite().all()


def test_hooks_of_the_network_work_in_its_copy():
    model = classifier(Net, 32)
    model.net.conv2.register_forward_hook(lambda module, given, answer: answer + 1)
    torch.testing.assert_close(tuned(model)(SMALL), model(SMALL), rtol=1e-4, atol=1e-4)


def test_a_hook_of_a_batch_norm_is_not_lost():
    model = classifier(Net, 32)
    model.net.norm.register_forward_hook(lambda module, given, answer: 2 * answer)
    torch.testing.assert_close(tuned(model)(SMALL), model(SMALL), rtol=1e-4, atol=1e-4)


def test_a_parametrised_convolution_is_left_alone():
    model = classifier(Net, 32)
    nn.utils.parametrizations.weight_norm(model.net.conv2)
    model.net.eval()
    fast = tuned(model)
    assert_close(fast(SMALL), model(SMALL), 1e-5)
    assert batch_norms(fast.net) == 1
    assert_close(tuned(model, BFLOAT16)(SMALL), model(SMALL), 0.1)


class Keeping(Net):
    """Networks made for CAMs keep their features, which `copy.deepcopy` refuses."""

    def forward(self, x: Tensor) -> Tensor:
        self.features = self.relu(self.norm(self.conv(x)))
        return self.head(self.features)


def scripted() -> nn.Module:
    return torch.jit.script(nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                                          nn.Flatten(), nn.Linear(6, 10)).eval())  # fmt: skip


@pytest.mark.parametrize("make", [Keeping, scripted])
@pytest.mark.filterwarnings("ignore:.*jit.script. is deprecated")
def test_a_network_that_cannot_be_copied_is_sampled_as_it_is(make):
    model = classifier(make, 32, classes=[f"class {index}" for index in range(10)])
    model(SMALL)
    votes = pc.sample(pc.method("grad", model), SMALL[0], 1, n=4, tau=None)
    assert votes.complete
    assert votes.provenance.precision == "float32"


def test_a_network_that_cannot_be_copied_says_so_in_its_votes():
    model = classifier(Keeping, 32, classes=[f"class {index}" for index in range(10)])
    model(SMALL)
    surgery = pc.sample(pc.method("grad", model), SMALL[0], 1, n=4, tau=None).provenance.surgery
    assert surgery["copied"].startswith("no (Only Tensors created explicitly by the user")


class OnlyAsItWasMade(Net):
    """A network that no copy can stand in for."""

    def __init__(self) -> None:
        super().__init__()
        self.own = id(self)

    def forward(self, x: Tensor) -> Tensor:
        if self.own != id(self):
            raise RuntimeError(f"not itself at {x.stride(1)}")
        return super().forward(x)


def test_a_copy_that_fails_in_both_memory_layouts_is_refused_with_both_reasons():
    model = classifier(OnlyAsItWasMade, 32)
    with pytest.raises(pc.ModelError, match=r"channels last: not itself at 1; usual: not itself at 1024\): write its"):
        tuned(model)


def test_memory_that_runs_out_while_a_network_is_copied_is_no_refusal_to_be_copied(monkeypatch):
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("pixelcert.models.variants.copy.deepcopy", full)
    with pytest.raises(torch.OutOfMemoryError):
        tuned(classifier(Net, 32))


@pytest.mark.parametrize(("dtype", "compiled"), [(BFLOAT16, False), (None, True)])
def test_what_needs_a_copy_is_refused_where_none_can_be_made(dtype, compiled):
    model = classifier(Keeping, 32, classes=[f"class {index}" for index in range(10)])
    model(SMALL)
    with pytest.raises(pc.ModelError, match=r"Keeping cannot be copied .*: use precision='float32' and compile=False"):
        pc.method("grad", model).tuned(tuning(dtype, compiled))


# ── Number formats ────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_but_the_last_linear_layer_is_in_bfloat16(model):
    fast = tuned(model, BFLOAT16)
    linear = [module for module in fast.net.modules() if isinstance(module, nn.Linear)]
    own = [module for module in model.net.modules() if isinstance(module, nn.Linear)]
    assert torch.equal(linear[-1].weight, own[-1].weight)
    assert torch.equal(linear[-1].bias, own[-1].bias)
    kept = {id(parameter) for parameter in linear[-1].parameters()}
    assert {p.dtype for p in fast.net.parameters() if id(p) not in kept} == {BFLOAT16}
    assert not any(module._forward_hooks for module in fast.net.modules()), "it would remember every answer"
    assert fast.normalise(IMAGES).dtype == BFLOAT16
    assert fast(IMAGES).dtype == torch.float32


@pytest.mark.parametrize("name", ["grad", "rise", "lrp"])
def test_a_network_whose_only_parameters_make_the_logits(name):
    model = classifier(lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 10)), 8)
    images = IMAGES[:, :, :8, :8]
    explainer = explainer_of(name, model, "input")
    maps, logits = explainer.tuned(tuning(BFLOAT16, False)).explain(images, TARGETS)
    assert_close(logits, model(images), 1e-2)
    assert_close(maps, explainer(images, TARGETS), 1e-2)


class HeadFirst(nn.Module):
    """Its parameters begin with those of the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.conv = nn.Linear(6, 10), nn.Conv2d(3, 6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.conv(x).relu().mean(dim=(2, 3)))


class Cosine(nn.Module):
    """Its logits come from no linear module, and may lie in memory where an earlier layer's answer was."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc, self.classes = nn.Conv2d(3, 10, 3), nn.Linear(10, 10), nn.Parameter(torch.randn(10, 10))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x).mean(dim=(2, 3))
        x = self.fc(x)
        x = x.relu()
        return F.linear(x, self.classes)


class LastLayerTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.mix, self.fc = nn.Conv2d(3, 10, 3), nn.Linear(10, 10), nn.Linear(10, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.mix(self.fc(self.conv(x).mean(dim=(2, 3)))))


class Scaled(HeadFirst):
    """A temperature: the linear layer's answer is not yet the network's."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


@pytest.mark.parametrize("kind", [HeadFirst, Cosine, LastLayerTwice, Scaled])
def test_bfloat16_for_networks_with_other_heads(kind):
    model = classifier(kind, 32)
    assert_close(tuned(model, BFLOAT16)(SMALL), model(SMALL), 0.1)


class Constant(HeadFirst):
    """Makes a tensor of its own, in float32 whatever its weights are in."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * torch.linspace(0, 1, x.shape[3]))


def test_a_network_that_cannot_compute_in_bfloat16_is_told_so():
    model = classifier(Constant, 32)
    with pytest.raises(pc.ModelError, match="precision"):
        pc.sample(pc.method("grad", model), SMALL[0], 1, n=4, tau=None, precision="bfloat16")


def test_auto_leaves_it_in_float32(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    gpu = torch.device("cuda")
    for network, precision in ((Constant, "float32"), (HeadFirst, "bfloat16")):
        explainer = pc.method("grad", classifier(network, 32))
        assert settle(explainer, Tuning(1, compile=False), gpu, 3 * 32 * 32).tuning.precision == precision


def test_only_the_layer_that_makes_the_logits_is_kept():
    model = classifier(Cosine, 32)
    for _ in range(5):  # where memory is used again is up to chance
        model.to("cpu")  # forgets its copies
        assert tuned(model, BFLOAT16).net.fc.weight.dtype == BFLOAT16


# ── Copies are kept, and up to date ───────────────────────────────────────────────────────────────────────────────


def test_copies_are_made_once():
    model = NETWORKS["vgg_bn"]()
    first = tuned(model)
    assert tuned(model) is first
    assert tuned(model, layer="final") is not first
    assert tuned(model, BFLOAT16) is not first
    assert tuned(model, BFLOAT16) is tuned(model, BFLOAT16)
    explainer = pc.method("grad", model)
    assert explainer.tuned(tuning(None, False)) is explainer.tuned(tuning(None, False))
    assert explainer.tuned(tuning(None, False)).model is first
    assert explainer.tuned(tuning(None, False)) is not explainer.tuned(tuning(BFLOAT16, False))
    assert pc.method("grad_cam", model, "input").tuned(tuning(None, False)).model is first


def change_a_weight(model: pc.Classifier) -> None:
    with torch.no_grad():
        model.net.features[0].weight.mul_(2)


def change_statistics(model: pc.Classifier) -> None:
    model.net.features[1].running_mean.add_(1)


def replace_a_module(model: pc.Classifier) -> None:
    model.net.classifier[5] = nn.Linear(24, 10).eval()


def move(model: pc.Classifier) -> None:
    model.net.double()


def load_weights(model: pc.Classifier) -> None:
    other = vgg_bn().state_dict()
    model.net.load_state_dict(other)


def replace_a_weight_in_its_own_place(model: pc.Classifier) -> None:
    """The new tensor may get the memory of the old one, and its version."""
    layer = model.net.features[0]
    shape = layer.weight.shape
    layer.weight = None
    layer.weight = nn.Parameter(torch.randn(shape))


def replace_a_module_in_its_own_place(model: pc.Classifier) -> None:
    model.net.classifier[5] = nn.Identity()
    model.net.classifier[5] = nn.Linear(24, 10).eval()


def change_an_attribute(model: pc.Classifier) -> None:
    layer = next(
        module for module in model.net.features if isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3)
    )
    layer.dilation, layer.padding = (2, 2), (2, 2)


def add_a_hook(model: pc.Classifier) -> None:
    model.net.features[0].register_forward_hook(lambda module, given, answer: answer.flip(-1))


@pytest.mark.parametrize(
    ("change", "dtype"),
    [
        (change_a_weight, BFLOAT16),
        (change_statistics, None),
        (replace_a_module, None),
        (move, BFLOAT16),
        (load_weights, None),
        (replace_a_weight_in_its_own_place, None),
        (replace_a_module_in_its_own_place, BFLOAT16),
        (change_an_attribute, None),
        (add_a_hook, None),
    ],
)
def test_copies_are_made_again_when_the_network_changes(change, dtype):
    model = classifier(vgg_bn)
    explainer = pc.method("grad", model)
    before, maps = tuned(model, dtype), explainer.tuned(tuning(dtype, False))(IMAGES, TARGETS)
    change(model)
    after = tuned(model, dtype)
    assert after is not before
    assert_close(after(IMAGES), model(IMAGES), 1e-4 if dtype is None else 0.1)
    changed = explainer.tuned(tuning(dtype, False))
    assert changed.model is after
    assert change is move or not torch.equal(changed(IMAGES, TARGETS), maps)
    old = weakref.ref(before.net)
    del before, maps
    gc.collect()
    assert old() is None, "it takes memory"


def test_a_classifier_that_moves_forgets_its_copies():
    model = NETWORKS["vgg_bn"]()
    first = tuned(model)
    model.to("cpu")
    assert tuned(model) is not first


def test_votes_of_a_changed_network_are_those_of_the_changed_network():
    model = classifier(vgg_bn)
    explainer = pc.method("grad", model)
    image = IMAGES[0]

    def votes() -> Any:
        return pc.sample(explainer, image, 1, n=3, levels=(50,), tau=None).ones

    before = votes()
    change_a_weight(model)
    after = votes()
    assert (before != after).any()
    assert (
        after == pc.sample(pc.method("grad", classifier_like(model)), image, 1, n=3, levels=(50,), tau=None).ones
    ).all()


def classifier_like(model: pc.Classifier) -> pc.Classifier:
    return pc.Classifier(copy.deepcopy(model.net), mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), size=SIZE)


def test_whoever_sets_tf32_in_the_newer_way_loses_nothing():
    """torch then refuses to read the older flags, and does not forget: each way has a process of its own."""
    script = """
import os, sys, traceback
import torch, pixelcert as pc
from pixelcert.models.variants import tuned
from pixelcert.basics.machine import tf32, tf32_allowed

def check(newer):
    eval(f"torch.backends.{newer}").fp32_precision = "ieee"
    before = tf32_allowed()
    with tf32(True):
        assert tf32_allowed() == (True, True)
        with tf32(False):
            assert tf32_allowed() == (False, False)
    assert tf32_allowed() == before
    conv, norm, fc = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 5)
    net = torch.nn.Sequential(conv, norm, torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), fc)
    model = pc.Classifier(net, (0.5,) * 3, (0.5,) * 3, size=16)
    assert not any("BatchNorm" in type(module).__name__ for module in tuned(model).net.modules())
    pc.method("lrp", model, "input")(torch.rand(1, 3, 16, 16), torch.tensor([1]))

for newer in ("cuda.matmul", "cudnn.conv", "cudnn") if hasattr(torch.backends.cuda.matmul, "fp32_precision") else ():
    if not os.fork():
        try:
            check(newer)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.wait()[1] == 0, newer
"""
    subprocess.run([sys.executable, "-c", script], check=True)


# ── Compiling ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layer", ["input", "final"])
def test_compiled_copies_run_compiled_halves_alone(layer, monkeypatch):
    ran = []

    def compiling(function: Any) -> Any:
        def compiled(given: Tensor) -> Tensor:
            ran.append(function)
            return function(given)

        return compiled

    monkeypatch.setattr(torch, "compile", compiling)
    model = NETWORKS["resnet"]()
    explainer = pc.method("grad_cam", model, layer)
    expected = explainer(IMAGES, TARGETS)
    plain = explainer.tuned(tuning(None, False))
    assert_close(plain(IMAGES, TARGETS), expected, 1e-3)
    assert ran == []
    fast = explainer.tuned(tuning(None, True))
    assert_close(fast(IMAGES, TARGETS), expected, 1e-3)
    assert len(ran) == (2 if layer == "input" else 1)  # before a linear head the head is not run
    assert fast is not plain
    assert fast.model is not plain.model


def test_each_network_is_compiled_under_code_of_its_own(monkeypatch):
    """torch compiles one piece of code for so many networks and no more."""
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda function: compiled.append(function) or function)
    for _ in range(2):
        model = NETWORKS["resnet"]()
        assert_close(tuned(model, compiled=True)(IMAGES), model(IMAGES))
        tuned(model, compiled=True).split("final")
    codes = [function.__code__ for function in compiled]
    assert len(codes) == len({id(code) for code in codes}) == 4
