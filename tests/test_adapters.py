"""Adapters against calling the foreign object directly, and what every adapted explainer promises."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pixelcert as pc
from pixelcert.adapters import (
    Adapted,
    adapt,
    from_captum,
    from_grad_cam,
    from_numpy,
    from_quantus,
    from_torchcam,
    from_zennit,
)
from pixelcert.adapters.adapted import as_found
from pixelcert.basics.files import plain
from pixelcert.models.loading import torchvision_models

MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)
TARGETS = torch.tensor([3, 0, 4])

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:captum", "ignore::UserWarning:quantus")


@pytest.fixture
def model() -> pc.Classifier:
    torch.manual_seed(0)
    net = nn.Sequential()
    net.add_module("first", nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU()))
    net.add_module("last", nn.Sequential(nn.Conv2d(6, 32, 3, stride=2), nn.ReLU()))
    net.add_module("pool", nn.AdaptiveAvgPool2d(1))
    net.add_module("flat", nn.Flatten())
    net.add_module("fc", nn.Linear(32, 5))
    with torch.no_grad():
        net.first[0].weight.mul_(4)  # so that maps are no plateaus, whose ranking is rounding
        net.last[0].weight.mul_(4)
    for buffer in (net.first[1].running_mean, net.first[1].running_var):
        buffer.uniform_(0.5, 1.5)
    return pc.Classifier(net, MEAN, STD, size=16)


def images(batch: int = 3, size: int = 16) -> Tensor:
    return torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(1))


def normalised(x: Tensor) -> Tensor:
    return torch.stack([(x[:, c] - MEAN[c]) / STD[c] for c in range(3)], dim=1)


def need(package: str) -> Any:
    """Import a foreign package, or skip and say why; torchvision comes first, because some packages need it."""
    torchvision_models()
    distribution = {"pytorch_grad_cam": "grad-cam"}.get(package.split(".")[0], package.split(".")[0])
    pytest.importorskip(package.split(".")[0], reason=f"{package} is not installed: pip install {distribution}")
    return import_module(package)


# ── The cases: how each explanation is adapted, and how it is called without pixelcert, for one image ─────────────


@dataclass
class Case:
    make: Callable[[pc.Classifier], Adapted]
    direct: Callable[[pc.Classifier, Tensor, int], Any]  # of one normalised image (1, C, H, W)
    name: str
    params: dict[str, Any]
    layer: str


def captum(kind: str, layer: str = "input", logged: dict[str, Any] | None = None, **kwargs: Any) -> Case:
    def attribution(model: pc.Classifier) -> Any:
        where = () if layer == "input" else (model.net.get_submodule(layer),)
        return getattr(need("captum.attr"), kind)(model.net, *where)

    return Case(
        lambda model: from_captum(attribution(model), model, **kwargs),
        lambda model, x, target: attribution(model).attribute(x, target=target, **kwargs).sum(dim=1),
        f"captum.{kind}",
        {**kwargs, **(logged or {})},
        layer,
    )


def grad_cam(kind: str, layer: str = "last", logged: dict[str, Any] | None = None, **kwargs: Any) -> Case:
    def cam(model: pc.Classifier) -> Any:
        return getattr(need("pytorch_grad_cam"), kind)(
            model.net, [model.net.get_submodule(one) for one in layer.split(", ")]
        )

    def direct(model: pc.Classifier, x: Tensor, target: int) -> Any:
        kind_of_target = need("pytorch_grad_cam.utils.model_targets").ClassifierOutputTarget
        with cam(model) as made:
            return made(input_tensor=x, targets=[kind_of_target(target)], **kwargs)

    adapted = lambda model: from_grad_cam(cam(model), model, **kwargs)  # noqa: E731
    return Case(adapted, direct, f"pytorch_grad_cam.{kind}", {**kwargs, **(logged or {})}, layer)


def zennit(kind: str, composite: str | None, logged: dict[str, Any], **kwargs: Any) -> Case:
    def attributor(model: pc.Classifier) -> Any:
        canonizers = [need("zennit.canonizers").SequentialMergeBatchNorm()]
        made = None if composite is None else getattr(need("zennit.composites"), composite)(canonizers=canonizers)
        return getattr(need("zennit.attribution"), kind)(model.net, made, **kwargs)

    def direct(model: pc.Classifier, x: Tensor, target: int) -> Tensor:
        one_hot = torch.eye(5)[[target]]
        start = (lambda output: output * one_hot) if kind == "Occlusion" else one_hot
        return attributor(model)(x, start)[1].sum(dim=1)

    name = f"zennit.{kind}({composite or ''})"
    return Case(lambda model: from_zennit(attributor(model), model), direct, name, {**kwargs, **logged}, "input")


def torchcam(kind: str, layer: str = "last", logged: dict[str, Any] | None = None, **kwargs: Any) -> Case:
    def extractor(model: pc.Classifier) -> Any:
        return getattr(need("torchcam.methods"), kind)(model.net, layer.split(", "), input_shape=(3, 16, 16))

    def direct(model: pc.Classifier, x: Tensor, target: int) -> Tensor:
        with extractor(model) as made:
            cams = made([target], model.net(x), **kwargs)
            return cams[0] if len(cams) == 1 else made.fuse_cams(cams)

    adapted = lambda model: from_torchcam(extractor(model), model, **kwargs)  # noqa: E731
    return Case(adapted, direct, f"torchcam.{kind}", {**kwargs, **(logged or {})}, layer)


def gradient_function(model: nn.Module, inputs: np.ndarray, targets: np.ndarray, power: int = 1) -> np.ndarray:
    x = torch.from_numpy(inputs).requires_grad_()
    model(x).gather(1, torch.from_numpy(targets)[:, None]).sum().backward()
    return x.grad.numpy() ** power


def quantus(function: Callable[[], Callable[..., Any]], name: str, **kwargs: Any) -> Case:
    def direct(model: pc.Classifier, x: Tensor, target: int) -> np.ndarray:
        return np.sum(function()(model.net, x.numpy(), np.array([target]), **kwargs), axis=1)

    return Case(lambda model: from_quantus(function(), model, **kwargs), direct, name, kwargs, "")


CASES = {
    "captum Saliency": captum("Saliency", abs=False),
    "captum IntegratedGradients": captum("IntegratedGradients", logged={"multiply_by_inputs": True}, n_steps=5),
    "captum DeepLift": captum("DeepLift", logged={"eps": 1e-10, "multiply_by_inputs": True}, baselines=0.5),
    "captum DeepLiftShap": captum("DeepLiftShap", baselines=torch.linspace(-1, 1, 2 * 768).view(2, 3, 16, 16)),
    "captum GuidedBackprop": captum("GuidedBackprop"),
    "captum InputXGradient": captum("InputXGradient"),
    "captum LayerGradCam": captum("LayerGradCam", "last", relu_attributions=True),
    "captum LayerIntegratedGradients": captum("LayerIntegratedGradients", "last", n_steps=4),
    "captum Occlusion": captum(
        "Occlusion", logged={"use_weights": True}, sliding_window_shapes=(3, 4, 4), strides=(3, 4, 4)
    ),
    "grad-cam GradCAM": grad_cam("GradCAM"),
    "grad-cam GradCAMPlusPlus": grad_cam("GradCAMPlusPlus", eigen_smooth=True),
    "grad-cam LayerCAM smoothed": grad_cam("LayerCAM", aug_smooth=True),
    "grad-cam EigenCAM": grad_cam("EigenCAM"),
    "grad-cam ScoreCAM": grad_cam("ScoreCAM"),
    "grad-cam AblationCAM": grad_cam("AblationCAM", logged={"batch_size": 32, "ratio_channels_to_ablate": 1.0}),
    "grad-cam FullGrad": grad_cam("FullGrad", "first.0, first.1, last.0"),
    "zennit LRP": zennit("Gradient", "EpsilonPlusFlat", {"canonizers": ["SequentialMergeBatchNorm"]}),
    "zennit gradient": zennit("Gradient", None, {}),
    "zennit IntegratedGradients": zennit("IntegratedGradients", None, {}, n_iter=4),
    "zennit Occlusion": zennit("Occlusion", None, {}, window=(8, 8), stride=(4, 4)),
    "torch-cam GradCAM": torchcam("GradCAM", normalized=False),
    "torch-cam CAM": torchcam("CAM"),
    "torch-cam ScoreCAM": torchcam("ScoreCAM", logged={"bs": 32}),
    "torch-cam LayerCAM, two layers": torchcam("LayerCAM", "first, last"),
    "torch-cam RefineCAM": torchcam("RefineCAM", "first, last"),
    "torch-cam FinerCAM": torchcam("FinerCAM", logged={"gamma": 0.6, "num_references": 3}),
    "Quantus-style function": quantus(lambda: gradient_function, "test_adapters.gradient_function", power=3),
    "Quantus's own": quantus(lambda: need("quantus").explain, "quantus.explain", method="Saliency"),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def state(net: nn.Module) -> list[Any]:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    modules = [
        (name, id(module), module.training, *(tuple(getattr(module, kind)) for kind in hooks))
        for name, module in net.named_modules()
    ]
    parameters = [(name, id(one), one.requires_grad, id(one.grad)) for name, one in net.named_parameters()]
    return modules + parameters + [(name, value.numpy().tobytes()) for name, value in net.state_dict().items()]


def assert_same(actual: Any, expected: Any) -> None:
    actual, expected = (torch.as_tensor(one).detach().double() for one in (actual, expected))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-7 + 1e-5 * float(expected.abs().max()))


def test_maps_are_those_of_the_foreign_object_on_each_normalised_image(model: pc.Classifier, case: Case) -> None:
    expected = [case.direct(model, normalised(images())[i : i + 1], int(TARGETS[i])) for i in range(3)]
    maps, logits = case.make(model).explain(images(), TARGETS)
    maps = maps.sum(dim=1) if maps.ndim == 4 else maps
    for i in range(3):
        assert_same(maps[i : i + 1], expected[i])
    assert float(maps.std()) > 0
    assert_same(logits, model(images()))


def test_a_batch_is_its_images_one_by_one(model: pc.Classifier, case: Case) -> None:
    explainer = case.make(model)
    batch = explainer(images(), TARGETS)
    for i in range(3):
        assert_same(batch[i : i + 1], explainer(images()[i : i + 1], TARGETS[i : i + 1]))


@pytest.mark.parametrize("frozen", [False, True])
def test_the_network_is_left_as_found(model: pc.Classifier, case: Case, frozen: bool) -> None:
    model.net.requires_grad_(not frozen)
    for parameter in model.net.parameters():
        parameter.grad = None if frozen else torch.ones_like(parameter)
    explainer = case.make(model)  # a CAM registers its hooks here
    before, given = state(model.net), images()
    with torch.no_grad():
        explainer(given, TARGETS)
    assert state(model.net) == before
    assert torch.equal(given, images())
    assert all(frozen or bool((one.grad == 1).all()) for one in model.net.parameters())


def test_sampling_runs_and_records_method_parameters_layer_and_model(model: pc.Classifier, case: Case) -> None:
    votes = pc.sample(case.make(model), images()[0], 3, n=4, levels=(50, 25), tau=None, batch_size=3)
    assert votes.complete
    assert votes.predictions is not None
    assert votes.ones.max() > 0
    told = votes.provenance
    assert (told.method, told.layer, told.weights) == (case.name, case.layer, model.weights_hash)
    assert {**told.params, **plain(case.params)} == told.params


# ── Random explanations ───────────────────────────────────────────────────────────────────────────────────────────


def noise_tunnel(model: pc.Classifier, **settings: Any) -> Adapted:
    attr = need("captum.attr")
    return from_captum(attr.NoiseTunnel(attr.Saliency(model.net)), model, nt_samples=3, **settings)


RANDOM = {
    "captum NoiseTunnel": noise_tunnel,
    "captum GradientShap": lambda model, **settings: from_captum(
        need("captum.attr").GradientShap(model.net), model, baselines=torch.zeros(2, 3, 16, 16), **settings
    ),
    "grad-cam RandomCAM": lambda model, **settings: from_grad_cam(
        need("pytorch_grad_cam").RandomCAM(model.net, [model.net.last]), model, **settings
    ),
    "zennit SmoothGrad": lambda model, **settings: from_zennit(
        need("zennit.attribution").SmoothGrad(model.net, n_iter=3), model, **settings
    ),
    "torch-cam SmoothGradCAMpp": lambda model, **settings: from_torchcam(
        need("torchcam.methods").SmoothGradCAMpp(model.net, "last", std=1.0), model, **settings
    ),
    "NumPy": lambda model, **settings: from_numpy(
        lambda x: x.mean(axis=1) + np.random.rand(*x[:, 0].shape), **settings
    ),
    "Python": lambda model, **settings: from_numpy(lambda x: x.mean(axis=1) ** random.random(), **settings),
}


@pytest.mark.parametrize("make", RANDOM.values(), ids=RANDOM.keys())
def test_random_explanations_become_functions_of_the_image_and_the_seed(model: pc.Classifier, make: Any) -> None:
    explainer, generators = make(model), (torch.get_rng_state(), np.random.get_state()[1], random.getstate())
    with pytest.warns(pc.PixelcertWarning, match="draws random numbers: each image is explained by itself"):
        batch = explainer(images(), TARGETS)
    for i in (2, 1, 0):
        assert torch.equal(batch[i : i + 1], explainer(images()[i : i + 1], TARGETS[i : i + 1]))
    other = make(model, seed=1)
    with pytest.warns(pc.PixelcertWarning, match="draws random numbers"):
        again, another = make(model)(images(), TARGETS), other(images(), TARGETS)
    assert torch.equal(batch, again)
    assert not torch.equal(batch, another)
    assert other.params["seed"] == 1
    assert explainer.surgery == {"random numbers": "seeded for each image"}
    assert torch.equal(generators[0], torch.get_rng_state())
    assert np.array_equal(generators[1], np.random.get_state()[1])
    assert generators[2] == random.getstate()


def test_deterministic_explanations_are_called_once_per_batch() -> None:
    calls: list[int] = []
    from_numpy(lambda x: (calls.append(len(x)), x.mean(axis=1))[1])(images(), TARGETS)
    assert calls == [3]


# ── NumPy ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def brightness(x: np.ndarray, weight: float = 1.0) -> np.ndarray:
    x *= weight  # in place, on purpose
    return x[:, :, ::2, ::2]


def test_a_numpy_function_sees_pixels_and_may_answer_coarse_channels_in_place() -> None:
    given = images()
    maps = from_numpy(brightness, weight=2.0)(given, TARGETS)
    assert_same(maps, 2 * images()[:, :, ::2, ::2])
    assert torch.equal(given, images())


def test_a_numpy_function_is_told_by_its_name_and_what_is_fixed_of_it() -> None:
    votes = pc.sample(from_numpy(partial(brightness, weight=0.5)), images()[0], 0, n=4, levels=(50,), tau=None)
    assert votes.provenance.method == "test_adapters.brightness"
    assert votes.provenance.params == {"weight": 0.5}
    assert votes.provenance.model == ""
    assert from_numpy(brightness, name="mine").name == "mine"


@pytest.mark.parametrize("answer", [None, "map", [[1], [2, 3]]])
def test_an_answer_that_is_no_array_is_refused(answer: object) -> None:
    with pytest.raises(pc.ExplainerError, match="returned"):
        from_numpy(lambda x: answer)(images(), TARGETS)


# ── The door ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_adapt_recognises_every_library(model: pc.Classifier) -> None:
    found = {}
    for package, make in {
        "captum": lambda: need("captum.attr").Saliency(model.net),
        "pytorch_grad_cam": lambda: need("pytorch_grad_cam").GradCAM(model.net, [model.net.last]),
        "zennit": lambda: need("zennit.composites").EpsilonPlus(),
        "torchcam": lambda: need("torchcam.methods").GradCAM(model.net, "last"),
    }.items():
        found[package] = adapt(make(), model).name.partition(".")[0]
    assert all(package == name for package, name in found.items())
    assert adapt(gradient_function, model, power=2).params == {"power": 2}
    assert adapt(brightness, weight=2.0).params == {"weight": 2.0}
    assert adapt(lambda images, needed: images, needed=1).params == {"needed": 1}


def test_adapt_recognises_subclasses(model: pc.Classifier) -> None:
    class Mine(need("captum.attr").Saliency):
        pass

    assert adapt(Mine(model.net), model=model).name == "captum.Mine"


@pytest.mark.parametrize(
    ("explanation", "given", "message"),
    [
        (object(), True, "builtins.object is not known: give a Captum"),
        (nn.Linear, True, "Linear is not known"),
        (lambda: None, True, "is not known"),
        (lambda images, targets: images, True, "an explainer already"),
        (brightness, True, "leave model out"),
        (gradient_function, False, "model is missing"),
    ],
)
def test_adapt_says_what_it_takes(model: pc.Classifier, explanation: object, given: bool, message: str) -> None:
    with pytest.raises(pc.ArgumentError, match=message):
        adapt(explanation, model if given else None)


# ── Refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────


def other_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.mark.parametrize(
    "make",
    [
        lambda net: need("captum.attr").Saliency(net),
        lambda net: need("captum.attr").Saliency(net.forward),
        lambda net: need("pytorch_grad_cam").GradCAM(net, [net[0]]),
        lambda net: need("zennit.attribution").Gradient(net),
        lambda net: need("torchcam.methods").GradCAM(net, "0"),
    ],
)
def test_another_network_than_the_classifiers_is_refused(model: pc.Classifier, make: Callable[..., Any]) -> None:
    with pytest.raises(pc.ArgumentError, match=r"is not the network of model=Sequential: make it with model\.net"):
        adapt(make(other_net()), model)


@pytest.mark.parametrize("make", [from_captum, from_zennit, from_quantus])
def test_a_bare_network_is_no_classifier(model: pc.Classifier, make: Callable[..., Any]) -> None:
    explanations = {
        from_captum: lambda: need("captum.attr").Saliency(model.net),
        from_zennit: lambda: need("zennit.composites").EpsilonPlus(),
        from_quantus: lambda: gradient_function,
    }
    with pytest.raises(pc.ArgumentError, match=r"model is Sequential: give pixelcert\.Classifier"):
        make(explanations[make](), model.net)


def test_a_captum_attribution_of_the_classifier_itself_sees_pixels(model: pc.Classifier) -> None:
    attr = need("captum.attr")
    of_pixels = from_captum(attr.Saliency(model), model)(images(), TARGETS)
    of_inputs = from_captum(attr.Saliency(model.net), model)(images(), TARGETS)
    assert_same(of_pixels, of_inputs / torch.tensor(STD)[:, None, None])


@pytest.mark.parametrize(
    ("kind", "kwargs", "message"),
    [
        ("Saliency", {"steps": 3}, "does not take steps: its arguments are abs"),
        ("Saliency", {"target": 3}, "was given target: leave it out"),
        ("Occlusion", {}, "needs sliding_window_shapes"),
        ("IntegratedGradients", {"return_convergence_delta": True}, "leave it out"),
        ("FeaturePermutation", {}, "mixes the images of a batch"),
    ],
)
def test_captum_arguments_are_checked_at_the_door(
    model: pc.Classifier, kind: str, kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(pc.ArgumentError, match=message):
        from_captum(getattr(need("captum.attr"), kind)(model.net), model, **kwargs)


def test_a_layer_without_space_is_refused(model: pc.Classifier) -> None:
    explainer = from_captum(need("captum.attr").LayerActivation(model.net, model.net.flat), model)
    with pytest.raises(pc.ExplainerError, match=r"choose one layer whose output is \(B, C, H, W\)"):
        explainer(images(), TARGETS)


def test_a_neurons_attribution_needs_no_target(model: pc.Classifier) -> None:
    attribution = need("captum.attr").NeuronGradient(model.net, model.net.last)
    explainer = from_captum(attribution, model, neuron_selector=(2, 1, 1))
    assert explainer.layer == "input"
    assert_same(explainer(images(), TARGETS), attribution.attribute(normalised(images()), (2, 1, 1)))


def test_a_layer_that_is_called_twice_is_refused_for_grad_cam() -> None:
    relu = nn.ReLU()
    net = nn.Sequential(nn.Conv2d(3, 4, 3), relu, nn.Conv2d(4, 5, 3), relu, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = pc.Classifier(net, MEAN, STD, size=16)
    explainer = from_grad_cam(need("pytorch_grad_cam").GradCAM(net, [relu]), model)
    with pytest.raises(pc.ArgumentError, match="layer=1, which the network calls more than once"):
        explainer(images(), TARGETS)


def test_what_is_no_cam_is_refused(model: pc.Classifier) -> None:
    package = need("pytorch_grad_cam")
    with pytest.raises(pc.ArgumentError, match="is no CAM"):
        adapt(package.GuidedBackpropReLUModel(model.net), model)
    with pytest.raises(pc.ArgumentError, match="chooses its targets by itself"):
        adapt(package.FinerCAM(model.net, [model.net.last]), model)
    with pytest.raises(pc.ArgumentError, match="was given targets"):
        adapt(package.GradCAM(model.net, [model.net.last]), model, targets=[])


def test_arguments_that_pixelcert_gives_are_refused_for_torchcam(model: pc.Classifier) -> None:
    with pytest.raises(pc.ArgumentError, match="was given class_idx"):
        adapt(need("torchcam.methods").GradCAM(model.net, "last"), model, class_idx=3)


def test_a_network_in_training_mode_is_refused(model: pc.Classifier) -> None:
    explainer = from_quantus(gradient_function, model)
    model.net.first.train()
    with pytest.raises(pc.ModelError, match="training mode"):
        explainer(images(), TARGETS)


# ── Leaving things as found ───────────────────────────────────────────────────────────────────────────────────────


def test_a_network_is_restored_after_an_error(model: pc.Classifier) -> None:
    before = state(model.net)

    def vandal() -> None:
        model.net.fc.weight.requires_grad_(False)
        model.net.last.train()
        model.net.first.register_forward_hook(lambda *_: None, with_kwargs=True, always_call=True)
        model.net.last.register_full_backward_hook(lambda *_: None)
        model.net.last.register_forward_pre_hook(lambda *_: None, with_kwargs=True)
        model.net.pool = nn.AdaptiveMaxPool2d(1)
        model.net(images()).sum().backward()
        raise RuntimeError("a vandal's error")

    with pytest.raises(RuntimeError, match="a vandal's"), as_found(model.net):
        vandal()
    assert state(model.net) == before
    assert not model.net.first._forward_hooks_with_kwargs


def test_settings_are_values_that_another_process_would_give_too() -> None:
    values = (torch.zeros(2), np.ones(3), nn.ReLU(), brightness, {"a": (1, None)}, np.float32(0.5))
    told = plain(values)
    assert told[0].startswith("torch.float32 (2,) ")
    assert told[0] != plain(torch.ones(2))
    assert told[1:] == [plain(np.ones(3)), "ReLU", "brightness", {"a": [1, None]}, 0.5]
    assert "0x" not in repr(told)


def test_a_method_that_multiplies_the_batch_says_so(model: pc.Classifier) -> None:
    attr = need("captum.attr")
    assert from_captum(attr.IntegratedGradients(model.net), model).passes == 50
    assert from_captum(attr.IntegratedGradients(model.net), model, internal_batch_size=8).passes == 1
    assert noise_tunnel(model).passes == 3
    assert from_captum(attr.DeepLiftShap(model.net), model, baselines=torch.zeros(4, 3, 16, 16)).passes == 4
