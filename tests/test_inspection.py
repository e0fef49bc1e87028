"""Inspection: structure in words, trials, agreement, and the record of surgery."""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from functools import partial

import numpy as np
import pytest
import torch
from small_networks import tiny
from torch import Tensor, nn
from torch.nn import functional as F

from pixelcert.models.cropping import local_parts
from pixelcert.models.inspection import structure


class Kind(Enum):
    ONE = 1
    OTHER = 2


USED_TWICE = nn.ReLU()


class Scaled(nn.Conv2d):
    """A module of somebody's own, on top of one of torch's."""

    def __init__(self, *args, power=1, activation=F.relu, note=None, **options):
        super().__init__(*args, **options)
        self.power, self.activation, self.note, self.calls = power, activation, note, 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3, stride=2)),
        (nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")),
        (nn.BatchNorm2d(3), nn.BatchNorm2d(3, eps=1e-3)),
        (nn.ReLU(), nn.SiLU()),
        (nn.LeakyReLU(0.1), nn.LeakyReLU(0.2)),
        (nn.Sequential(nn.ReLU(), nn.Identity()), nn.Sequential(nn.Identity(), nn.ReLU())),
        (Scaled(3, 4, 3), Scaled(3, 4, 3, dilation=2)),
        (Scaled(3, 4, 3), Scaled(3, 4, 3, power=2)),
        (Scaled(3, 4, 3), Scaled(3, 4, 3, activation=F.silu)),
        (Scaled(3, 4, 3, note=(1, "a")), Scaled(3, 4, 3, note=(1, "b"))),
        (Scaled(3, 4, 3, note=[1, 2]), Scaled(3, 4, 3, note=[1, 3])),
        (Scaled(3, 4, 3, note={"a": 1}), Scaled(3, 4, 3, note={"a": 2})),
        (Scaled(3, 4, 3, note={1, 2}), Scaled(3, 4, 3, note={1, 3})),
        (Scaled(3, 4, 3, note=b"a"), Scaled(3, 4, 3, note=1j)),
        (Scaled(3, 4, 3, note=torch.half), Scaled(3, 4, 3, note=torch.float)),
        (Scaled(3, 4, 3, note=np.float32(1)), Scaled(3, 4, 3, note=np.float32(2))),
        (Scaled(3, 4, 3, note=nn.ReLU), Scaled(3, 4, 3, note=nn.SiLU)),
        (Scaled(3, 4, 3, note=partial(F.relu, inplace=True)), Scaled(3, 4, 3, note=partial(F.relu))),
        (Scaled(3, 4, 3, note=Kind.ONE), Scaled(3, 4, 3, note=Kind.OTHER)),
        (Scaled(3, 4, 3, activation=F.gelu), Scaled(3, 4, 3, activation=torch.tanh)),
        (Scaled(3, 4, 3, note=0), Scaled(3, 4, 3, note=None)),
        (nn.Sequential(OrderedDict(one=nn.ReLU())), nn.Sequential(OrderedDict(other=nn.ReLU()))),
        (nn.Sequential(USED_TWICE, nn.Identity()), nn.Sequential(USED_TWICE, nn.Identity(), USED_TWICE)),
    ],
)
def test_structure_tells_settings_and_kinds_of_modules_apart(one, other):
    assert structure(one) != structure(other)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_structure_tells_scripted_modules_apart():
    one, other = (torch.jit.script(module) for module in (nn.ReLU(), nn.Tanh()))
    assert structure(one) != structure(other)


def test_structure_takes_the_default_of_the_class_itself():
    class Steep(nn.LeakyReLU):
        def __init__(self, negative_slope=0.5):
            super().__init__(negative_slope)

    assert structure(Steep()) == ": Steep()"
    assert structure(Steep(0.01)) == ": Steep(negative_slope=0.01)"


def test_structure_does_not_change_as_a_network_runs_or_trains():
    module = Scaled(3, 4, 3)
    before = structure(module)
    module.calls += 1
    module.train()
    module(torch.zeros(1, 3, 8, 8))
    assert structure(module) == before


def test_structure_is_the_same_when_a_later_torch_knows_another_setting(monkeypatch):
    """As torch 2.13 prints of batch norms whether they have a bias, which they always had before."""
    before, printed = structure(nn.BatchNorm2d(3)), repr(nn.BatchNorm2d(3))
    original = nn.BatchNorm2d.__init__

    def later(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, tilted=False):
        original(self, num_features, eps, momentum, affine, track_running_stats)
        self.tilted = tilted

    monkeypatch.setattr(nn.BatchNorm2d, "__init__", later)
    monkeypatch.setattr(nn.BatchNorm2d, "extra_repr", lambda self: f"tilted={self.tilted}")
    assert repr(nn.BatchNorm2d(3)) != printed
    assert structure(nn.BatchNorm2d(3)) == before
    assert structure(nn.BatchNorm2d(3, tilted=True)) != before


def test_memory_that_runs_out_in_a_trial_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()

    def full(given: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(model.net, "forward", full)
    with pytest.raises(torch.OutOfMemoryError):
        local_parts(model, "input")
