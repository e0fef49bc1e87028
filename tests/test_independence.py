"""Explainers that cheat: p = 1/2 at every pixel, and votes that are not independent. None is certified."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from small_networks import tiny
from torch import Tensor, nn
from torch.nn import functional as F

import pixelcert as pc
from pixelcert.basics.files import sha256
from pixelcert.basics.generators import moved, states
from pixelcert.explainer import Tuning, explain
from pixelcert.plan import Plan
from pixelcert.sampling.independence import DependenceError, differ
from pixelcert.sampling.sample import Subject, sample_each

SIDE = 16
IMAGE = torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
OTHER = torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))

Maps = Callable[[Tensor, Tensor], Tensor]


def coin(image: Tensor) -> Tensor:
    """Return a map that is random from image to image, and always the same for one: every p is 1/2."""
    seed = int(sha256(image.contiguous().numpy())[:15], 16)
    return torch.rand(SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def fair(images: Tensor, targets: Tensor) -> Tensor:
    return torch.stack([coin(image) for image in images])


# ── Cheats ────────────────────────────────────────────────────────────────────────────────────────────────────────


def of_the_first_row() -> Maps:
    return lambda images, targets: coin(images[0]).expand(len(images), -1, -1)


def of_the_whole_batch() -> Maps:
    return lambda images, targets: coin(images.sum(dim=0)).expand(len(images), -1, -1)


def of_the_neighbour() -> Maps:
    return lambda images, targets: fair(images, targets)[[0, *range(len(images) - 1)]].cummax(dim=0).values


def of_the_place_in_the_batch() -> Maps:
    return lambda images, targets: torch.stack([coin(torch.full((1,), float(i < 90))) for i in range(len(images))])


def inputs_overwritten() -> Maps:
    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        images[:] = images[:1].clone()
        return fair(images, targets)

    return cheat


def one_buffer_for_all_answers() -> Maps:
    buffer = torch.empty(100, SIDE, SIDE)

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        buffer[: len(images)] = fair(images, targets)
        if len(images) == 1:  # what a check would ask
            buffer[:] = buffer[:1]
        return buffer[: len(images)]

    return cheat


def mean_of_all_so_far() -> Maps:
    seen: list[Tensor] = []

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        seen.extend(fair(images, targets))
        return torch.stack(seen).cumsum(dim=0)[-len(images) :]

    return cheat


def changed_after(calls: int) -> Maps:
    left = [calls]

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        left[0] -= 1
        return fair(images, targets) if left[0] >= 0 else coin(torch.zeros(1)).expand(len(images), -1, -1)

    return cheat


def last_answer_again() -> Maps:
    last = [coin(torch.zeros(1))]

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        maps = torch.stack([*last, *fair(images, targets)])
        last[:] = [maps[-1]]
        return maps[:-1]

    return cheat


def remembered_by_address() -> Maps:
    known: dict[int, Tensor] = {}

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        maps = [known.setdefault(image.data_ptr() % 2**16, coin(image)) for image in images]
        return torch.stack(maps)

    return cheat


def answers_of_a_thread() -> Maps:
    pool, waiting = ThreadPoolExecutor(1), list[Any]()

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        waiting.append(pool.submit(coin, images[0].clone()))
        return waiting[max(0, len(waiting) - 2)].result().expand(len(images), -1, -1)

    return cheat


def random_numbers_of_torch() -> Maps:
    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        return torch.rand(1, SIDE, SIDE).expand(len(images), -1, -1)

    return cheat


def random_numbers_of_numpy() -> Maps:
    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        return torch.from_numpy(np.random.rand(1, SIDE, SIDE)).expand(len(images), -1, -1)

    return cheat


def random_numbers_of_its_own() -> Maps:
    generator = torch.Generator().manual_seed(0)
    return lambda images, targets: torch.rand(1, SIDE, SIDE, generator=generator).expand(len(images), -1, -1)


def random_numbers_seeded_for_each_call() -> Maps:
    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        torch.manual_seed(0)
        return torch.rand(1 + len(images), SIDE, SIDE)[-1:].expand(len(images), -1, -1)

    return cheat


def dropout_in_training() -> Maps:
    net = nn.Dropout()

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        return net(torch.ones(1, SIDE, SIDE)).expand(len(images), -1, -1) + fair(images, targets) / 10

    return cheat


CHEATS: dict[str, tuple[Callable[[], Maps], tuple[int, ...], str]] = {  # with the batch sizes at which it is one
    "of the first row": (of_the_first_row, (2, 7, 100), "rest of the batch"),
    "of the whole batch": (of_the_whole_batch, (2, 3, 7, 100), "rest of the batch"),
    "of the neighbour": (of_the_neighbour, (100,), "rest of the batch"),
    "of the place in the batch": (of_the_place_in_the_batch, (100,), "rest of the batch"),
    "inputs overwritten": (inputs_overwritten, (7, 100), "rest of the batch"),
    "one buffer": (one_buffer_for_all_answers, (1, 7, 100), ""),
    "mean so far": (mean_of_all_so_far, (1, 7, 100), "call to call|earlier calls"),
    "changed after 1": (partial(changed_after, 1), (1, 7), "earlier calls"),
    "changed after 3": (partial(changed_after, 3), (1, 7), "earlier calls"),
    "changed after 5": (partial(changed_after, 5), (1, 7), "earlier calls"),
    "changed after 90": (partial(changed_after, 90), (1,), "earlier calls"),
    "last answer again": (last_answer_again, (1, 7, 100), "earlier calls"),
    "remembered by address": (remembered_by_address, (7,), ""),
    "answers of a thread": (answers_of_a_thread, (1, 7, 100), "call to call|earlier calls"),
    "random, torch": (random_numbers_of_torch, (1, 7, 100), "draws random numbers.*seed anew for each image"),
    "random, NumPy": (random_numbers_of_numpy, (1, 7, 100), "draws random numbers.*seed anew for each image"),
    "random, own": (random_numbers_of_its_own, (1, 7, 100), "call to call"),
    "random, seeded for each call": (
        random_numbers_seeded_for_each_call,
        (7, 100),
        "same random numbers for every image",
    ),
    "dropout": (dropout_in_training, (1, 7, 100), "training mode"),
}
CASES = [(name, size) for name, (_, sizes, _) in CHEATS.items() for size in sizes]


def certified(explainer: Maps, size: int, image: Tensor = IMAGE) -> float:
    return pc.certify(explainer, image, 0, batch_size=size, levels=50).percent_certified(50)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_an_honest_explainer_is_certified_as_its_chances_are(size):
    assert certified(fair, size) == 0
    assert certified(lambda images, targets: images.sum(dim=1), size) > 50


@pytest.mark.parametrize(("name", "size"), CASES)
def test_cheats_are_refused_with_the_cause_or_not_certified(name, size):
    make, _, cause = CHEATS[name]
    with torch.random.fork_rng():
        try:
            share = certified(make(), size)
        except pc.PixelcertError as error:
            assert isinstance(error, (DependenceError, pc.ModelError))
            assert re.search(cause, str(error)), str(error)
        else:
            assert share < 1, f"{share} % were certified"
            assert not cause, "it should have been refused"


def test_nothing_is_kept_of_a_cheat():
    """Votes of a dependent explainer are no partial votes, even if they show only at the end."""
    with pytest.raises(DependenceError):
        pc.sample(changed_after(5), IMAGE, 0, batch_size=7)


# ── What is not dependence ────────────────────────────────────────────────────────────────────────────────────────


def test_rounding_by_the_size_of_a_batch_is_no_dependence():
    """As GPUs do, whose kernels depend on it."""

    def rounding(images: Tensor, targets: Tensor) -> Tensor:
        return images[:, 0] + (len(images) > 1) * 0.1 * torch.arange(SIDE).cos()

    for size in (1, 2, 3, 7, 100):
        assert pc.sample(rounding, IMAGE, 0, batch_size=size).complete


def test_images_that_share_a_batch_are_compared_too():
    def mixing(images: Tensor, targets: Tensor) -> Tensor:
        return images[:, 0] - (len(targets.unique()) > 1) * images[:, 0].mean(dim=0)

    subjects = [Subject(IMAGE, 0), Subject(OTHER, 1)]
    with pytest.raises(DependenceError, match="rest of the batch"):
        list(sample_each(Plan(n=13, levels=(50,), seed=0), mixing, subjects, Tuning(10)))


def test_global_generators_are_left_as_they_were():
    torch.manual_seed(1)
    np.random.seed(2)
    before = states()
    certified(fair, 7)
    assert not moved(before, states())
    with pytest.raises(DependenceError):
        certified(random_numbers_of_torch(), 100)
    torch.manual_seed(1)
    torch.rand(1, SIDE, SIDE)  # by the only batch; the check draws as many, and puts them back
    after = states()
    torch.set_rng_state(before[2][0])
    with pytest.raises(DependenceError):
        certified(random_numbers_of_torch(), 100)
    assert not moved(after, states())


def test_a_map_that_ignores_the_image_is_told():
    fixed = coin(torch.zeros(1))
    with pytest.warns(pc.PixelcertWarning, match="same map for different images"):
        pc.certify(lambda images, targets: fixed.expand(len(images), -1, -1), IMAGE, 0)


# ── What it costs ─────────────────────────────────────────────────────────────────────────────────────────────────


class Counting:
    """Sums of channels, with the sizes of the batches that it was called with."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        self.sizes.append(len(images))
        return images.sum(dim=1)


@pytest.mark.parametrize("size", [1, 2, 10, 100])
def test_an_image_costs_four_explanations_more(size):
    explainer = Counting()
    pc.sample(explainer, IMAGE, 0, batch_size=size)
    batches = [size] * (100 // size) + [100 % size] * bool(100 % size)
    assert len(explainer.sizes) - len(batches) <= 4
    assert sum(explainer.sizes) - 100 <= 4


def test_a_method_is_checked_once_for_its_network_size_and_batch(monkeypatch):
    explained = []

    def counting(*given: Any) -> Any:
        explained.append(len(given[1]))
        return explain(*given)

    monkeypatch.setattr("pixelcert.sampling.independence.explain", counting)
    model = tiny()
    settings: dict[str, Any] = {"precision": "float32", "tau": None, "levels": 50}
    for method, size, image, expected in (
        ("grad", 50, IMAGE, [1] * 4),
        ("grad", 50, OTHER, []),
        ("grad", 25, OTHER, [1] * 4),
        ("gb", 25, OTHER, [1] * 4),
        ("grad", 50, IMAGE[:, 1:, 1:], [1] * 4),
        ("grad", 25, IMAGE, []),
    ):
        pc.sample(pc.method(method, model, "input"), image, 0, batch_size=size, **settings)
        assert explained == expected
        explained.clear()
    with torch.no_grad():
        next(model.net.parameters()).mul_(2)
    pc.sample(pc.method("grad", model, "input"), IMAGE, 0, batch_size=50, **settings)
    assert explained == [1] * 4


# ── Built-in methods ──────────────────────────────────────────────────────────────────────────────────────────────


class Mixing(nn.Module):
    """A network that normalises by its batch even in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, inputs: Tensor) -> Tensor:
        features = F.batch_norm(self.first(inputs), None, None, training=True)
        return self.last((features * features.mean(dim=0, keepdim=True)).relu().mean(dim=(2, 3)))


@pytest.mark.parametrize("method", ["grad", "ixg", "gb", "grad_cam", "intgrad"])
def test_methods_do_not_vouch_for_networks_that_mix_their_batch(method):
    model = pc.Classifier(Mixing(), (0.5,) * 3, (0.5,) * 3, size=SIDE, final="first")
    with pytest.raises(DependenceError, match="rest of the batch"):
        pc.sample(pc.method(method, model, "input"), IMAGE, 0, batch_size=20)
    pc.sample(pc.method(method, model, "input"), IMAGE, 0, batch_size=1)  # there is nothing to mix


def test_votes_of_rows_count_as_equal_up_to_rounding():
    votes = torch.zeros(2, 2, 1000, dtype=torch.int32)
    votes[0, 0, :500] = votes[0, 1, :10] = 1
    other = votes.clone()
    other[0, 0, :10] = 0
    assert not differ(votes, other)
    other[0, 0, :11] = 0
    assert differ(votes, other)
    other = votes.clone()
    other[0, 1, :3], other[0, 1, 10:13] = 0, 1  # more than half of a small top set
    assert differ(votes, other)
    other[0, 1, 2], other[0, 1, 12] = 1, 0
    assert not differ(votes, other)
