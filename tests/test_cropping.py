"""A hidden window changes only what it can reach: crops around it answer what the whole network answers."""

from __future__ import annotations

import pytest
import torch
from small_networks import small_model
from torch import Tensor, nn

import pixelcert as pc
from pixelcert.methods import occlusion
from pixelcert.models.cropping import Reach, find_local_parts, local_parts
from pixelcert.models.heads import linear_head
from pixelcert.models.variants import tuned


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


class Turned(Residual):
    """The stride in the second convolution, and the shortcut first in the sum."""

    def __init__(self, channels, out):
        super().__init__(channels, out, 1, False)
        self.second = nn.Conv2d(out, out, 3, 2, 1)
        self.shortcut = nn.Conv2d(channels, out, 1, 2)

    def forward(self, features):
        return self.relu(self.shortcut(features) + self.second(self.relu(self.first(features))))


class Viewed(nn.Module):
    """Makes rows by `view`, which works on the usual layout of memory alone."""

    def __init__(self):
        super().__init__()
        self.body, self.last = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU()), nn.Linear(4 * 32 * 32, 5)

    def forward(self, images):
        answer = self.body(images)
        return self.last(answer.view(answer.size(0), -1))


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
    "turned": lambda: plain_network(nn.Conv2d(3, 4, 3, 1, 1), nn.ReLU(), Turned(4, 6), Turned(6, 4)),
    "reaching beyond": lambda: plain_network(nn.Conv2d(3, 4, 3, 2, 3, dilation=3), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1)),
    "begins in place": lambda: plain_network(nn.LeakyReLU(0.5, True), nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(True)),
    "no padding": lambda: plain_network(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.Conv2d(4, 4, 3, 2)),
}


def classifier(net, size=64):
    net(torch.zeros(1, 3, size, size, dtype=torch.float64))
    return pc.Classifier(net, [0.5] * 3, [0.25] * 3, size=size, final="0")


TARGETS = torch.tensor([1, 3])


def maps(model, images, monkeypatch, small, layer="input", **options):
    monkeypatch.setattr(occlusion, "_SMALL", small)
    return pc.method("occlusion", model, layer, **options).explain(images, TARGETS)


@torch.no_grad()
def one_by_one(model, images, window, stride, layer="input"):
    """Occlusion as its definition says, with every window hidden in the whole of the features."""
    body, head = model.split(layer)
    features, targets = body(images), TARGETS[:, None]
    height, width = features.shape[2:]
    total, count = torch.zeros(2, height, width).to(features), torch.zeros(height, width).to(features)
    clean = head(features).gather(1, targets)
    for top in range(0, max(0, -(-(height - window) // stride)) * stride + 1, stride):
        for left in range(0, max(0, -(-(width - window) // stride)) * stride + 1, stride):
            hidden = features.clone()
            hidden[:, :, top : top + window, left : left + window] = 0
            fall = clean - head(hidden).gather(1, targets)
            total[:, top : top + window, left : left + window] += fall[:, :, None]
            count[top : top + window, left : left + window] += 1
    return total / count


WINDOWS = ((8, 8), (5, 3), (3, 3), (2, 1))  # and their strides
SIZES = ((64, 64), (48, 80), (64, 50), (37, 41), (40, 128))  # for windows of 8


@pytest.mark.parametrize("first", range(2))
@pytest.mark.parametrize("name", NETWORKS)
def test_crops_answer_what_the_whole_network_answers(name, first, monkeypatch):
    """Every network with every window and every size; the ten networks together with every pair of the two."""
    model, turn = classifier(NETWORKS[name]()), list(NETWORKS).index(name) + 2 * first
    for number in range(first, len(SIZES), 2):
        (window, stride), size = WINDOWS[(turn + number) % len(WINDOWS)], SIZES[number]
        images = torch.rand(2, 3, *(side * window // 8 for side in size), dtype=torch.float64)
        before = images.clone()
        expected = one_by_one(model, images, window, stride)
        for small in (0, 0.5, 1) if number == 1 else (0.5, 1):  # never, as it is, and wherever they can be
            crops = maps(model, images, monkeypatch, small, window=window, stride=stride)
            assert torch.allclose(crops.maps, expected, rtol=0, atol=1e-12)
            assert torch.equal(crops.logits, model(images))
        assert torch.equal(images, before)


def test_crops_hold_what_changes_of_one_length_need(monkeypatch):
    """Changes at the edges are made as long as the others, and what is added has needs of its own."""
    model = classifier(plain_network(nn.Conv2d(3, 4, 3, 2, 3, dilation=3), nn.ReLU()))
    images = torch.rand(2, 3, 16, 64, dtype=torch.float64)
    expected = one_by_one(model, images, 3, 3)
    assert torch.allclose(maps(model, images, monkeypatch, 1, window=3, stride=3).maps, expected, rtol=0, atol=1e-12)


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
        nn.AvgPool2d(2, ceil_mode=True),
        nn.Upsample(scale_factor=2),
    ],
)
def test_what_is_not_known_to_be_local_ends_the_parts(layer, monkeypatch):
    model = classifier(plain_network(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), layer, nn.ReLU(), nn.Conv2d(4, 4, 3)))
    assert [part.reach for part in local_parts(model, "input").parts] == [Reach(2, 1, 1)]
    images = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    expected = one_by_one(model, images, 8, 8)
    assert torch.allclose(maps(model, images, monkeypatch, 0.5, window=8, stride=8).maps, expected, rtol=0, atol=1e-12)


def centred(values):
    return values - values.mean(dim=(2, 3), keepdim=True)


def with_hook(net):
    net[0].register_forward_hook(lambda module, given, answer: centred(answer))


def with_hook_before(net):
    net[0].register_forward_pre_hook(lambda module, given: (centred(given[0]),))


def patched(net):
    net[0].forward = lambda images, own=net[0]: centred(nn.Conv2d.forward(own, images))


def with_padding_of_its_own(net):
    own = net[0]._conv_forward
    net[0]._conv_forward = lambda images, weight, bias: own(images.roll(20, dims=2), weight, bias)


def made_otherwise(net):
    class Centred(nn.Conv2d):
        def forward(self, images):
            return centred(super().forward(images))

    net[0].__class__ = Centred


@pytest.mark.parametrize("change", [with_hook, with_hook_before, patched, with_padding_of_its_own, made_otherwise])
def test_a_layer_that_was_changed_is_run_whole(change, monkeypatch):
    net = residual_network()
    change(net)
    model = classifier(net)
    images = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    expected = one_by_one(model, images, 8, 8)
    assert torch.allclose(maps(model, images, monkeypatch, 1, window=8, stride=8).maps, expected, rtol=0, atol=1e-12)


class Made(nn.Module):
    """A network with a forward of its own between a convolution and the last layers."""

    def __init__(self, forward):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 4, 3, 1, 1), nn.Conv2d(3, 4, 3, 2, 1)
        self.third, self.wide, self.between = nn.Conv2d(4, 4, 3, 1, 1), nn.Conv2d(3, 4, 17), forward
        self.last = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
        self.double()

    def forward(self, images):
        return self.last(self.between(self, images))


def slightly_changed_in_place(net, images):
    answer = net.first(images)
    answer.mul_(1.02)
    return net.third(answer)


FORWARDS = {
    "alpha": lambda net, images: torch.add(net.first(images), net.third(net.first(images)), alpha=2),
    "keyword": lambda net, images: net.third(input=net.first(images)),
    "unlike strides": lambda net, images: net.second(images) + net.wide(images),
    "every second place": lambda net, images: net.first(images)[:, :, ::2, ::2] + net.second(images),
    "constant": lambda net, images: net.third(net.first(images) + 1),
    "module of two": lambda net, images: net.third(net.first(images)) * nn.CosineSimilarity(1)(
        net.first(images), net.third(net.first(images))
    )[:, None],
    "in place, unused": slightly_changed_in_place,
    "decided as it runs": lambda net, images: net.third(net.first(images)) * (1 if images.mean() > 9 else 2),
    "another when traced": lambda net, images: net.third(net.first(images)) * (1.02 if type(images) is Tensor else 1),
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARDS)
def test_networks_of_any_kind_keep_their_answers(name, monkeypatch):
    model = classifier(Made(FORWARDS[name]), size=32)
    images = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    expected = one_by_one(model, images, 8, 8)
    for small in (0.5, 1):
        found = maps(model, images, monkeypatch, small, window=8, stride=8).maps
        assert torch.allclose(found, expected, rtol=0, atol=1e-12)


def test_another_input_is_not_local():
    class Two(Made):
        def forward(self, images, other=None):
            return self.last(self.first(images) + (0 if other is None else other))

    assert find_local_parts(Two(None)).parts == ()


def test_branches_of_unlike_strides_are_not_local_together():
    assert find_local_parts(Made(FORWARDS["unlike strides"])).parts == ()


def test_a_hook_of_the_network_itself_is_seen(monkeypatch):
    net = residual_network()
    net.register_forward_hook(lambda module, given, answer: answer * 1.02)
    model = classifier(net)
    images = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    expected = one_by_one(model, images, 8, 8)
    assert torch.allclose(maps(model, images, monkeypatch, 1, window=8, stride=8).maps, expected, rtol=0, atol=1e-12)


def test_a_network_that_views_its_features_as_rows_can_be_sampled(monkeypatch):
    net = Viewed().double()
    model = classifier(net)
    images = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    assert local_parts(model, "input").parts
    expected = one_by_one(model, images, 8, 8)
    for of in (model, tuned(model)):
        assert torch.allclose(maps(of, images, monkeypatch, 0.5, window=8, stride=8).maps, expected, rtol=0, atol=1e-12)


def test_a_network_for_another_size_than_told_still_answers(monkeypatch):
    torch.manual_seed(0)
    model = pc.Classifier(Viewed().double(), [0.5] * 3, [0.25] * 3, final="body", size=224)
    images = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    expected = one_by_one(model, images, 8, 8)
    with pytest.warns(pc.PixelcertWarning, match="Viewed raises an error on an image of its own size, 224 × 224"):
        fast = tuned(model)
    assert str(fast.surgery("input")["layout"]).startswith("usual (untried: mat1 and mat2 shapes")
    for of in (model, fast):
        assert torch.allclose(maps(of, images, monkeypatch, 0.5, window=8, stride=8).maps, expected, rtol=0, atol=1e-12)


def test_before_a_linear_head_nothing_is_run_on_crops(monkeypatch):
    net = plain_network(nn.Conv2d(3, 4, 3, 2, 1), nn.Identity())
    model = classifier(net)
    assert linear_head(model, "final") is not None
    monkeypatch.setattr(occlusion, "local_parts", lambda *_: pytest.fail("the head is linear"))
    images = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    expected = one_by_one(model, images, 5, 2, "final")
    found = maps(model, images, monkeypatch, 1, "final", window=5, stride=2).maps
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("inplace", [False, True])
def test_parts_end_where_the_resolution_changes(inplace):
    local = find_local_parts(residual_network(inplace))
    assert [part.reach.stride for part in local.parts] == [2, 2, 2]


def test_a_hook_that_comes_later_is_noticed():
    net = residual_network()
    model = classifier(net)
    assert local_parts(model, "input").parts
    net[0].register_forward_hook(lambda module, given, answer: answer - answer.mean(dim=(2, 3), keepdim=True))
    assert not local_parts(model, "input").parts


def test_a_network_that_traces_to_something_else_is_run_whole():
    class Counts(nn.Module):
        """Answers otherwise when it is traced: what Python decides while it runs is not in the graph."""

        def __init__(self):
            super().__init__()
            self.net = residual_network()

        def forward(self, images):
            return self.net(images) * (2.0 if isinstance(images, torch.Tensor) else 1.0)

    model = classifier(Counts())
    assert local_parts(model, "input").parts == ()
    assert str(model.surgery("input")["crops"]) == "no (it would answer otherwise)"


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
    monkeypatch.setattr(occlusion, "_SMALL", 0)
    whole = explainer.explain(images, torch.tensor([1, 3])).maps
    monkeypatch.setattr(occlusion, "_SMALL", 1)
    assert local_parts(model, layer).parts
    assert torch.allclose(explainer.explain(images, torch.tensor([1, 3])).maps, whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_tuned_copies_have_local_parts_too(dtype, monkeypatch):
    model = tuned(small_model("resnet"), dtype)
    assert local_parts(model, "input").parts
    images = torch.rand(2, 3, 64, 64)
    whole, crops = (maps(model, images, monkeypatch, small, window=8, stride=4).maps for small in (0, 1))
    assert torch.allclose(crops, whole, rtol=0, atol=(1e-5 if dtype is None else 0.05) * float(whole.abs().max()))
