"""A hidden window changes only what it can reach: crops around it answer what the whole network answers."""

from __future__ import annotations

import pytest
import torch
from small_networks import small_model
from torch import nn

import pixelcert as pc
from pixelcert.methods import hiding
from pixelcert.models.local_parts import Reach, find_local_parts
from pixelcert.models.tuned import tuned


class Residual(nn.Module):
    """A block of a residual network, with the ReLU in place if told."""

    def __init__(self, channels, out, stride, inplace):
        super().__init__()
        self.first = nn.Conv2d(channels, out, 3, stride, 1)
        self.second = nn.Conv2d(out, out, 3, 1, 1)
        self.shortcut = nn.Conv2d(channels, out, 1, stride)
        self.relu = nn.ReLU(inplace)

    def forward(self, features):
        return self.relu(self.second(self.relu(self.first(features))) + self.shortcut(features))


def residual_network(inplace=False):
    torch.manual_seed(0)
    stem = [nn.Conv2d(3, 4, 7, 2, 3), nn.ReLU(inplace), nn.MaxPool2d(3, 2, 1)]
    blocks = [Residual(4, 6, 1, inplace), Residual(6, 8, 2, inplace)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).double()


def plain_network(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(5)).double()


NETWORKS = {
    "residual": lambda: residual_network(),
    "in place": lambda: residual_network(inplace=True),
    "one resolution": lambda: plain_network(nn.Conv2d(3, 4, 3, 1, 1), nn.ReLU(), nn.Conv2d(4, 4, 5, 1, 2), nn.SiLU()),
    "dilated": lambda: plain_network(nn.Conv2d(3, 4, 3, 2, 2, 2), nn.GELU(), nn.Conv2d(4, 4, 3, 1, 1, groups=2)),
    "skipping": lambda: plain_network(nn.Conv2d(3, 4, 1, 2), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1)),
    "uneven padding": lambda: plain_network(nn.Conv2d(3, 4, 2, 2), nn.ELU(), nn.AvgPool2d(3, 2, 1)),
    "no padding": lambda: plain_network(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.Conv2d(4, 4, 3, 2)),
}


def classifier(net, size=64):
    net(torch.zeros(1, 3, size, size, dtype=torch.float64))
    return pc.Classifier(net, [0.5] * 3, [0.25] * 3, size=size, final="0")


def maps(model, images, monkeypatch, small, **options):
    monkeypatch.setattr(hiding, "_SMALL", small)
    return pc.method("occlusion", model, "input", **options).explain(images, torch.tensor([1, 3]))


@pytest.mark.parametrize(
    "options", [{"window": 8, "stride": 4}, {"window": 5, "stride": 5}, {"window": 1, "stride": 1}]
)
@pytest.mark.parametrize("size", [(64, 64), (48, 80), (60, 52), (37, 41)])
@pytest.mark.parametrize("name", NETWORKS)
def test_crops_answer_what_the_whole_network_answers(name, size, options, monkeypatch):
    if options["window"] == 1:
        size = tuple(side // 2 for side in size)
    model = classifier(NETWORKS[name]())
    images = torch.rand(2, 3, *size, dtype=torch.float64)
    before = images.clone()
    whole = maps(model, images, monkeypatch, 0, **options)
    for small in (0.5, 1):  # as it is, and with crops wherever they can be
        crops = maps(model, images, monkeypatch, small, **options)
        assert torch.allclose(crops.maps, whole.maps, rtol=0, atol=1e-12)
        assert torch.equal(crops.logits, whole.logits)
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", NETWORKS)
def test_no_part_reaches_further_than_it_says(name):
    local = find_local_parts(classifier(NETWORKS[name]()).net)
    inputs = torch.rand(1, 3, 64, 64, dtype=torch.float64)
    for part in local.parts:
        answer = part.run(inputs.clone())
        for place in (0, 1, 17, 30, inputs.shape[2] - 1):
            changed = inputs.clone()
            changed[:, :, place % inputs.shape[2]] += torch.rand(1, inputs.shape[1], inputs.shape[3]).double()
            rows = (part.run(changed) != answer).any(dim=1).any(dim=2)[0].nonzero().flatten().tolist()
            first, last = part.reach.changed(place % inputs.shape[2], place % inputs.shape[2])
            assert all(first <= row <= last for row in rows)
        inputs = answer
    assert local.parts, "there is something to test"


def test_reach_of_convolutions_in_a_row():
    one = Reach().then(kernel=7, stride=2, padding=3, dilation=1)
    assert one == Reach(2, 3, 3)
    two = one.then(kernel=3, stride=2, padding=1, dilation=1)
    assert two == Reach(4, 5, 5)  # the receptive field of a ResNet behind max pooling: 11
    assert two.needed(0, 0) == (-5, 5)
    assert two.changed(8, 8) == (1, 3)  # 4 ± 5, 8 ± 5 and 12 ± 5 hold it
    assert two.changed(10, 10) == (2, 3)


class Global(nn.Module):
    """Squeeze and excitation: every place depends on all."""

    def forward(self, features):
        return features * features.mean(dim=(2, 3), keepdim=True)


@pytest.mark.parametrize(
    "layer",
    [
        Global(),
        nn.InstanceNorm2d(4),
        nn.AdaptiveAvgPool2d(8),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, (1, 3), padding=(0, 1)),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Upsample(scale_factor=2),
    ],
)
def test_what_is_not_known_to_be_local_ends_the_parts(layer, monkeypatch):
    model = classifier(plain_network(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), layer, nn.ReLU(), nn.Conv2d(4, 4, 3)))
    assert [part.reach for part in model.local_parts("input").parts] == [Reach(2, 1, 1)]
    images = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    whole, crops = (maps(model, images, monkeypatch, small, window=8, stride=8).maps for small in (0, 0.5))
    assert torch.allclose(crops, whole, rtol=0, atol=1e-12)


def test_a_layer_with_a_hook_is_run_whole(monkeypatch):
    net = residual_network()
    net[0].register_forward_hook(lambda module, given, answer: answer - answer.mean(dim=(2, 3), keepdim=True))
    model = classifier(net)
    assert model.local_parts("input").parts == ()
    images = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    whole, crops = (maps(model, images, monkeypatch, small, window=8, stride=8).maps for small in (0, 0.5))
    assert torch.equal(crops, whole)


def test_a_hook_that_comes_later_is_noticed():
    net = residual_network()
    model = classifier(net)
    assert model.local_parts("input").parts
    net[0].register_forward_hook(lambda module, given, answer: answer - answer.mean(dim=(2, 3), keepdim=True))
    assert not model.local_parts("input").parts


def test_a_network_that_traces_to_something_else_is_run_whole():
    class Counts(nn.Module):
        """Answers otherwise when it is traced: what Python decides while it runs is not in the graph."""

        def __init__(self):
            super().__init__()
            self.net = residual_network()

        def forward(self, images):
            return self.net(images) * (2.0 if isinstance(images, torch.Tensor) else 1.0)

    assert classifier(Counts()).local_parts("input").parts == ()


def test_the_first_layers_run_on_crops(monkeypatch):
    """The saving itself: in pixels that the first convolution sees."""
    net = residual_network()
    seen = []
    original = nn.Conv2d.forward
    first = net[0]

    def counting(module, inputs):
        if module is first:
            seen.append(inputs.shape[0] * inputs.shape[2] * inputs.shape[3])
        return original(module, inputs)

    monkeypatch.setattr(nn.Conv2d, "forward", counting)
    model = classifier(net)
    images = torch.rand(2, 3, 128, 128, dtype=torch.float64)
    explainer = pc.method("occlusion", model, "input", window=16, stride=16)
    explainer.explain(images, torch.tensor([1, 3]))
    seen.clear()
    explainer.explain(images, torch.tensor([1, 3]))
    whole = 2 * 128 * 128
    assert sum(seen) < (2 + 64 * 0.1) * whole  # without crops 65


@pytest.mark.parametrize("layer", ["0", "2", "3"])
def test_behind_a_module_of_the_network_too(layer, monkeypatch):
    model = classifier(residual_network())
    images = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    explainer = pc.method("occlusion", model, layer, window=2, stride=2)
    monkeypatch.setattr(hiding, "_SMALL", 0)
    whole = explainer.explain(images, torch.tensor([1, 3])).maps
    monkeypatch.setattr(hiding, "_SMALL", 1)
    assert model.local_parts(layer).parts
    assert torch.allclose(explainer.explain(images, torch.tensor([1, 3])).maps, whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_tuned_copies_have_local_parts_too(dtype, monkeypatch):
    model = tuned(small_model("resnet"), dtype)
    assert model.local_parts("input").parts
    images = torch.rand(2, 3, 64, 64)
    whole, crops = (maps(model, images, monkeypatch, small, window=8, stride=4).maps for small in (0, 1))
    assert torch.allclose(crops, whole, rtol=0, atol=(1e-5 if dtype is None else 0.05) * float(whole.abs().max()))
