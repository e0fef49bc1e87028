"""Sampling on an NVIDIA GPU: the same votes as on a CPU, however many images share batches."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import pixelcert as pc
from pixelcert.explainer import Explainer, Explanation, NoModel, Tuning
from pixelcert.models.cropping import local_parts
from pixelcert.models.folding import FusedConvolution, fuse
from pixelcert.models.variants import tuned
from pixelcert.plan import Plan
from pixelcert.ranking import Ranking
from pixelcert.sampling.independence import DependenceError
from pixelcert.sampling.sample import Subject, sample_each

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

PLAN = Plan(n=60, levels=(50, 10), seed=3)


class Sum(Explainer):
    """Arithmetic whose results are the same in every batch, on a GPU as on a CPU."""

    def __init__(self, device: str) -> None:
        self.model = NoModel(device=torch.device(device))

    def explain(self, images, targets):
        return Explanation((images[:, 0] + images[:, 1]) * 2 + targets[:, None, None])


def some_images(count: int, size: int = 40) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(3, size, size, generator=generator) for _ in range(count)]


def equal(one: pc.Votes, other: pc.Votes) -> bool:
    return np.array_equal(one.ones, other.ones) and np.array_equal(one.zeros, other.zeros)


@pytest.mark.parametrize("batch_size", [None, 7, 60, 130])
def test_images_that_share_batches_get_the_votes_that_a_cpu_gives_each(batch_size):
    images = some_images(25)
    subjects = [Subject(image, index) for index, image in enumerate(images)]
    together = list(sample_each(PLAN, Sum("cuda"), subjects, Tuning(batch_size)))
    for subject, votes in zip(subjects, together, strict=True):
        (alone,) = sample_each(PLAN, Sum("cpu"), [subject])
        assert equal(votes, alone)
        assert votes.provenance.target == subject.target


@pytest.fixture(scope="module")
def resnet() -> pc.Classifier:
    torch.manual_seed(0)
    model = pc.load_model("resnet18", weights=None, device="cuda")
    for module in model.net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_fused_convolutions_answer_what_plain_ones_do(resnet, dtype):
    plain, fused = (tuned(resnet, dtype, layer="final", fused=each) for each in (False, True))
    body, _ = fuse(fused.net)
    assert sum(isinstance(module, FusedConvolution) for module in body.modules()) == 17
    images = torch.rand(4, 3, 224, 224, device="cuda")
    with torch.no_grad():
        one, two = (each.split("final").features(images).float() for each in (plain, fused))
    tolerance = 1e-3 if dtype is None else 0.05
    assert (one - two).abs().max() < tolerance * one.abs().max()
    assert (one - two).abs().max() > 0  # another kernel was at work


@pytest.mark.parametrize("layer", ["input", "final"])
@pytest.mark.parametrize("name", [name for name in pc.METHODS if name not in ("rise", "occlusion")])
@pytest.mark.filterwarnings("ignore:every map was constant")  # of gradients before average pooling
def test_methods_repeat_themselves_and_hardly_depend_on_precision_or_device(resnet, name, layer):
    (image,) = some_images(1, 96)
    params = {"relu": False} if "relu" in pc.METHODS[name].parameters() else {}
    explainer = pc.method(name, resnet, layer, **params)
    votes, again = (pc.sample(explainer, image, 3, n=60, tau=None, precision="float32") for _ in range(2))
    assert equal(votes, again)
    lower = pc.sample(explainer, image, 3, n=60, tau=None, precision="bfloat16")
    net = copy.deepcopy(resnet.net).cpu()
    slow = pc.Classifier(net, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), device="cpu")
    on_cpu = pc.sample(pc.method(name, slow, layer, **params), image, 3, n=60, tau=None)
    assert [each.provenance.precision for each in (votes, lower, on_cpu)] == ["float32", "bfloat16", "float32"]
    assert np.abs(votes.ones - on_cpu.ones).mean() < 0.6  # of 60 votes
    assert np.abs(votes.ones - lower.ones).mean() < 6


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 0.05), ("bfloat16", 0.3)])
def test_occlusion_is_tuned_to_run_on_crops_and_hardly_changes(resnet, precision, tolerance):
    occlusion = pc.method("occlusion", resnet, "input", window=32, stride=32)
    fast = occlusion.tuned(Tuning(precision=precision, compile=False))
    assert local_parts(fast.model, "input").parts
    images, targets = torch.stack(some_images(2, 224)).cuda(), torch.tensor([3, 5], device="cuda")
    maps, expected = fast(images, targets), occlusion(images, targets)
    torch.testing.assert_close(maps, expected, rtol=0, atol=tolerance * float(expected.abs().max()))


def test_batch_norms_are_folded_whatever_tf32_rounds():
    torch.manual_seed(0)
    model = pc.load_model("efficientnet_b0", weights=None, device="cuda")
    norms = [module for module in tuned(model, torch.bfloat16).net.modules() if "BatchNorm" in type(module).__name__]
    assert norms == []


def test_compiled_networks_give_the_same_votes_but_for_rounding(resnet):
    (image,) = some_images(1, 96)
    explainer = pc.method("grad_cam", resnet, "final", relu=False)
    eager = pc.sample(explainer, image, 3, n=60, tau=None, compile=False)
    compiled = pc.sample(explainer, image, 3, n=60, tau=None, compile=True)
    assert (eager.provenance.compiled, compiled.provenance.compiled) == (False, True)
    assert np.abs(eager.ones - compiled.ones).mean() < 3


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("layer", ["input", "final"])
@pytest.mark.parametrize("name", [name for name in pc.METHODS if name != "occlusion"])
@pytest.mark.filterwarnings("ignore:every map was constant")
def test_rounding_by_the_size_of_a_batch_is_not_taken_for_dependence(resnet, name, layer, precision):
    params = {"masks": 20} if name == "rise" else {}
    explainer = pc.method(name, resnet, layer, **params)
    for size in (1, 2, 40, 100):
        votes = pc.sample(explainer, some_images(1, 96)[0], 3, n=100, tau=None, precision=precision, batch_size=size)
        assert votes.complete


def test_a_network_that_mixes_its_batch_is_refused_and_the_images_before_are_kept():
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).cuda().eval()

    def mixing(images, targets):
        maps = net(images).sum(dim=1)
        return maps - (targets == 2)[:, None, None] * maps.mean(dim=0)

    subjects = [Subject(image.cuda(), target) for target, image in enumerate(some_images(3))]
    sampling = sample_each(PLAN, mixing, subjects, Tuning(30))
    assert [next(sampling).complete, next(sampling).complete] == [True, True]
    with pytest.raises(DependenceError, match="rest of the batch"):
        next(sampling)


def test_nan_is_ranked_first_whatever_its_sign():
    maps = torch.randn(4, 500, generator=torch.Generator().manual_seed(0))
    maps[:, ::5] = -torch.tensor(torch.nan)
    slow, fast = (Ranking.of(each, (25.0, 5.0), "signed", "rank").count().cpu() for each in (maps, maps.cuda()))
    assert torch.equal(slow, fast)


def test_flags_are_left_as_they_were(resnet):
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    pc.sample(pc.method("grad_cam", resnet), some_images(1, 64)[0], 3, n=20, tau=None, precision="tf32")
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == before


def test_interrupted_votes_are_resumed_to_those_of_an_uninterrupted_run(resnet):
    (image,) = some_images(1, 64)
    explainer = pc.method("grad", resnet, "input")

    def stop(done, planned):
        if done >= 20:
            raise KeyboardInterrupt

    with pytest.raises(pc.Interrupted) as caught:
        pc.sample(explainer, image, 3, n=60, tau=None, batch_size=10, progress=stop)
    begun = caught.value.votes
    assert 20 <= begun.counted < 60
    whole = pc.sample(explainer, image, 3, n=60, tau=None, batch_size=10)
    assert equal(begun.resume(explainer, image), whole)
