"""GPU kernels: equal to torch's own functions bit for bit."""

from __future__ import annotations

import pytest
import torch

from pixelcert import noise, ranking
from pixelcert.noise import noisy, snap
from pixelcert.ranking import count_votes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.fixture
def without_kernels(monkeypatch):
    """Return a function that calls another as if the machine had no Triton."""

    def call(function, *args):
        with monkeypatch.context() as patch:
            for module in (noise, ranking):
                patch.setattr(module, "can_run_triton", lambda device: False)
            return function(*args)

    return call


@pytest.mark.parametrize("shape", [(3, 224, 224), (1, 7, 5), (3, 1, 1)])
@pytest.mark.parametrize(
    ("sigma", "seed", "first"), [(0.15, 0, 0), (0.33, 2**63 - 1, 7), (1.75, -5, 2**20), (0.25, 1, 16)]
)
def test_noise_is_the_same_bit_for_bit(shape, sigma, seed, first, without_kernels):
    image = snap(torch.rand(shape)).cuda()
    samples = range(first, first + 20)
    made = noisy(image, sigma, seed, samples)
    assert torch.equal(made, without_kernels(noisy, image, sigma, seed, samples))
    differing = (made.cpu() != noisy(image.cpu(), sigma, seed, samples)).float().mean()
    assert differing < 1e-6  # where the last bit of a logarithm or sine decides the rounding


@pytest.mark.parametrize("rule", ["rank", "percentile"])
@pytest.mark.parametrize("sign", ["signed", "absolute", "positive"])
@pytest.mark.parametrize("pixels", [50176, 1001, 3])
def test_votes_are_the_same(rule, sign, pixels, without_kernels):
    maps = torch.randn(33, pixels, device="cuda")
    maps[1] = 0
    maps[2] = maps[2].round()
    maps[3, :2] = torch.nan
    maps[4] = torch.nan
    maps[5, 0], maps[5, 1] = torch.inf, -torch.inf
    levels = (50, 25, 5)
    for counted, expected in zip(
        count_votes(maps, levels, sign, rule), without_kernels(count_votes, maps, levels, sign, rule), strict=True
    ):
        assert torch.equal(counted, expected)
    on_cpu = count_votes(maps.cpu(), levels, sign, rule)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(count_votes(maps, levels, sign, rule), on_cpu, strict=True))
