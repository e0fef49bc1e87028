"""Every method against an independent implementation: Captum, torch-cam, or the slow definition.

Tolerances are relative to the largest value of the map: 1e-5, the rounding of float32 sums, unless said otherwise.
"""

import numpy as np
import pytest
import torch
from small_networks import SIZE, small_model
from torch import nn
from torch.nn import functional as F

import pixelcert as pc
from pixelcert.methods import rise
from pixelcert.models.heads import linear_head
from pixelcert.models.splitting import feature_maps

IMAGES = torch.rand(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
TARGETS = torch.tensor([3, 7])


@pytest.fixture(scope="module", params=["resnet", "vgg", "vit"])
def model(request):
    return small_model(request.param)


@pytest.fixture(scope="module", params=["resnet", "vgg"])
def cnn(request):
    return small_model(request.param)


def agree(maps, expected, tolerance=1e-5):
    assert maps.shape == expected.shape
    assert expected.std() > 0
    return (maps - expected).abs().max() <= tolerance * expected.abs().max()


class Head(nn.Module):
    """A split model's head as a module, for libraries that want one."""

    def __init__(self, model, layer):
        super().__init__()
        self.body, self.head = model.split(layer)

    def forward(self, features):
        return self.head(features)


# ── Captum ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layer", ["input", "final"])
def test_gradients_agree_with_captum(model, layer):
    attr = pytest.importorskip("captum.attr", reason="captum is not installed")
    if layer == "final" and linear_head(model, "final"):
        pytest.skip("constant by definition; see test_closed_forms_agree_with_running_the_head")
    head = Head(model, layer)
    features = head.body(IMAGES).detach()
    saliency = attr.Saliency(head).attribute(features.clone(), target=TARGETS, abs=True)
    assert agree(pc.method("grad", model, layer)(IMAGES, TARGETS), feature_maps(saliency, IMAGES).sum(1))
    product = attr.InputXGradient(head).attribute(features.clone(), target=TARGETS)
    found = pc.method("ixg", model, layer)(IMAGES, TARGETS)
    if features.ndim == 3:  # a patch reaches the class token through a normalisation, whose gradient is at right angles
        assert found.abs().max() < 1e-5 * product.abs().max()
    else:
        assert agree(found, feature_maps(product, IMAGES).sum(1))
    path = attr.IntegratedGradients(head).attribute(features.clone(), target=TARGETS, n_steps=20)
    assert agree(pc.method("intgrad", model, layer)(IMAGES, TARGETS), feature_maps(path, IMAGES).sum(1), tolerance=1e-4)


def test_guided_backprop_agrees_with_captum():
    """On a network of single-use, out-of-place ReLU modules, the only kind that Captum takes."""
    attr = pytest.importorskip("captum.attr", reason="captum is not installed")
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip
    model = pc.Classifier(net, mean=(0.5,) * 3, std=(0.25,) * 3, size=SIZE)
    expected = attr.GuidedBackprop(net).attribute(model.normalise(IMAGES), target=TARGETS).abs().sum(1)
    maps = pc.method("gb", model)(IMAGES, TARGETS)
    assert agree(maps, expected)
    assert not agree(maps, pc.method("grad", model)(IMAGES, TARGETS))


@pytest.mark.parametrize("activation", [nn.ReLU(inplace=True), nn.ReLU6(), nn.ReLU6(inplace=True)])
def test_guided_backprop_guides_reused_and_in_place_activations(activation):
    """One module used twice; against hand-written backward passes."""
    torch.manual_seed(0)
    one, two = nn.Linear(3, 8), nn.Linear(8, 10)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.activation = one, two, activation

        def forward(self, x):
            return self.two(self.activation(self.activation(self.one(x.mean(dim=(2, 3))) * 20)))

    model = pc.Classifier(Net(), mean=(0.0,) * 3, std=(1.0,) * 3, size=8)
    images = torch.rand(2, 3, 8, 8)
    before = one(images.mean(dim=(2, 3))) * 20
    ceiling = 6 if isinstance(activation, nn.ReLU6) else torch.inf
    gradient = two.weight[TARGETS].clamp_min(0) * ((before > 0) & (before < ceiling))
    expected = (gradient * 20 @ one.weight / 64).abs().sum(1)
    assert torch.allclose(pc.method("gb", model)(images, TARGETS)[:, 0, 0], expected, rtol=1e-4)


def test_guided_backprop_leaves_in_place_values_as_the_network_sees_them():
    """The clamped tensor is read again after the ReLU: the logits must be the network's own."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc, self.relu = nn.Conv2d(3, 6, 3), nn.Linear(6, 10), nn.ReLU(inplace=True)

        def forward(self, x):
            features = self.conv(x)
            return self.fc((features + self.relu(features) ** 2).mean(dim=(2, 3)))

    model = pc.Classifier(Net(), mean=(0.5,) * 3, std=(0.25,) * 3, size=SIZE)
    assert torch.allclose(pc.method("gb", model).explain(IMAGES, TARGETS).logits, model(IMAGES), atol=1e-5)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("form", [
    F.relu, torch.relu, torch.Tensor.relu, F.relu6, nn.ReLU(), nn.ReLU6(), nn.Hardtanh(0, 3),
    lambda x: F.hardtanh(x, 0.0, 3.0), lambda x: F.hardtanh(input=x, min_val=0.0, max_val=3.0),
])  # fmt: skip
def test_guided_backprop_guides_every_form_of_a_relu(form, in_place):
    """Against hand-written backward passes, with the logits that the network has where a ReLU's input is read again."""
    forms = {
        F.relu: lambda x: F.relu(x, True), torch.relu: torch.relu_, torch.Tensor.relu: torch.Tensor.relu_,
        F.relu6: lambda x: F.relu6(x, True),
    }  # fmt: skip
    if in_place and isinstance(form, nn.Module):
        form = nn.Hardtanh(0, 3, inplace=True) if type(form) is nn.Hardtanh else type(form)(inplace=True)
    elif in_place:
        form = forms.get(form, lambda x: F.hardtanh(x, 0.0, 3.0, True))
    torch.manual_seed(0)
    one, two = nn.Linear(3, 8), nn.Linear(8, 10)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = one, two

        def forward(self, x):
            before = self.one(x.mean(dim=(2, 3))) * 20
            after = form(before)
            return self.two(after) + before.detach()[:, :1]

    model = pc.Classifier(Net(), mean=(0.0,) * 3, std=(1.0,) * 3, size=8)
    images = torch.rand(2, 3, 8, 8)
    before = (one(images.mean(dim=(2, 3))) * 20).detach()
    after = form(before.clone())
    ceiling = float(form(torch.tensor([1e9]))[0])
    gradient = two.weight[TARGETS].clamp_min(0) * ((before > 0) & (before < ceiling))
    assert 0 < (gradient > 0).sum() < gradient.numel()
    maps, logits = pc.method("gb", model).explain(images, TARGETS)
    expected = (gradient * 20 @ one.weight / 64).abs().sum(1)
    assert torch.allclose(maps[:, 0, 0], expected, rtol=1e-4)
    read_again = after[:, :1] if in_place else before[:, :1]
    assert torch.allclose(logits, two(after) + read_again, atol=1e-4)


def test_guided_backprop_leaves_other_clamps_their_gradients():
    torch.manual_seed(0)
    for function in (lambda x: F.hardtanh(x, -1.0, 1.0), F.hardtanh, lambda x: x.clamp(0, 1)):

        class Net(nn.Module):
            def __init__(self, function=function):
                super().__init__()
                self.conv, self.fc, self.function = nn.Conv2d(3, 4, 3), nn.Linear(4, 10), function

            def forward(self, x):
                return self.fc(self.function(self.conv(x)).mean(dim=(2, 3)))

        model = pc.Classifier(Net(), mean=(0.5,) * 3, std=(0.25,) * 3, size=SIZE)
        assert agree(pc.method("gb", model)(IMAGES, TARGETS), pc.method("grad", model)(IMAGES, TARGETS))


@pytest.mark.parametrize(("layer", "window", "stride"), [("input", 16, 8), ("input", 20, 13), ("final", 3, 2)])
def test_occlusion_agrees_with_captum(cnn, layer, window, stride):
    attr = pytest.importorskip("captum.attr", reason="captum is not installed")
    head = Head(cnn, layer)
    features = head.body(IMAGES).detach()
    if features.shape[2] < window:
        window, stride = 2, 1
    shape = (features.shape[1], window, window)
    occlusion = attr.Occlusion(head).attribute(
        features, sliding_window_shapes=shape, strides=(features.shape[1], stride, stride), target=TARGETS
    )
    maps = pc.method("occlusion", cnn, layer, window=window, stride=stride)(IMAGES, TARGETS)
    assert agree(maps, occlusion[:, 0], tolerance=1e-4)  # differences of logits lose digits


def test_occlusion_has_the_papers_windows(cnn):
    explainer = pc.method("occlusion", cnn)
    assert agree(explainer(IMAGES, TARGETS), pc.method("occlusion", cnn, window=16, stride=8)(IMAGES, TARGETS))
    assert len(explainer._spans(224)) ** 2 == 729
    assert pc.method("occlusion", cnn, "final")._spans(7) == [(0, 4), (2, 6)]
    assert pc.method("occlusion", cnn, "final")._spans(8) == [(0, 4), (2, 6), (4, 7)]


# ── torch-cam ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("name", "theirs"), [("cam", "CAM"), ("grad_cam", "GradCAM"), ("layer_cam", "LayerCAM")])
def test_cams_agree_with_torch_cam(name, theirs):
    methods = pytest.importorskip("torchcam.methods", reason="torch-cam is not installed")
    model = small_model("resnet")
    layers = {"target_layer": "layer4", **({"fc_layer": "fc"} if name == "cam" else {})}
    expected = []
    for image, target in zip(IMAGES, TARGETS, strict=True):
        with getattr(methods, theirs)(model.net, input_shape=(3, SIZE, SIZE), **layers) as extractor:
            scores = model.net(model.normalise(image[None]))
            expected += extractor(int(target), scores, normalized=False)
    assert agree(pc.method(name, model)(IMAGES, TARGETS), torch.cat(expected).detach())


def test_grad_cam_plus_plus_agrees_with_its_definition(cnn):
    """The paper's equation 19 position by position. (torch-cam 0.5 divides a copy of α, and so uses α = g².)"""
    body, head = cnn.split("final")
    features = body(IMAGES).detach().requires_grad_()
    (g,) = torch.autograd.grad(head(features).gather(1, TARGETS[:, None]).sum(), features)
    expected = torch.zeros(2, *features.shape[2:])
    for b in range(2):
        for c in range(features.shape[1]):
            total, weight = features[b, c].sum(), 0.0
            for gradient in g[b, c].flatten().tolist():
                if gradient > 0:
                    weight += gradient**2 / (2 * gradient**2 + total * gradient**3) * gradient
            expected[b] += weight * features[b, c].detach()
    assert agree(pc.method("grad_cam_pp", cnn)(IMAGES, TARGETS), expected.relu().detach(), tolerance=1e-4)


# ── The slow definitions ──────────────────────────────────────────────────────────────────────────────────────────


def test_ablation_cam_agrees_with_zeroing_channels_and_rerunning_the_network(model):
    layer = model.final
    maps = pc.method("ablation_cam", model)(IMAGES, TARGETS)
    module = model.net.get_submodule(layer)
    activations = []
    with module.register_forward_hook(lambda _, __, output: activations.append(output.detach())), torch.no_grad():
        whole = model(IMAGES).gather(1, TARGETS[:, None])[:, 0]
    features = activations[0]
    weights = []
    for channel in range(feature_maps(features, IMAGES).shape[1]):

        def zero(_, __, output, channel=channel):
            output = output.clone()
            if output.ndim == 4:
                output[:, channel] = 0
            else:
                output[:, 1:, channel] = 0  # of the patches, not of the class token
            return output

        with module.register_forward_hook(zero), torch.no_grad():
            weights.append((whole - model(IMAGES).gather(1, TARGETS[:, None])[:, 0]) / whole)
    expected = (torch.stack(weights, 1)[:, :, None, None] * feature_maps(features, IMAGES)).sum(1).relu()
    assert agree(maps, expected, tolerance=1e-3)  # small differences of large logits


@pytest.mark.parametrize("layer", ["input", "final"])
def test_rise_agrees_with_a_direct_implementation_on_shared_masks(model, layer):
    explainer = pc.method("rise", model, layer, masks=30)
    body, head = model.split(layer)
    with torch.no_grad():
        features = body(IMAGES)
        height, width = feature_maps(features, IMAGES).shape[2:]
        masks = explainer.masks_of(height, width)
        expected = torch.zeros(2, height, width)
        for mask in masks:
            if features.ndim == 4:
                masked = features * mask
            else:
                masked = features.clone()
                masked[:, 1:] *= mask.flatten()[:, None]
            expected += head(masked).softmax(1).gather(1, TARGETS[:, None])[:, :, None] * mask
    assert agree(explainer(IMAGES, TARGETS), expected / (30 * 0.1), tolerance=1e-4)


@pytest.fixture(scope="module")
def vgg():
    return small_model("vgg")


@pytest.mark.parametrize("layer", ["input", "final"])
@pytest.mark.parametrize("name", ["rise", "occlusion", "intgrad", "ablation_cam"])
def test_maps_do_not_depend_on_how_many_runs_share_a_batch(name, layer, vgg, monkeypatch):
    """A head that is not linear, run on as many inputs at once as are told to fill the device."""
    quick = {"rise": {"masks": 11}, "intgrad": {"steps": 5}}
    explainer = pc.method(name, vgg, layer, **quick.get(name, {}))
    maps, logits = explainer.explain(IMAGES, TARGETS)
    first = vgg.net.classifier[0]
    for chunk in (1, 5, 6):
        monkeypatch.setattr("pixelcert.methods.gradient.images_per_batch", lambda *_, chunk=chunk: chunk)
        sizes = []
        with first.register_forward_pre_hook(lambda _, given, sizes=sizes: sizes.append(len(given[0]))):
            again, same = explainer.explain(IMAGES, TARGETS)
        assert agree(again, maps, tolerance=1e-4)
        assert agree(same, logits)
        assert max(sizes) == {1: 2, 5: 4, 6: 6}[chunk]  # both images at least, and as many runs as fit


@pytest.mark.parametrize("steps", [1, 2, 20])
def test_integrated_gradients_agree_with_one_gradient_after_the_other(steps, vgg):
    body, head = vgg.split("final")
    features = body(IMAGES).detach()
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    expected = torch.zeros_like(features)
    for node, weight in zip(nodes, weights, strict=True):
        point = (features * float(node + 1) / 2).requires_grad_()
        chosen = head(point).gather(1, TARGETS[:, None]).sum()
        expected += torch.autograd.grad(chosen, point)[0] * float(weight) / 2
    maps = pc.method("intgrad", vgg, "final", steps=steps)(IMAGES, TARGETS)
    assert agree(maps, (features * expected).sum(dim=1))


@pytest.mark.parametrize("step", [1, 4, 7, 30])
def test_rise_masks_are_the_same_in_pieces(step):
    explainer = pc.method("rise", small_model("resnet"), masks=30)
    whole = explainer.masks_of(64, 48)
    pieces = [explainer.masks_of(64, 48, start, start + step) for start in range(0, 30, step)]
    assert torch.equal(torch.cat(pieces), whole)
    assert len(whole) == 30


def test_rise_masks_are_shifted_bilinear_grids_of_the_asked_density():
    explainer = pc.method("rise", small_model("resnet"), masks=4000)
    grids, shifts = rise._draw(4000, 6, 0.1, 0, torch.device("cpu"))
    assert abs(float(grids.mean()) - 0.1) < 0.005
    upsampled = F.interpolate(grids[:5, None], size=7 * 11, mode="bilinear")[:, 0]  # ⌈64/6⌉ = 11
    for i in range(5):
        top, left = (shifts[i] * 11).long().tolist()
        assert torch.allclose(explainer.masks_of(64, 64)[i], upsampled[i, top : top + 64, left : left + 64], atol=1e-5)
    assert len({tuple((shift * 11).long().tolist()) for shift in shifts}) > 100


def test_rise_masks_are_a_function_of_their_seed():
    model = small_model("resnet")
    one, same, other = (pc.method("rise", model, masks=50, mask_seed=seed).masks_of(64, 64) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("name", ["grad", "gb", "ixg", "intgrad", "grad_cam", "grad_cam_pp", "layer_cam",
                                  "ablation_cam", "rise", "occlusion"])  # fmt: skip
def test_closed_forms_agree_with_running_the_head(name, monkeypatch):
    """Before pooling and one linear layer nothing is run; with the closed form switched off, the head is."""
    params = {"rise": {"masks": 40}}.get(name, {})
    model = small_model("resnet")
    assert linear_head(model, "final") is not None
    closed = pc.method(name, model, "final", **params).explain(IMAGES, TARGETS)
    monkeypatch.setattr("pixelcert.methods.base.linear_head", lambda *_: None)
    open_form = pc.method(name, model, "final", **params).explain(IMAGES, TARGETS)
    assert (closed.maps - open_form.maps).abs().max() <= 1e-4 * open_form.maps.abs().max()
    assert torch.allclose(closed.logits, open_form.logits, atol=1e-4)


def headed(middle):
    """A convolution, what lies in the middle, and a linear layer."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = nn.Conv2d(3, 6, 3), nn.Linear(6, 10)

        def forward(self, x):
            return self.fc(middle(self.conv(x)))

    return pc.Classifier(Net(), mean=(0.5,) * 3, std=(0.25,) * 3, size=SIZE)


def test_a_head_is_taken_for_linear_only_if_it_is():
    assert linear_head(small_model("resnet"), "layer3") is None
    assert linear_head(small_model("vgg"), "final") is None
    assert linear_head(small_model("vit"), "final") is None
    for middle in (lambda f: f.relu().mean(dim=(2, 3)), lambda f: f.mean(dim=(2, 3)).relu(), lambda f: f[:, :, 0, 0]):
        assert linear_head(headed(middle), "conv") is None
    assert linear_head(headed(lambda f: f.mean(dim=(2, 3))), "conv") is not None
    squared = small_model("resnet")
    squared.net.avgpool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Sigmoid()).eval()
    assert linear_head(squared, "final") is None


# ── CAM where the definition ends ─────────────────────────────────────────────────────────────────────────────────


def test_cam_of_a_transformer_is_the_heads_answer_to_each_patch():
    model = small_model("vit")
    tokens = model.split("encoder.ln").features(IMAGES).detach()
    answers = F.linear(tokens[:, 1:], model.net.heads.head.weight)  # (B, patches, classes)
    expected = answers.gather(2, TARGETS[:, None, None].expand(-1, 16, 1))[:, :, 0].view(2, 4, 4)
    assert agree(pc.method("cam", model)(IMAGES, TARGETS), expected.detach())


def test_cam_of_several_linear_layers_uses_their_product():
    model = small_model("vgg")
    features = model.split("final").features(IMAGES).detach()
    one, two, three = (model.net.classifier[i].weight for i in (0, 3, 5))
    weights = (three @ two @ one)[TARGETS].view(2, 16, 16).mean(2)
    assert agree(pc.method("cam", model)(IMAGES, TARGETS), torch.einsum("bc,bchw->bhw", weights, features).detach())
