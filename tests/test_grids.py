"""Classifiers for grids against brute force: the plain head on every window of the features, cut out by hand."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from PIL import Image
from small_networks import models, resnet, small_model, vgg
from torch import Tensor, nn

import pixelcert as pc
from pixelcert.image import resize_image
from pixelcert.methods.lrp_rules import Rules
from pixelcert.models.folding import Folding
from pixelcert.models.heads import linear_layers
from pixelcert.models.splitting import feature_maps
from pixelcert.models.variants import for_grid

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
TARGETS = torch.tensor([1, 4])
QUICK = {"rise": {"masks": 12}, "intgrad": {"steps": 4}}
CELLS = [(name, layer) for name in pc.METHODS for layer in ("input", "final")]


def images(size: int, batch: int = 2) -> Tensor:
    return torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(1))


def classifier(net: nn.Module, size: int, **more) -> pc.Classifier:
    return pc.Classifier(net, MEAN, STD, size=size, **more)


def small_vgg(size: int = 32) -> pc.Classifier:
    """Its head has 4 × 4 positions: just as many as the features of 32 × 32; those of 64 × 64 are pooled to them."""
    torch.manual_seed(0)
    return classifier(vgg(), size)


def thin(name: str) -> pc.Classifier:
    """One of torchvision's networks, with a sixteenth of its channels."""
    with torch.device("meta"):
        net = models.get_model(name, num_classes=10)
    torch.manual_seed(0)
    for name, layer in list(net.named_modules()):
        if isinstance(layer, nn.Conv2d):
            channels = layer.in_channels if layer.in_channels == 3 else layer.in_channels // 16
            options = layer.kernel_size, layer.stride, layer.padding
            net.set_submodule(name, nn.Conv2d(channels, layer.out_channels // 16, *options))
        elif isinstance(layer, nn.Linear):
            outputs = layer.out_features if layer.out_features == 10 else layer.out_features // 16
            net.set_submodule(name, nn.Linear(layer.in_features // 16, outputs))
    return classifier(net, 224)


@pytest.fixture(scope="module")
def vgg11() -> pc.Classifier:
    return thin("vgg11")


@pytest.fixture(scope="module")
def alexnet() -> pc.Classifier:
    return thin("alexnet")


@pytest.fixture
def pooled_vgg() -> pc.Classifier:
    return small_vgg(64)


def windows(features: Tensor, height: int, width: int) -> Iterator[tuple[int, int, Tensor]]:
    """Every window, with its first row and column."""
    for row in range(features.shape[2] - height + 1):
        for column in range(features.shape[3] - width + 1):
            yield row, column, features[:, :, row : row + height, column : column + width]


def brute_force(model: pc.Classifier, x: Tensor) -> Tensor:
    """The plain network's own pooling and head on each window as large as its features in training, averaged."""
    net = model.net
    size = net.features(model.normalise(images(model.size))).shape[2:]
    cut = [window for _, _, window in windows(net.features(model.normalise(x)), *size)]
    assert len(cut) > 1
    return sum(net.classifier(net.avgpool(window).flatten(1)) for window in cut) / len(cut)


# ── The head slides ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["vgg11", "alexnet", "pooled_vgg"])
def test_at_its_own_size_the_sliding_network_is_the_plain_one(name: str, request: pytest.FixtureRequest) -> None:
    model: pc.Classifier = request.getfixturevalue(name)
    sliding = for_grid(model, 2 * model.size)
    x = images(model.size)
    with torch.no_grad():
        assert model(x).std() > 0
        torch.testing.assert_close(sliding(x), model(x), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("name", "size"), [("vgg11", 288), ("alexnet", 288), ("pooled_vgg", 96), ("pooled_vgg", 128)])
def test_on_a_larger_image_it_is_the_plain_head_averaged_over_windows(
    name: str, size: int, request: pytest.FixtureRequest
) -> None:
    model: pc.Classifier = request.getfixturevalue(name)
    x = images(size)
    with torch.no_grad():
        logits, expected = for_grid(model, size)(x), brute_force(model, x)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
        assert not torch.allclose(logits, model(x), rtol=1e-4, atol=1e-5)  # which pools the whole image


def test_an_image_that_is_no_square_slides_too() -> None:
    model = small_vgg()
    x = images(64)[:, :, :, :40]
    with torch.no_grad():
        torch.testing.assert_close(for_grid(model, 64)(x), brute_force(model, x), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("pooled", "positions"), [((4, None), 4 * 8), ((None, 4), 16 * 4), ((4, 3), 4 * 3)])
def test_windows_need_be_no_squares(pooled: tuple[int | None, int | None], positions: int) -> None:
    torch.manual_seed(0)
    net = vgg()
    net.features = nn.Sequential(nn.Conv2d(3, 16, 3, stride=(1, 2), padding=1), nn.ReLU())  # 16 × 8 of 16 × 16
    net.avgpool = nn.AdaptiveAvgPool2d(pooled)
    net.classifier[0] = nn.Linear(16 * positions, 32)
    model, x = classifier(net, 16), images(24)
    with torch.no_grad():
        torch.testing.assert_close(for_grid(model, 24)(x), brute_force(model, x), rtol=1e-4, atol=1e-6)


def test_layers_of_the_head_are_maps_of_the_windows_in_rows() -> None:
    model, x = small_vgg(), images(64)[:, :, :, :40]
    with torch.no_grad():
        features = model.net.features(model.normalise(x))
        expected = [model.net.classifier[0](window.flatten(1)) for _, _, window in windows(features, 4, 4)]
        torch.testing.assert_close(
            for_grid(model, 64).split("classifier.0").features(x), torch.stack(expected, dim=1), rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("name", ["vgg11", "alexnet", "pooled_vgg"])
def test_parameters_names_and_hash_are_those_of_the_plain_network(name: str, request: pytest.FixtureRequest) -> None:
    model: pc.Classifier = request.getfixturevalue(name)
    sliding = for_grid(model, 2 * model.size)
    assert sliding.net is not model.net
    mine, plain = sliding.net.state_dict(), model.net.state_dict()
    assert list(mine) == list(plain)
    assert all(mine[key].data_ptr() == plain[key].data_ptr() for key in plain)
    assert [name for name, _ in sliding.net.named_modules()] == [name for name, _ in model.net.named_modules()]
    assert sliding.weights_hash != model.weights_hash, "it is another function, whose votes must not be mixed"
    assert sliding.final == model.final
    assert type(sliding.net).__name__ == type(model.net).__name__


def test_the_plain_network_is_left_as_it_was() -> None:
    model = small_vgg()
    before = dict(model.net.named_modules())
    with torch.no_grad():
        logits = model(images(64))
        for_grid(model, 64)(images(64))
        assert dict(model.net.named_modules()) == before
        assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.net.modules())
        assert torch.equal(model(images(64)), logits)


def test_what_is_told_of_a_model_stays_but_for_name_and_size() -> None:
    model = classifier(vgg(), 32, name="mine", final="features.4", classes=list("abcdefghij"))
    sliding = for_grid(model, 64)
    assert (sliding.name, sliding.size) == ("mine, sliding head", 64)  # votes of the two must not be added up
    assert (sliding.final, sliding.classes, sliding.channels) == ("features.4", model.classes, 3)
    torch.testing.assert_close(sliding.normalise(images(8)), model.normalise(images(8)), rtol=0, atol=0)


def test_a_network_inside_another_slides() -> None:
    torch.manual_seed(0)
    inner = vgg()
    net = nn.Sequential(nn.Identity(), inner)
    model, x = classifier(net, 32, final="1.features.7"), images(64)
    sliding = for_grid(model, 64)
    with torch.no_grad():
        expected = brute_force(classifier(inner, 32), x)
        torch.testing.assert_close(sliding(x), expected, rtol=1e-4, atol=1e-6)
    assert list(sliding.net.state_dict()) == list(net.state_dict())
    assert isinstance(inner.avgpool, nn.AdaptiveAvgPool2d)
    assert pc.method("grad_cam", sliding)(x, TARGETS).isfinite().all()


class AnyBatch(models.VGG):
    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).view(-1, 256))


class OwnBatch(models.VGG):
    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).reshape(x.size(0), 16 * 4 * 4))


@pytest.mark.parametrize("kind", [AnyBatch, OwnBatch])
def test_a_head_slides_however_it_is_flattened(kind: type[nn.Module]) -> None:
    model, x = small_vgg(), images(64)
    model.net.__class__ = kind
    with torch.no_grad():
        torch.testing.assert_close(for_grid(model, 64)(x), brute_force(model, x), rtol=1e-4, atol=1e-6)
    assert pc.method("grad_cam", for_grid(model, 64))(x, TARGETS).isfinite().all()


# ── Methods on it ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("name", "layer"), CELLS)
def test_every_method_explains_a_grid(name: str, layer: str) -> None:
    model = for_grid(small_vgg(), 64)
    model.net.double()  # or a batch may fall on the other side of a ReLU than its images one by one
    explainer = pc.method(name, model, layer, **QUICK.get(name, {}))
    x = images(64).double()
    maps, logits = explainer.explain(x, TARGETS)
    side = 64 if layer == "input" else feature_maps(model.split("final").features(x), x).shape[2]
    assert maps.shape == (2, side, side)
    assert maps.isfinite().all()
    assert (maps.flatten(1).std(dim=1) > 0).all()
    torch.testing.assert_close(logits, model(x).detach())
    singles = torch.cat([explainer(x[i : i + 1], TARGETS[i : i + 1]) for i in range(2)])
    assert (singles - maps).abs().max() <= 1e-9 * maps.abs().max(), "a batch is not its images one by one"
    others = explainer(x, TARGETS + 3)
    assert (others - maps).abs().max() > 1e-6 * maps.abs().max(), "the target does not matter"


@pytest.mark.parametrize("layer", ["input", "final", "features.0", "features", "avgpool", "classifier.3"])
def test_head_of_features_is_the_whole_sliding_network(layer: str) -> None:
    model, x = for_grid(small_vgg(), 64), images(64)
    with torch.no_grad():
        features, head = model.split(layer)
        inner = features(x)
        torch.testing.assert_close(head(inner), model(x), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(head(inner[:1]), model(x[:1]), rtol=1e-4, atol=1e-6)


def test_features_run_once_and_the_head_alone() -> None:
    model = for_grid(small_vgg(), 64)
    calls: list[str] = []
    for name in ("features.0", "classifier.0"):
        model.net.get_submodule(name).register_forward_hook(lambda *_, name=name: calls.append(name))
    features, head = model.split("final")
    calls.clear()  # of the trial that the parts are the whole
    inner = features(images(64))
    head(inner)
    head(inner)
    assert calls == ["features.0", "classifier.0", "classifier.0"]


def test_cam_has_the_weights_of_the_plain_head() -> None:
    model = small_vgg()
    sliding = for_grid(model, 64)
    plain, slid = (linear_layers(each, "final") for each in (model, sliding))
    assert len(plain) == 3
    assert all(one is other for one, other in zip(plain, slid, strict=True))
    head = model.net.classifier
    weights = (head[5].weight @ head[3].weight @ head[0].weight)[TARGETS].view(2, 16, 16).mean(dim=2)
    features = sliding.split("final").features(images(64))
    expected = torch.einsum("bc,bchw->bhw", weights, features).detach()
    torch.testing.assert_close(pc.method("cam", sliding)(images(64), TARGETS), expected)


@pytest.mark.parametrize("layer", ["input", "final"])
@pytest.mark.parametrize("size", [32, 64])
def test_relevance_is_conserved(layer: str, size: int) -> None:
    model = small_vgg(size)
    model.net.double()
    for name, parameter in model.net.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)  # a bias takes its part
    explainer = pc.method("lrp", for_grid(model, 2 * size), layer, epsilon=1e-9)
    maps, logits = explainer.explain(images(2 * size).double(), TARGETS)
    torch.testing.assert_close(maps.sum(dim=(1, 2)), logits[range(2), TARGETS], rtol=1e-3, atol=0)


@pytest.mark.parametrize("size", [32, 64])
def test_relevance_is_that_of_the_plain_head_averaged_over_windows(size: int) -> None:
    """With an ε that takes much, so that it matters by which rule, and from how much, each layer shares."""
    model = small_vgg(size)
    net = model.net.double()
    x = images(2 * size).double()
    features = net.features(model.normalise(x)).detach()
    side = net.features(model.normalise(images(size))).shape[2]
    expected, count = torch.zeros_like(features), 0
    for row, column, window in windows(features, side, side):
        leaf = window.clone().requires_grad_()
        with Rules(0.02, Folding({}, frozenset())):
            logits = net.classifier(net.avgpool(leaf).flatten(1))
        (gradient,) = torch.autograd.grad(logits[range(2), TARGETS].sum(), leaf)
        expected[:, :, row : row + side, column : column + side] += window * gradient
        count += 1
    maps = pc.method("lrp", for_grid(model, 2 * size), "features", epsilon=0.02)(x, TARGETS)
    assert maps.std() > 0
    torch.testing.assert_close(maps, expected.sum(dim=1) / count, rtol=1e-6, atol=1e-9)


def test_votes_of_a_grid_can_be_sampled() -> None:
    model = for_grid(small_vgg(), 64)
    votes = pc.sample(pc.method("grad_cam", model), images(64)[0], 3, n=4, levels=(50, 10), tau=None)
    assert votes.size == (64, 64)
    assert votes.ones.max() == 4
    assert votes.provenance.model == "VGG, sliding head"


# ── Networks that take any size, and those that take one ──────────────────────────────────────────────────────────


def test_a_network_with_global_pooling_is_used_as_it_is() -> None:
    model = small_model("resnet")
    for size in (32, 128):
        larger = for_grid(model, size)
        assert larger.net is model.net
        assert (larger.size, larger.name, larger.weights_hash) == (size, model.name, model.weights_hash)
        assert torch.equal(larger(images(size)), model(images(size)))
    assert model.size == 64
    assert for_grid(model, 64) is model


def test_a_network_with_a_fixed_head_is_used_as_it_is_up_to_its_own_size() -> None:
    model = small_vgg(64)
    assert for_grid(model, 64) is model
    smaller = for_grid(model, 32)
    assert (smaller.net, smaller.size) == (model.net, 32)


def small_transformer() -> pc.Classifier:
    net = models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=5
    )
    return classifier(net, 32)


class FlatHead(nn.Module):
    """Flattens without pooling, and so multiplies shapes that do not fit; `error` stands for other ways to refuse."""

    def __init__(self, error: type[Exception] | None = None) -> None:
        super().__init__()
        self.conv, self.fc, self.error = nn.Conv2d(3, 4, 3), nn.Linear(4 * 30 * 30, 5), error

    def forward(self, x: Tensor) -> Tensor:
        if self.error and x.shape[2] != 32:
            raise self.error("only 32")
        return self.fc(self.conv(x).flatten(1))


class Positions(nn.Module):
    """Looks each position up in a table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.table(torch.arange(x.shape[2])).mean(dim=0) * x.mean(dim=(1, 2, 3))[:, None]


@pytest.mark.parametrize(
    "model",
    [small_transformer(), *(classifier(net, 32) for net in (FlatHead(), FlatHead(ValueError), Positions()))],
    ids=["transformer", "shapes", "value", "table"],
)
def test_a_network_that_takes_its_own_size_alone_says_so_by_its_size(model: pc.Classifier) -> None:
    found = for_grid(model, 64)
    assert (found.net, found.size, found.weights_hash) == (model.net, 32, model.weights_hash)
    assert str(found.surgery("input")["grid"]).startswith("resized (")
    assert for_grid(model, 32) is model
    grid = resize_image(images(64)[0], found.size)
    assert found(grid[None]).shape == (1, 5)


def test_a_network_that_does_not_take_its_own_size_is_refused() -> None:
    for size in (32, 64):
        with pytest.raises(pc.ModelError, match=r"images of 48 × 48, which should be its own size \(.*size=SIDE"):
            for_grid(classifier(FlatHead(), 48), size)
    with pytest.raises(pc.ModelError, match="images of 4 × 4"):
        for_grid(small_vgg(4), 64)


def test_memory_that_runs_out_is_no_refusal_of_the_size() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        for_grid(classifier(FlatHead(torch.OutOfMemoryError), 32), 64)


@pytest.mark.parametrize("first", [nn.BatchNorm1d(256), nn.LayerNorm(256), nn.ReLU()])
def test_a_head_that_is_more_than_linear_layers_cannot_slide_and_is_told(first: nn.Module) -> None:
    net = vgg()
    net.classifier = nn.Sequential(first, nn.Linear(256, 10))
    model = classifier(net, 32)
    with pytest.warns(pc.PixelcertWarning, match="fixed size behind 'avgpool' that cannot slide"):
        found = for_grid(model, 64)
    assert (found.net, found.size) == (net, 64)


def test_a_head_that_sees_more_than_the_pooled_features_cannot_slide_and_is_told() -> None:
    class Bypassed(models.VGG):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + x.mean(dim=(1, 2, 3))[:, None]

    model = small_vgg()
    model.net.__class__ = Bypassed
    with pytest.warns(pc.PixelcertWarning, match="cannot slide"):
        assert for_grid(model, 64).net is model.net


@pytest.mark.parametrize("size", [0, -224])
def test_a_size_without_pixels_is_refused(size: int) -> None:
    with pytest.raises(pc.ArgumentError, match=f"size={size} "):
        for_grid(small_vgg(), size)


def test_training_mode_is_refused_before_statistics_can_change() -> None:
    model = small_model("resnet")
    model.net.train()
    before = {key: value.clone() for key, value in model.net.state_dict().items()}
    with pytest.raises(pc.ModelError, match="training mode"):
        for_grid(model, 128)
    assert all(torch.equal(value, before[key]) for key, value in model.net.state_dict().items())


# ── Found once ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("make", [small_vgg, small_transformer, lambda: classifier(resnet(), 32)])
def test_a_size_is_tried_once(make) -> None:
    model = make()
    runs: list[object] = []
    for module in model.net.modules():
        module.register_forward_hook(lambda *_: runs.append(1))
    found = for_grid(model, 64)
    runs.clear()
    assert for_grid(model, 64) is found
    assert not runs


def test_what_was_found_is_forgotten_with_the_network() -> None:
    model = small_vgg()
    before = for_grid(model, 64)
    model.net.classifier[5] = nn.Linear(24, 3).eval()
    after = for_grid(model, 64)
    assert (before(images(64)).shape, after(images(64)).shape) == ((2, 10), (2, 3))
    model.to("cpu")
    assert for_grid(model, 64) is not after


def test_a_model_is_not_kept_alive() -> None:
    model = small_vgg()
    for_grid(model, 64), for_grid(model, 16)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


# ── Resizing ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("size", [7, 32, 100])
def test_resizing_keeps_a_constant_image_constant(value: float, size: int) -> None:
    resized = resize_image(torch.full((3, 64, 48), value), size)
    assert resized.shape == (3, size, size)
    torch.testing.assert_close(resized, torch.full((3, size, size), value), rtol=0, atol=1e-6)
    assert 0 <= resized.min() <= resized.max() <= 1  # where rounding would leave 1.0000005


@pytest.mark.parametrize("size", [28, 50])
def test_resizing_is_pillows_bilinear_filter(size: int) -> None:
    image = images(64)[0]
    by_pillow = [
        np.asarray(Image.fromarray(channel.numpy()).resize((size, size), Image.Resampling.BILINEAR))
        for channel in image
    ]
    torch.testing.assert_close(resize_image(image, size), torch.from_numpy(np.stack(by_pillow)), rtol=0, atol=1e-5)


def test_a_resized_image_can_be_certified() -> None:
    stark = (images(64)[0] > 0.5).float()  # sharp edges, where a filter might overshoot
    for size in (20, 64, 150):
        resized = resize_image(stark, size)
        assert 0 <= resized.min() < resized.max() <= 1
    assert torch.equal(resize_image(stark, 64), stark)


@pytest.mark.parametrize(("image", "size", "words"), [
    (images(8)[0], 0, "size=0"), (images(8), 4, "one image"), (images(8)[0] * 255, 4, r"\[0, 1\]"),
])  # fmt: skip
def test_what_cannot_be_resized_is_refused(image: Tensor, size: int, words: str) -> None:
    with pytest.raises(pc.PixelcertError, match=words):
        resize_image(image, size)
