"""Classifier: preprocessing, prediction, hash of the weights, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from small_networks import HALF, MEAN, STD, Tiny, assert_same, images, tiny
from torch import Tensor, nn

import pixelcert as pc


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


def test_number_of_classes_is_read_off_the_network() -> None:
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


def test_networks_of_other_precisions_get_images_in_theirs() -> None:
    model = pc.Classifier(Tiny().double(), HALF, HALF, size=16)
    assert model(images()).dtype == torch.float64


def test_a_network_made_in_inference_mode_is_refused() -> None:
    with torch.inference_mode():
        net = Tiny()
    with pytest.raises(pc.ModelError, match=r"Tiny was made under torch.inference_mode\(\).*create it outside"):
        pc.Classifier(net, HALF, HALF)


def test_batch_norm_without_running_statistics_is_refused() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.Flatten())
    with pytest.raises(pc.ModelError, match="running statistics"):
        pc.method("grad", pc.Classifier(net, HALF, HALF))


# ── Hash of the weights ───────────────────────────────────────────────────────────────────────────────────────────────


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


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:torch")
def test_hash_takes_quantised_weights_and_knows_them() -> None:
    """Their layers keep weights and biases in tuples, beside settings."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))

    def hashed() -> str:
        quantised = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)
        return pc.Classifier(quantised, (0.5,) * 3, (0.5,) * 3, size=2).weights_hash

    before = hashed()
    assert hashed() == before
    for parameter in net.parameters():
        with torch.no_grad():
            parameter[0] += 1
        assert hashed() != before
        before = hashed()


def test_hash_knows_the_shapes_of_parameters() -> None:
    hashes = set()
    for shape in ((2, 8), (4, 4)):
        net = tiny().net
        net.extra = nn.ParameterList([nn.Parameter(torch.zeros(shape))])
        hashes.add(pc.Classifier(net, HALF, HALF).weights_hash)
    assert len(hashes) == 2


def test_hash_knows_the_structure_and_not_only_the_parameters() -> None:
    nets = [nn.Sequential(nn.Conv2d(3, 4, 3, stride=stride), nn.ReLU()) for stride in (1, 2)]
    nets[1].load_state_dict(nets[0].state_dict())
    assert pc.Classifier(nets[0], HALF, HALF).weights_hash != pc.Classifier(nets[1], HALF, HALF).weights_hash
