"""Directions of an attack: projections, gradients and surrogates, against closed forms and the methods themselves."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from attack_world import IMAGE, SIGMA, Distances, Votes, margins
from small_networks import NETWORKS, SIZE, small_model
from torch import nn
from torch.nn import functional as F

import pixelcert as pc
from pixelcert.attacks import gradients
from pixelcert.attacks.aim import Aim
from pixelcert.attacks.descent import Ball
from pixelcert.attacks.gradients import Pathwise, Stein, smooth_relus, surrogate_of
from pixelcert.explainer import as_explainer, explain
from pixelcert.noise import noisy, snap
from pixelcert.plan import Plan

# ── The ball ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("length", [0.3, 1.0, 5.0, 100.0])
def test_projection_is_the_nearest_member_of_the_ball(length):
    """P is the nearest point of a convex set to z just if (z - P)·(y - P) ≤ 0 for every member y."""
    random = torch.Generator().manual_seed(0)
    ball = Ball(torch.rand(3, 4, 4, generator=random, dtype=torch.float64), radius=0.8)
    wanted = torch.randn(3, 4, 4, generator=random, dtype=torch.float64)
    wanted *= length / wanted.norm()
    nearest = ball.project(wanted)
    assert nearest.norm() <= 0.8 + 1e-12
    assert 0 <= (ball.image + nearest).min() <= (ball.image + nearest).max() <= 1
    for _ in range(300):
        member = (torch.rand(3, 4, 4, generator=random, dtype=torch.float64) - ball.image) * 2 * torch.rand(1).item()
        member = torch.minimum(torch.maximum(member, -ball.image), 1 - ball.image)
        member *= min(1.0, 0.8 / float(member.norm()))
        assert float(((wanted - nearest) * (member - nearest)).sum()) <= 1e-9


def test_members_of_the_ball_stay_where_they_are():
    ball = Ball(torch.full((1, 2, 2), 0.5), radius=0.3)
    delta = torch.tensor([[[0.1, -0.1], [0.05, 0.2]]])
    torch.testing.assert_close(ball.project(delta), delta)


def test_random_perturbations_fill_the_radius_even_where_the_box_cuts():
    image = torch.zeros(3, 8, 8)  # black: half of every direction is cut
    one, other = (Ball(image, 0.7).random(seed) for seed in (0, 1))
    for delta in (one, other):
        assert float(delta.norm()) == pytest.approx(0.7, abs=1e-6)
        assert float(delta.min()) >= 0
    assert not torch.equal(one, other)


# ── Gradients ─────────────────────────────────────────────────────────────────────────────────────────────────────


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


@pytest.fixture
def aim() -> Aim:
    labels = torch.cat([torch.ones(32), torch.zeros(32)]).to(torch.int8)
    return Aim(labels, Distances.level, Plan(sigma=SIGMA, levels=(Distances.level,)))


@pytest.mark.parametrize("kind", ["stein", "pathwise"])
def test_gradients_agree_with_the_closed_form(kind, aim):
    world, draws = Distances(np.linspace(0.02, 0.3, 32)), 3000
    weights = np.random.default_rng(3).uniform(0, 1, 64)
    gradient = Pathwise(aim, surrogate_of(world, IMAGE, 0)) if kind == "pathwise" else Stein(aim, world, 0)
    images = noisy(IMAGE, SIGMA, 5, range(draws))
    found = gradient.descent(IMAGE, images, explain(world, images, 0).maps, torch.from_numpy(weights).float())
    least = 0.95 if kind == "pathwise" else 0.97  # its kernel smooths over shares that are far from one half
    assert cosine(found.flatten().double().numpy(), -world.slope(weights)) > least
    if kind == "stein":  # unbiased, so its length is right too
        assert float(found.norm()) == pytest.approx(np.linalg.norm(world.slope(weights)), rel=0.1)


@as_explainer
def itself(images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a map of which every pixel depends on its own value only, but for the threshold."""
    return images[:, 0]


def test_votes_from_nearby_are_a_better_guide_where_nothing_else_matters():
    """To lose its place among the highest values, a pixel has to become darker, and one outside brighter."""
    image = snap(torch.linspace(0.4, 0.6, 784).view(1, 28, 28))
    images, plan = noisy(image, SIGMA, 4, range(200)), Plan(sigma=SIGMA, levels=(50,))
    labels = (image.flatten() > 0.5).to(torch.int8)
    aim, maps = Aim(labels, 50, plan), explain(itself, images, 0).maps
    true = -(2 * labels - 1).double().numpy()

    def found(reach: int | None) -> float:
        slope = Stein(aim, itself, 0, reach).descent(image, images, maps, torch.ones(784))
        return cosine(slope.flatten().double().numpy(), true)

    assert found(0) > 0.95
    assert found(0) > found(1) > found(5) > found(27) > 0.1  # the last takes the votes of all


def test_without_a_reach_every_vote_counts_for_every_value(aim):
    world = Distances(margins())
    images, weights = noisy(IMAGE, SIGMA, 5, range(40)), torch.rand(64, generator=torch.Generator().manual_seed(0))
    maps = explain(world, images, 0).maps
    everywhere, nearby = (Stein(aim, world, 0, reach).descent(IMAGE, images, maps, weights) for reach in (None, 7))
    torch.testing.assert_close(everywhere, nearby)  # cells are single pixels in so small an image


@pytest.mark.parametrize(
    ("name", "layer", "expected"),
    [
        ("gb", "input", 2),
        ("lrp", "input", 2),
        ("gb", "final", None),
        ("rise", "input", None),
        ("occlusion", "input", None),
    ],
)
def test_at_the_input_votes_depend_on_what_is_near(name, layer, expected):
    assert pc.method(name, model("vgg"), layer).reach == expected
    assert Distances(margins()).reach is None


def test_votes_near_one_half_weigh_most(aim):
    shares = torch.linspace(0, 1, 64)
    weights = aim.weights(shares)
    assert 30 <= int(weights.argmax()) <= 33
    assert float(weights[0]) < 0.05 * float(weights.max())


def test_pixels_that_are_not_attacked_have_no_weight(aim):
    ignored = Aim(torch.full((64,), pc.ABSTAIN), aim.level, aim.plan)
    assert not ignored.weights(torch.full((64,), 0.5)).any()


# ── Smooth ReLUs ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "relu", [nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU6(), nn.ReLU6(inplace=True), torch.relu, torch.Tensor.relu]
)
def test_smooth_relus_have_the_shape_of_relus_and_a_slope_of_slopes(relu):
    values = torch.tensor([-3.0, -0.05, 0.05, 3.0, 5.95, 9.0])
    expected = relu(values.clone())
    leaf = values.clone().requires_grad_()
    with smooth_relus():
        smooth = relu(leaf * 1)
    torch.testing.assert_close(smooth.detach(), expected, atol=0.08, rtol=0)
    (slope,) = torch.autograd.grad(smooth.sum(), leaf, create_graph=True)
    assert 0 < slope[1].item() < slope[2].item() < 1
    (curvature,) = torch.autograd.grad(slope.sum(), leaf)
    assert float(curvature[1]) > 1  # that of a ReLU is zero
    assert torch.equal(relu(values.clone()), expected), "it outlived its block"


def test_values_changed_in_place_are_seen_by_others():
    values = torch.tensor([-1.0, 2.0])
    with smooth_relus():
        F.relu_(values)
    assert float(values[0]) >= 0


# ── Surrogates ────────────────────────────────────────────────────────────────────────────────────────────────────

EXACT = ("cam", "grad_cam", "grad_cam_pp", "ablation_cam", "layer_cam", "lrp", "occlusion", "ixg", "intgrad")


model = cache(small_model)


@cache
def pooled() -> pc.Classifier:
    """A thin network of stride 8 that ends in pooling and one linear layer."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for before, after in ((3, 8), (8, 16), (16, 64)):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
        head = nn.Linear(64, 10)
        nn.init.normal_(head.weight, std=0.3)  # enough for maps that are no rounding
        net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
    return pc.Classifier(net, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), size=SIZE, final="5")


def photographs() -> torch.Tensor:
    return noisy(snap(torch.rand(3, SIZE, SIZE, generator=torch.Generator().manual_seed(2))), 0.1, 0, range(4))


def answer() -> int:
    """Return the class with the highest logits: a method that divides by them keeps its sign."""
    with torch.no_grad():
        return int(pooled()(photographs()).sum(dim=0).argmax())


def order(maps: torch.Tensor) -> torch.Tensor:
    """Ranks of what is positive: a ReLU ties all the rest."""
    return maps.clamp_min(0).flatten(1)


@pytest.mark.parametrize("name", EXACT)
def test_before_a_linear_head_surrogates_rank_like_the_method(name):
    explainer, images, target = pc.method(name, pooled(), "final"), photographs(), answer()
    true = order(explain(explainer, images, target).maps)
    found = order(surrogate_of(explainer, images[0], target)(images)).detach()
    for one, other in zip(true, found, strict=True):
        assert np.corrcoef(one, other)[0, 1] > 0.9999


def test_rise_is_followed_to_first_order():
    explainer, images, target = pc.method("rise", pooled(), "final", masks=2000), photographs(), answer()
    true = explain(explainer, images, target).maps.flatten(1)
    found = surrogate_of(explainer, images[0], target)(images).detach().flatten(1)
    assert np.mean([np.corrcoef(one, other)[0, 1] for one, other in zip(true, found, strict=True)]) > 0.5


@pytest.mark.parametrize("name", ["grad", "gb", "ixg", "intgrad"])
def test_sharp_surrogates_of_gradients_are_the_method(name, monkeypatch):
    monkeypatch.setattr(gradients, "SHARPNESS", 1e5)
    monkeypatch.setattr(gradients, "_STEPS", 20)
    explainer, images = pc.method(name, pooled(), "input"), photographs()
    true = explain(explainer, images, 3).maps.flatten(1)
    found = surrogate_of(explainer, images[0], 3)(images.requires_grad_()).detach().flatten(1)
    for one, other in zip(true, found, strict=True):
        assert np.corrcoef(one, other)[0, 1] > 0.99


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("layer", ["input", "final"])
@pytest.mark.parametrize("name", pc.METHODS)
def test_surrogates_have_a_finite_slope_in_the_image(name, layer, network):
    try:
        explainer = pc.method(name, model(network), layer)
    except pc.ModelError:
        pytest.skip(f"{name} does not explain {network}")
    images = photographs()[:2].requires_grad_()
    found = surrogate_of(explainer, images[0].detach(), 3)
    if found is None:
        assert name in ("cam", "lrp", "occlusion", "rise"), "only these are left to Stein's lemma"
        return
    maps = found(images)
    assert maps.shape == (2, SIZE, SIZE)
    weights = torch.randn(maps.shape, generator=torch.Generator().manual_seed(0))
    if name in ("grad", "gb") and explainer.linear_head:
        return  # the same everywhere, whatever the image
    (slope,) = torch.autograd.grad((weights * maps).sum(), images)
    assert slope.isfinite().all()
    assert float(slope.abs().max()) > 0


def test_explainers_that_stay_in_the_graph_are_their_own_surrogates():
    world = Distances(margins())
    images = noisy(IMAGE, SIGMA, 0, range(3))
    torch.testing.assert_close(surrogate_of(world, IMAGE, 0)(images), world(images, torch.zeros(3)))


def test_an_explainer_may_bring_its_own_surrogate():
    class Brought(pc.Explainer):
        def explain(self, images, targets):
            return pc.Explanation(images.detach()[:, 0])

        def surrogate(self, target):
            return lambda images: images[:, 0] * target

    images = IMAGE.repeat(2, 1, 1, 1)
    torch.testing.assert_close(surrogate_of(Brought(), IMAGE, 3)(images), 3 * images[:, 0])


@pytest.mark.parametrize(
    "black_box",
    [
        Votes(margins()),
        pc.adapt(lambda images: np.asarray(images).sum(axis=1)),
        lambda images, targets: torch.from_numpy(images.numpy()).sum(dim=1),
        lambda images, targets: images.detach().sum(dim=1) * torch.ones(1, requires_grad=True),
    ],
    ids=["votes", "adapted", "numpy", "detached"],
)
def test_black_boxes_have_no_surrogate(black_box):
    assert surrogate_of(as_explainer(black_box), IMAGE, 0) is None
