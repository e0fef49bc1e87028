"""The global generators of torch, NumPy and Python: seeded, compared and put back."""

import random

import numpy as np
import pytest
import torch

from pixelcert.basics.generators import moved, put_back, seed_all, states

DRAWS = [lambda: torch.rand(1), np.random.rand, random.random]


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("fails", [False, True])
def test_generators_are_put_back_whatever_happens(draw, fails):
    before = states()
    with pytest.raises(RuntimeError) if fails else put_back(), put_back():
        seed_all(5)
        draw()
        assert moved(before, states())
        if fails:
            raise RuntimeError
    assert not moved(before, states())


@pytest.mark.parametrize("draw", DRAWS)
def test_each_draw_is_seen_and_repeated_from_the_same_seed(draw):
    with put_back():
        drawn = []
        for seed in (1, 1, 2, -1, 2**64 + 1):
            seed_all(seed)
            before = states()
            assert not moved(before, states())
            drawn.append(float(draw()))
            assert moved(before, states())
        assert drawn[0] == drawn[1]
        assert len(set(drawn[1:4])) == 3
