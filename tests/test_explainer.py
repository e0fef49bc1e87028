"""The interface: plain callables are wrapped once, and take over what they tell of themselves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import pixelcert as pc
from pixelcert.explainer import NO_MODEL, BlackBox, as_explainer, describe, explain

IMAGES = torch.rand(2, 3, 6, 5, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([0, 1])


def brightness(images: Tensor, targets: Tensor) -> Tensor:
    return images.mean(dim=1)


class Told:
    """A callable object that tells of itself."""

    name, layer, params, passes = "told", "input", {"power": 2}, 7

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        return images[:, 0]


class WithLogits:
    """An object with a method instead of a call."""

    def explain(self, images: Tensor, targets: Tensor) -> pc.Explanation:
        return pc.Explanation(images[:, 0], images[:, :, 0, 0])


def test_a_function_is_known_by_its_name():
    explainer = as_explainer(brightness)
    assert describe(explainer) == {
        "method": "brightness",
        "params": {},
        "layer": "",
        "model": "",
        "weights": "",
        "origin": None,
    }
    assert explainer.model == NO_MODEL
    assert (explainer.passes, explainer.tunable, explainer.fusable, explainer.compilable) == (1, False, False, False)
    torch.testing.assert_close(explainer(IMAGES, TARGETS), brightness(IMAGES, TARGETS), rtol=0, atol=0)


def test_what_an_object_tells_is_taken_over():
    explainer = as_explainer(Told())
    assert describe(explainer)["method"] == "told"
    assert describe(explainer)["params"] == {"power": 2}
    assert (explainer.layer, explainer.passes) == ("input", 7)


def test_what_is_told_in_another_type_is_left_alone():
    told = Told()
    told.passes, told.name = "many", 3  # type: ignore[assignment]
    explainer = as_explainer(told)
    assert (explainer.passes, explainer.name) == (1, "Told")


def test_an_object_may_have_a_method_that_adds_logits():
    answer = explain(as_explainer(WithLogits()), IMAGES, 0)
    assert answer.logits is not None
    torch.testing.assert_close(answer.logits, IMAGES[:, :, 0, 0], rtol=0, atol=0)


def test_a_classifier_that_an_object_names_is_its_model():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(90, 4))
    told = Told()
    told.model = pc.Classifier(net, mean=(0.5,) * 3, std=(0.5,) * 3, size=6)  # type: ignore[attr-defined]
    assert as_explainer(told).model is told.model  # type: ignore[attr-defined]
    told.model = "resnet18"  # type: ignore[attr-defined]
    assert as_explainer(told).model == NO_MODEL


class Facts:
    """A model of somebody else's, which tells only a part of what a Classifier does."""

    def __init__(self, **facts: object) -> None:
        vars(self).update(facts)


FACTS = {
    "name": "theirs",
    "weights_hash": "abc",
    "device": torch.device("cpu"),
    "channels": 3,
    "classes": ("cat", "dog"),
    "precision": "float16",
    "count_classes": lambda height, width: 2,
}


@pytest.mark.parametrize(
    "parts", [("name", "weights_hash"), ("name", "weights_hash", "count_classes"), ("device",), FACTS]
)
def test_a_model_that_an_object_names_tells_what_it_can(parts):
    told = Told()
    told.model = Facts(**{part: FACTS[part] for part in parts})  # type: ignore[attr-defined]
    model = as_explainer(told).model
    unknown = {part: getattr(NO_MODEL, part) for part in FACTS if part not in parts}
    assert {part: getattr(model, part) for part in FACTS} == {**{part: FACTS[part] for part in parts}, **unknown}


def test_votes_of_other_weights_are_not_resumed():
    def explainer(weights: str) -> Told:
        told = Told()
        told.model = Facts(name="theirs", weights_hash=weights)  # type: ignore[attr-defined]
        return told

    asked = {"n": 30, "levels": 50, "tau": 0.5, "batch_size": 10}
    votes = pc.sample(explainer("abc"), IMAGES[0], 0, **asked)
    assert (votes.provenance.model, votes.provenance.weights) == ("theirs", "abc")
    with pytest.raises(pc.ArgumentError, match="weights was 'abc', now 'other'"):
        votes.resume(explainer("other"), IMAGES[0])


def test_a_model_in_training_mode_is_refused():
    told = Told()
    told.model = torch.nn.Dropout()  # type: ignore[attr-defined]
    with pytest.raises(pc.ModelError, match=r"training mode.*eval\(\)"):
        as_explainer(told)


def test_an_explainer_is_not_wrapped():
    wrapped = as_explainer(brightness)
    assert as_explainer(wrapped) is wrapped
    assert isinstance(wrapped, BlackBox)


@pytest.mark.parametrize("given", [3, "grad_cam", None, torch.zeros(3)])
def test_what_cannot_be_called_is_refused(given):
    with pytest.raises(pc.ArgumentError, match=r"explainer is .*: give a callable \(images, targets\)"):
        as_explainer(given)


def test_a_subclass_must_define_explain():
    class Empty(pc.Explainer):
        pass

    with pytest.raises(TypeError, match="Empty does not define explain"):
        Empty()(IMAGES, TARGETS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"precision": "float8"}, "precision='float8' is not known"),
        ({"compile": "yes"}, "compile='yes' is not known"),
        ({"batch_size": 0}, "batch_size=0 is not a whole number from 1"),
        ({"batch_size": 2.5}, "batch_size=2.5 is not a whole number"),
    ],
)
def test_a_tuning_that_makes_no_sense_is_refused(given, said):
    with pytest.raises(pc.ArgumentError, match=said):
        pc.Tuning(**given).check()
