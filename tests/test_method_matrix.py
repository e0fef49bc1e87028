"""Every method × layer × architecture: shapes, batching, targets, a model left as found, and the cost in runs."""

import copy
from collections import Counter

import pytest
import torch
from small_networks import SIZE, small_model
from thoroughness import LONG

import pixelcert as pc
from pixelcert.models.splitting import feature_maps

QUICK = {"rise": {"masks": 12}, "intgrad": {"steps": 4}, "occlusion": {}}
IMAGES = torch.rand(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(2))
TARGETS = torch.tensor([1, 4, 9])
CELLS = [(name, layer) for name in pc.METHODS for layer in ("input", "final")]


@pytest.fixture(scope="module", params=["resnet", "vgg", "vit"])
def model(request):
    return small_model(request.param)


def explainer_of(name, model, layer):
    return pc.method(name, model, layer, **QUICK.get(name, {}))


@pytest.mark.parametrize(("name", "layer"), CELLS)
def test_every_cell_of_the_matrix(name, layer, model):
    if (name, layer) == ("grad_cam_pp", "input"):  # near its pole, where float32 is too coarse
        net = copy.deepcopy(model.net).double()
        model = pc.Classifier(net, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), name=model.name, size=SIZE)
    explainer = explainer_of(name, model, layer)
    before = state_of(model.net)
    maps, logits = explainer.explain(IMAGES, TARGETS)
    features = model.split("encoder.ln" if name == "cam" and "vit" in model.name else layer).features(IMAGES)
    side = SIZE if layer == "input" else feature_maps(features, IMAGES).shape[2]

    assert maps.shape == (3, side, side)
    assert bool(maps.isfinite().all())
    assert not maps.requires_grad
    assert torch.allclose(logits, model(IMAGES), atol=1e-4)
    scale = maps.abs().max()
    singles = torch.cat([explainer(IMAGES[i : i + 1], TARGETS[i : i + 1]) for i in range(3)])
    assert (singles - maps).abs().max() <= 1e-4 * scale, "a batch is not its images one by one"
    others = explainer(IMAGES, (TARGETS + 5) % 10)
    assert (others - maps).abs().max() > 1e-6 * scale, "the target does not matter"
    assert_same(state_of(model.net), before)


def state_of(net):
    hooks = sum(len(module._forward_hooks) + len(module._backward_hooks) for module in net.modules())
    modes = [module.training for module in net.modules()]
    parameters = {name: (value.requires_grad, value.grad, value.clone()) for name, value in net.named_parameters()}
    return hooks, modes, parameters, copy.deepcopy(net.state_dict())


def assert_same(after, before):
    assert after[:2] == before[:2]
    for name, (requires_grad, grad, value) in after[2].items():
        assert (requires_grad, grad) == (before[2][name][0], None)
        assert torch.equal(value, before[2][name][2])
    assert all(torch.equal(value, before[3][name]) for name, value in after[3].items())


# The cheapest method of each family.
CHEAPEST = [("gb", "input"), ("layer_cam", "final"), ("cam", "final"), ("lrp", "input"), ("rise", "final")]


@pytest.mark.parametrize("architecture", ["resnet18", "wide_resnet50_2", "resnet152", "vgg11", "vit_b_16"])
def test_the_papers_architectures(architecture):
    """The real sizes, with random weights."""
    model = pc.load_model(architecture, weights=None, device="cpu")
    if architecture == "vit_b_16":
        torch.nn.init.normal_(model.net.heads.head.weight, std=0.1)
    image = torch.rand(1, 3, 224, 224)
    target = model(image).argmax(dim=1)  # random logits are far apart, and RISE sees only the likely ones
    for name, layer in CELLS if LONG else CHEAPEST:
        maps, logits = pc.method(name, model, layer, **{**QUICK, "rise": {"masks": 10}}.get(name, {})).explain(
            image, target
        )
        assert bool(maps.isfinite().all()), (name, layer)
        assert maps.std() > 0, (name, layer)
        assert logits.shape == (1, 1000)


# ── Cost ──────────────────────────────────────────────────────────────────────────────────────────────────────────

FULL = {  # forwards and backwards at most
    "grad": (1, 1), "gb": (1, 1), "ixg": (1, 1), "intgrad": (5, 4), "lrp": (2, 1), "cam": (1, 0), "grad_cam": (1, 1),
    "grad_cam_pp": (1, 1), "layer_cam": (1, 1), "ablation_cam": (4, 0), "rise": (13, 0), "occlusion": (50, 0),
}  # fmt: skip


class Counting:
    """Counts images through the first and the last layer, forwards and backwards."""

    def __init__(self, net):
        layers = [module for module in net.modules() if isinstance(module, (torch.nn.Conv2d, torch.nn.Linear))]
        self.seen, self.handles = Counter(), []
        for place, layer in (("body", layers[0]), ("head", layers[-1])):
            self.handles.append(layer.register_forward_hook(self._counter(place)))
        self.handles.append(layers[-1].register_full_backward_hook(self._counter("backward")))

    def _counter(self, place):
        def count(module, inputs, outputs):
            (tensor,) = inputs if isinstance(inputs, tuple) and inputs[0] is not None else (outputs[0],)
            self.seen[place] += len(tensor)

        return count

    def __enter__(self):
        return self.seen

    def __exit__(self, *error):
        for handle in self.handles:
            handle.remove()


@pytest.mark.parametrize("name", FULL)
def test_cost_at_the_input_in_forwards_and_backwards_per_image(name):
    model = small_model("resnet")
    explainer = explainer_of(name, model, "input")
    with Counting(model.net) as seen:
        explainer.explain(IMAGES[:2], TARGETS[:2])
        seen.clear()  # a network with other hooks than before is tried out anew, once
        explainer.explain(IMAGES[:2], TARGETS[:2])
    forwards, backwards = FULL[name]
    assert seen["body"] <= 2 * forwards
    assert seen["backward"] <= 2 * backwards


@pytest.mark.parametrize("name", FULL)
def test_before_a_linear_head_every_method_costs_one_forward(name):
    model = small_model("resnet")
    explainer = explainer_of(name, model, "final")
    with Counting(model.net) as seen:
        explainer.explain(IMAGES[:2], TARGETS[:2])
        seen.clear()  # a network with other hooks than before is tried out anew, once
        explainer.explain(IMAGES[:2], TARGETS[:2])
    assert seen["body"] == 2, "features run once"
    assert seen["head"] <= 2, "the head at most once"
    assert seen["backward"] == 0


@pytest.mark.parametrize("name", ["rise", "occlusion", "ablation_cam", "intgrad"])
def test_before_another_head_features_still_run_once(name):
    model = small_model("vgg")
    explainer = explainer_of(name, model, "final")
    with Counting(model.net) as seen:
        explainer.explain(IMAGES[:2], TARGETS[:2])
        seen.clear()
        explainer.explain(IMAGES[:2], TARGETS[:2])
    assert seen["body"] == 2
    assert seen["head"] > 2
