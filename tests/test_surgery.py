"""Surgery on networks: every fallback stands in the provenance, with its reason, and nothing falls back silently."""

from __future__ import annotations

import base64
import json
import re
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from small_networks import models, small_model
from small_studies import small_study
from torch import Tensor, nn
from torch.nn import functional as F

import pixelcert as pc
from pixelcert.attacks.gradients import surrogate_of
from pixelcert.explainer import Tuning, as_explainer
from pixelcert.models import folding, loading
from pixelcert.models.cropping import local_parts
from pixelcert.models.inspection import Step
from pixelcert.models.variants import for_grid, tuned
from pixelcert.plan import Plan
from pixelcert.sampling import loop, precision
from pixelcert.sampling.precision import settle
from pixelcert.sampling.sample import Subject, sample_each

SIDE = 16
IMAGE = torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory")

# ── Small networks ────────────────────────────────────────────────────────────────────────────────────────────────────


class Net(nn.Module):
    """Two convolutions, a batch norm, pooling and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
        self.conv2, self.last = nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()
        self.fc = nn.Linear(4, 5)

    def body(self, x: Tensor) -> Tensor:
        return self.last(self.conv2(self.relu(self.norm(self.conv(x)))))

    def head(self, x: Tensor) -> Tensor:
        return self.fc(x.mean(dim=(2, 3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def model_of(kind: Callable[[], nn.Module] = Net, size: int = SIDE, **settings: Any) -> pc.Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = kind()
    return pc.Classifier(net, mean=(0.5,) * 3, std=(0.25,) * 3, size=size, **settings)


class Branching(Net):
    """Asks what its values are, which a trace cannot answer."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if x.sum() > -1e9 else -x)


class Suspicious(Net):
    """Takes another way when it is traced."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (2.0 if isinstance(x, Tensor) else 1.0)


class Misled(Net):
    """Takes a way that no tensor can go when it is traced."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if isinstance(x, Tensor) else x.brightened())


class OneSize(Net):
    """Takes images of 16 × 16 only."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4 * SIDE * SIDE, 5)

    def head(self, x: Tensor) -> Tensor:
        return self.fc(x.flatten(1))


class TwoLayers(Net):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5))


class Warm(Net):
    """A temperature: the linear layer's answer is not yet the network's."""

    def head(self, x: Tensor) -> Tensor:
        return super().head(x) * 2


class LastTwice(Net):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.fc = nn.Linear(5, 4), nn.Linear(4, 5)

    def head(self, x: Tensor) -> Tensor:
        return self.fc(self.mix(self.fc(x.mean(dim=(2, 3)))))


class Centred(Net):
    """Begins with the mean of the whole image."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(dim=(2, 3), keepdim=True))


class Strided(Net):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)


class Tokens(nn.Module):
    """Features (B, T, C), as in a transformer, and a ReLU behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.tokens = nn.Conv2d(3, 4, 4, stride=4), nn.Flatten(2)
        self.mix, self.relu, self.fc = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.relu(self.mix(self.tokens(self.patches(x)).transpose(1, 2))).mean(dim=1))


class LookingAtTheNorm(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.norm.weight.sum()


class DoublingTheBias(Net):
    def body(self, x: Tensor) -> Tensor:
        return self.norm(F.conv2d(x, self.conv.weight, 2 * self.conv.bias, padding=1))


class NormFirst(Net):
    def body(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x).relu())


class OwnNorm(nn.BatchNorm2d):
    """A batch norm of somebody's own."""


class WithOwnNorm(Net):
    def __init__(self) -> None:
        super().__init__()
        self.norm = OwnNorm(4)


class NormTwice(Net):
    def body(self, x: Tensor) -> Tensor:
        return self.norm(self.conv2(self.norm(self.conv(x)).relu()))


class OfEveryKind(Net):
    """A batch norm to fold, one to leave, one of another class, and one behind the layer `third`."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.own, self.behind = nn.BatchNorm2d(4), OwnNorm(4), nn.BatchNorm2d(4)
        self.third, self.fourth = nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)

    def body(self, x: Tensor) -> Tensor:
        x = self.left(self.relu(self.norm(self.conv(x))))
        return self.relu(self.behind(self.third(self.own(self.fourth(x)))))


class Viewing(OneSize):
    """Views features as rows, which needs them in the usual layout."""

    def head(self, x: Tensor) -> Tensor:
        return self.fc(x.view(len(x), -1))


class Locked(Net):
    """Holds a lock, which cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = Lock()


class OnlyFloat32(Net):
    """Makes a tensor of its own, in float32 whatever its weights are in."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * torch.linspace(0, 1, x.shape[3]))


# ── Steps on a network stand in its votes ─────────────────────────────────────────────────────────────────────────────


class Case(NamedTuple):
    """A network, the way it is explained, and a step of surgery as its votes tell it."""

    net: type[nn.Module]
    method: str
    layer: str
    step: str
    told: str  # done, with the reason in brackets; it may go on after an ellipsis
    warned: str = ""  # part of the warning, where the cost doubles


NO_TRACE = "it cannot be traced: symbolically traced variables cannot be used as inputs to control flow"
BY_HOOKS = "is split by hooks at layer 'last' "
CASES = [
    Case(Net, "ixg", "last", "split", "traced"),
    Case(Branching, "ixg", "last", "split", f"hooks ({NO_TRACE})", f"{BY_HOOKS}({NO_TRACE})"),
    Case(Suspicious, "ixg", "last", "split", "hooks (its trace answers otherwise)", f"{BY_HOOKS}(its trace answers"),
    Case(
        *(Misled, "ixg", "last", "split", "hooks (its trace fails: 'Tensor' object has no attribute 'brightened')"),
        f"{BY_HOOKS}(its trace fails: 'Tensor' object",
    ),
    Case(Net, "ixg", "last", "head", "linear"),
    Case(Branching, "ixg", "last", "head", "run (the network is split by hooks)", BY_HOOKS),
    Case(TwoLayers, "ixg", "last", "head", "run (2 linear layers follow)"),
    Case(Warm, "ixg", "last", "head", "run (more than pooling, ReLUs and linear layers follows)"),
    Case(Net, "ixg", "conv2", "head", "run (it would answer otherwise)"),  # a ReLU follows
    Case(OneSize, "ixg", "last", "head", "run (untried: mat1 and mat2 shapes cannot be multiplied (4x50176 …"),
    Case(Net, "occlusion", "input", "crops", "1 parts"),
    Case(Branching, "occlusion", "input", "crops", f"no ({NO_TRACE})"),
    Case(Branching, "occlusion", "conv", "crops", "no (the network is split by hooks)", "hooks at layer 'conv'"),
    Case(Centred, "occlusion", "input", "crops", "no (no part of it is known to be local)"),
    Case(Suspicious, "occlusion", "input", "crops", "no (it would answer otherwise)"),
    Case(Net, "occlusion", "input", "crops at 16 × 16", "no (they would hold most of the map)"),
    Case(Tokens, "occlusion", "mix", "crops at 4 × 4", "no (its features are no maps)"),
    Case(Net, "grad", "input", "copied", "yes"),
    Case(Net, "grad", "input", "folded", "1 of 1"),
    Case(LookingAtTheNorm, "grad", "input", "folded", "no ('Identity' object has no attribute 'weight')"),
    Case(DoublingTheBias, "grad", "input", "folded", "no (it would answer otherwise)"),
    Case(NormFirst, "grad", "input", "folded", "0 of 1 (1 do not follow a plain convolution of their own)"),
    Case(WithOwnNorm, "grad", "input", "folded", "0 of 1 (1 are not plain modules that run once)"),
    Case(NormTwice, "grad", "input", "folded", "0 of 2 (2 are not plain modules that run once)"),
    Case(Net, "grad", "conv", "folded", "0 of 1 (1 lie behind conv)"),
    Case(
        *(OfEveryKind, "ixg", "third", "folded"),
        "1 of 4 (1 do not follow a plain convolution of their own, 1 are not plain modules that run once, "
        "1 lie behind third)",
        "hooks at layer 'third'",  # torch.fx runs the own norm on symbols
    ),
    Case(Net, "grad", "input", "layout", "channels last"),
    Case(Viewing, "grad", "input", "layout", "usual (channels last: view size is not compatible with input …"),
    Case(Net, "grad", "input", "kernels", "torch (not an NVIDIA GPU)"),
    Case(Net, "grad", "input", "bfloat16", "no (not an NVIDIA GPU)"),
    Case(Net, "grad", "input", "fused", "no (not an NVIDIA GPU)"),
    Case(Net, "gb", "input", "fused", "no (gb changes the network as it runs)"),
    Case(Locked, "ixg", "last", "copied", "no (cannot pickle '_thread.lock' object)"),
    Case(Locked, "ixg", "last", "head", "linear"),
]


def method(name: str, model: pc.Classifier, layer: str) -> Any:
    """A method whose maps are not constant on small images and features."""
    windows = {"input": {"window": 8, "stride": 4}, "mix": {"window": 2, "stride": 2}}
    return pc.method(name, model, layer, **(windows.get(layer, {}) if name == "occlusion" else {}))


def votes_of(explainer: Any, image: Tensor = IMAGE, **asked: Any) -> pc.Votes:
    return pc.sample(explainer, image, 0, n=4, levels=50, tau=None, **{"batch_size": 2, **asked})


def surgery_of(explainer: Any, image: Tensor = IMAGE, **asked: Any) -> Any:
    return votes_of(explainer, image, **asked).provenance.surgery


def begins(told: str, expected: str) -> bool:
    start, ellipsis, _ = expected.partition("…")
    return told.startswith(start) if ellipsis else told == expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.net.__name__}-{case.method}-{case.layer}-{case.step}")
def test_votes_tell_each_step_and_its_reason(case: Case) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", pc.PixelcertWarning)
        surgery = surgery_of(method(case.method, model_of(case.net), case.layer))
    said = [str(one.message) for one in caught if issubclass(one.category, pc.PixelcertWarning)]
    assert begins(surgery[case.step], case.told), surgery[case.step]
    assert len(said) == bool(case.warned), said
    assert all(case.warned in one for one in said)


def test_votes_of_a_plain_network_tell_all_that_was_tried_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "missing_for_compiling", lambda device: "")  # not every machine has a compiler
    common = {
        "bfloat16": "no (not an NVIDIA GPU)",
        "compiled": "no (not an NVIDIA GPU)",
        "kernels": "torch (not an NVIDIA GPU)",
        "copied": "yes",
        "folded": "1 of 1",
        "layout": "channels last",
        "fused": "no (not an NVIDIA GPU)",
    }
    model = model_of()
    model.split("last")
    local_parts(tuned(model, layer="last"), "last")  # Occlusion may have asked; others tell nothing of crops
    assert surgery_of(pc.method("grad", model, "input")) == common
    assert surgery_of(pc.method("ixg", model, "last")) == common | {"split": "traced", "head": "linear"}
    asked = surgery_of(pc.method("grad", model, "input"), precision="float32", compile=False)
    assert asked == {name: told for name, told in common.items() if name not in ("bfloat16", "compiled")}


def test_a_network_for_another_size_than_told_is_recorded_as_untried() -> None:
    model = model_of(OneSize, size=32)
    with pytest.warns(pc.PixelcertWarning, match="error on an image of its own size, 32 × 32"):
        surgery = surgery_of(pc.method("occlusion", model, "conv"))
    unfit = "mat1 and mat2 shapes cannot be multiplied (1x4096 and 1024x5)"
    assert surgery["split"] == f"traced (untried: {unfit})"
    assert surgery["crops"] == f"no (untried: {unfit})"
    assert surgery["layout"] == f"usual (untried: {unfit})"
    assert surgery["folded"] == f"no ({unfit})"


def test_halves_on_the_meta_device_are_recorded_as_untried() -> None:
    model = model_of().to("meta")
    model.split("last")
    assert str(model.surgery("last")["split"]) == "traced (untried: the meta device holds no values)"
    assert pc.method("ixg", model, "last").surgery["head"] == "run (untried: the meta device holds no values)"


def test_crops_whose_stride_does_not_divide_the_map_are_recorded() -> None:
    explainer = pc.method("occlusion", model_of(Strided), "input", window=4, stride=4)
    surgery = surgery_of(explainer, torch.rand(3, 15, 15))
    assert surgery["crops"] == "1 parts"
    assert surgery["crops at 15 × 15"].startswith("no (the stride does not divide the map")


def test_each_image_tells_of_crops_at_its_own_size_though_the_next_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where the next image's first batch is queued before this one's last is done."""
    monkeypatch.setattr(loop, "_ahead", lambda task: 1)
    subjects = [Subject(torch.rand(3, side, side), 0) for side in (16, 20)]
    explainer = pc.method("occlusion", model_of(), "input", window=12, stride=4)
    for _ in range(2):  # the second time without checks, which would explain the first image once more
        found = list(sample_each(Plan(n=4, levels=(50,)), explainer, subjects, Tuning(4)))
    steps = [[step for step in votes.provenance.surgery or {} if "crops at" in step] for votes in found]
    assert steps == [["crops at 16 × 16"], ["crops at 20 × 20"]]


def test_steps_are_known_before_the_first_image(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = pc.method("ixg", model_of(), "last")
    expected = surgery_of(explainer)

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "explain", stop)
    with pytest.raises(pc.Interrupted) as stopped:
        votes_of(explainer)
    assert stopped.value.votes.counted == 0
    assert stopped.value.votes.provenance.surgery == expected


@pytest.mark.parametrize(
    ("net", "told"),
    [
        (Net, "float32"),
        (Warm, "bfloat16 (no linear layer that runs once makes them)"),
        (LastTwice, "bfloat16 (no linear layer that runs once makes them)"),
    ],
)
def test_votes_in_bfloat16_tell_the_format_of_the_logits(net: type[nn.Module], told: str) -> None:
    surgery = surgery_of(pc.method("grad", model_of(net)), precision="bfloat16")
    assert surgery["logits"] == told
    assert "bfloat16" not in surgery, "it was asked for, and done"


def test_a_black_box_tells_of_the_machine_only() -> None:
    surgery = surgery_of(lambda images, targets: images[:, 0])
    black_box = "no (a black box cannot be compiled from outside: compile its network yourself)"
    assert surgery == {"compiled": black_box, "kernels": "torch (not an NVIDIA GPU)"}


# ── Fusing ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def convolve(inputs: Tensor, weight: Tensor, other: Tensor | None, bias: Any, options: Any) -> Tensor:
    """What cuDNN's kernel computes."""
    answer = F.conv2d(inputs, weight, bias, *options)
    return F.relu(answer if other is None else answer + other)


class NoReLU(Net):
    def body(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


KERNELS = {
    "sound": convolve,
    "wrong": lambda *given: convolve(*given) + 1,
    "missing": folding.convolve_add_relu,  # cuDNN's own, which no CPU has
}


@pytest.mark.parametrize(
    ("net", "layer", "kernel", "told"),
    [
        (Net, "input", "sound", "yes"),
        (Net, "last", "sound", "yes"),
        (Net, "input", "wrong", "no (it would answer otherwise)"),
        (Net, "input", "missing", "no (Could not run 'aten::cudnn_convolution_relu' with arguments from the 'CPU' …"),
        (NoReLU, "input", "sound", "no (no convolution feeds only a ReLU)"),
        (Branching, "input", "sound", f"no ({NO_TRACE})"),
        (Branching, "last", "sound", "no (the network is split by hooks)"),
    ],
)
def test_a_copy_to_be_fused_tells_whether_it_is(net, layer, kernel, told, monkeypatch) -> None:
    monkeypatch.setattr(folding, "convolve_add_relu", KERNELS[kernel])
    fast = tuned(model_of(net), layer=layer, fused=True)
    fast.split(layer)
    assert begins(str(fast.surgery(layer)["fused"]), told), fast.surgery(layer)["fused"]


@pytest.mark.parametrize(("kernel", "told"), [("sound", "yes"), ("wrong", "no (it would answer otherwise)")])
def test_crops_of_a_fused_copy_tell_whether_they_are_fused_too(kernel, told, monkeypatch) -> None:
    monkeypatch.setattr(folding, "convolve_add_relu", KERNELS[kernel])
    fast = tuned(model_of(), fused=True)
    local_parts(fast, "input")
    assert str(fast.surgery("input")["fused crops"]) == told


def test_a_compiled_copy_tells_that_it_is_not_fused(monkeypatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    fast = pc.method("grad", model_of()).tuned(Tuning(1, "float32", True))
    assert fast.surgery["fused"] == "no (compiled instead)"


# ── What "auto" does not do ───────────────────────────────────────────────────────────────────────────────────────────

CPU, GPU = torch.device("cpu"), torch.device("cuda")
LONG, SHORT = 10_000_000, 1000  # passes of the network, for which compiling pays or not


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine that torch takes for one with a GPU: its capability, and what it lacks for compiling."""
    machine = SimpleNamespace(capability=(9, 0), lacks="")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: machine.capability)
    monkeypatch.setattr(torch, "compile", lambda function: function)
    monkeypatch.setattr(precision, "tf32_allowed", lambda: (False, False))
    for place in ("pixelcert.sampling.precision", "pixelcert.basics.machine"):
        monkeypatch.setattr(f"{place}.missing_for_compiling", lambda device: machine.lacks)
    return machine


def settled(name: str, net: type[nn.Module] = Net, passes: int = LONG, device: torch.device = GPU) -> Any:
    return settle(pc.method(name, model_of(net)), Tuning(1), device, IMAGE.numel(), passes)


def test_auto_that_does_all_it_can_has_nothing_to_tell(gpu) -> None:
    found = settled("grad")
    assert (found.tuning, found.steps) == (Tuning(1, "bfloat16", True), {})


def test_a_gpu_without_bfloat16_is_told(gpu) -> None:
    gpu.capability = (7, 5)
    found = settled("grad")
    assert (found.tuning.precision, found.steps) == ("float32", {"bfloat16": "no (the GPU has no bfloat16)"})


@pytest.mark.parametrize(
    ("name", "net", "why"),
    [
        ("grad_cam_pp", Net, "the method's certificates would change"),
        ("grad", OnlyFloat32, "OnlyFloat32 cannot compute in torch.bfloat16 (…"),
        ("grad", Locked, "Locked cannot be copied (cannot pickle '_thread.lock' object), but another …"),
    ],
)
def test_auto_that_stays_with_float32_tells_why(name, net, why, gpu) -> None:
    found = settle(pc.method(name, model_of(net), "input"), Tuning(1, compile=False), GPU, IMAGE.numel())
    assert found.tuning.precision == "float32"
    assert begins(found.steps["bfloat16"], f"no ({why})"), found.steps


@pytest.mark.parametrize(
    ("name", "net", "passes", "device", "lacks", "why"),
    [
        ("grad", Net, LONG, CPU, "", "not an NVIDIA GPU"),
        ("grad", Net, SHORT, GPU, "", "the wait would not pay"),
        ("occlusion", Net, LONG, GPU, "", "occlusion runs the network at many sizes"),
        ("lrp", Net, LONG, GPU, "", "lrp changes functions of the network as it runs, which a compiler does not see"),
        ("grad", Net, LONG, GPU, "no Triton", "no Triton"),
        ("grad", Locked, LONG, GPU, "", "Locked cannot be copied (cannot pickle '_thread.lock' object), but another …"),
    ],
)
def test_auto_that_does_not_compile_tells_why(name, net, passes, device, lacks, why, gpu) -> None:
    gpu.lacks = lacks
    found = settled(name, net, passes, device)
    assert found.tuning.compile is False
    assert begins(found.steps["compiled"], f"no ({why})"), found.steps


def test_noise_and_counts_by_torch_are_told(gpu) -> None:
    assert "kernels" not in settled("grad").steps
    gpu.lacks = "compiling for this GPU needs Triton: pip install triton"
    assert settled("grad").steps["kernels"] == f"torch ({gpu.lacks})"
    box = as_explainer(lambda images, targets: images[:, 0])
    assert settle(box, Tuning(1), GPU, IMAGE.numel()).steps["kernels"] == f"torch ({gpu.lacks})"


# ── Grids ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Pooled(Net):
    """A fully connected head with weights for 4 × 4 positions."""

    def __init__(self, *between: nn.Module, pools: int = 1) -> None:
        super().__init__()
        self.pools = nn.Sequential(*(nn.AdaptiveAvgPool2d(4) for _ in range(pools)))
        self.fc = nn.Sequential(*between, nn.Linear(64, 5))

    def head(self, x: Tensor) -> Tensor:
        return self.fc(self.pools(x).flatten(1))


@pytest.mark.parametrize(
    ("make", "told", "warned"),
    [
        (Net, "same network", ""),
        (Pooled, "sliding head", ""),
        (lambda: Pooled(pools=2), "same network (the head cannot slide: it has several such heads)", "several such"),
        (
            lambda: Pooled(nn.LayerNorm(64)),
            "same network (the head cannot slide: more than pooling, ReLUs and linear layers follows)",
            r"cannot slide \(more than pooling",
        ),
        (OneSize, "resized (mat1 and mat2 shapes cannot be multiplied (1x4096 and 1024x5))", ""),
    ],
    ids=["any size", "sliding", "several pools", "layer norm", "one size"],
)
def test_votes_of_a_grid_tell_how_the_network_sees_it(make, told, warned) -> None:
    model = model_of(make)
    if warned:
        with pytest.warns(pc.PixelcertWarning, match=warned):
            larger = for_grid(model, 2 * SIDE)
    else:
        larger = for_grid(model, 2 * SIDE)
    surgery = surgery_of(pc.method("grad", larger), torch.rand(3, larger.size, larger.size))
    assert surgery["grid"] == told
    assert surgery["copied"] == "yes", "the steps on the copy come after"
    assert "grid" not in surgery_of(pc.method("grad", model))


def test_a_head_that_slides_at_one_size_is_told_to_slide_at_others() -> None:
    sliding = for_grid(model_of(Pooled), 2 * SIDE)
    assert str(for_grid(sliding, 3 * SIDE).surgery("input")["grid"]) == "sliding head"


@pytest.mark.parametrize("make", [Net, Pooled, OneSize])
def test_what_was_done_to_a_network_before_stays_on_record(make) -> None:
    larger = for_grid(model_of(make, steps=[Step("quantised", "no", "asked not to")]), 2 * SIDE)
    assert surgery_of(pc.method("grad", larger), torch.rand(3, larger.size, larger.size))["quantised"] == (
        "no (asked not to)"
    )


def test_jobs_of_a_study_tell_that_their_grid_is_resized(tmp_path: Path) -> None:
    study = small_study(tmp_path, models=["vit"], model={"vit": {"model": "small_studies:vit"}}, grids={"count": 1},
                        images={"folder": "photos", "confidence": 0.0})  # fmt: skip
    materials = study.materials(study.resolve("cpu"), "cpu")
    image, grid = (next(job for job in study.jobs() if job.scene.kind == kind) for kind in ("image", "grid"))
    assert materials.image(grid).shape[-1] == small_model("vit").size
    assert materials.explainer(grid).surgery["grid"].startswith("resized (Wrong image height! Expected 64 but got 128")
    assert "grid" not in materials.explainer(image).surgery


# ── Memory ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


class Hungry:
    """Sums of channels, for at most `most` images at once after the first `calls` calls."""

    def __init__(self, calls: int = 0, most: int = 4) -> None:
        self.calls, self.most = calls, most

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        self.calls -= 1
        if self.calls < 0 and len(images) > self.most:
            raise OUT_OF_MEMORY
        return images.sum(dim=1)


@pytest.mark.usefixtures("unchecked")
def test_every_halving_is_told_with_its_first_sample() -> None:
    votes = pc.sample(Hungry(2, most=3), IMAGE, 0, n=30, levels=50, batch_size=8, tau=None)
    assert votes.provenance.batches == [[0, 8], [16, 2]]
    assert votes.provenance.batch_size == 2


@pytest.mark.usefixtures("unchecked")
def test_images_that_share_batches_tell_the_sizes_each_was_counted_in() -> None:
    plan, subjects = Plan(n=12, levels=(50,)), [Subject(IMAGE, 0) for _ in range(3)]
    found = list(sample_each(plan, Hungry(2, most=4), subjects, Tuning(8)))
    assert [votes.provenance.batches for votes in found] == [[[0, 8]], [[0, 8], [4, 4]], [[0, 4]]]


def stopped(explainer: Any, **asked: Any) -> pc.Votes:
    """Return votes that were interrupted after their first batch."""

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(pc.Interrupted) as caught:
        votes_of(explainer, progress=stop, **asked)
    return caught.value.votes


@pytest.mark.parametrize(
    ("known", "size", "told"), [(True, 2, [[0, 2]]), (True, 1, [[0, 2], [2, 1]]), (False, 2, [[2, 2]])]
)
def test_resumed_votes_go_on_with_the_list_of_batches(known: bool, size: int, told: list[list[int]]) -> None:
    explainer = pc.method("grad", model_of())
    votes = stopped(explainer)
    if not known:
        votes = replace(votes, provenance=replace(votes.provenance, batches=None))
    assert votes.resume(explainer, IMAGE, batch_size=size).provenance.batches == told


def test_memory_that_runs_out_on_the_way_to_a_device_is_no_unusable_device(monkeypatch) -> None:
    model = model_of()
    monkeypatch.setattr(model.net, "to", failing(OUT_OF_MEMORY))
    with pytest.raises(torch.OutOfMemoryError):
        model.to("cuda")


@pytest.mark.parametrize("error", [OUT_OF_MEMORY, MemoryError(), OSError(12, "Cannot allocate memory")], ids=repr)
def test_memory_that_runs_out_as_weights_are_read_is_no_damaged_file(error, monkeypatch, tmp_path) -> None:
    file = tmp_path / "weights.safetensors"
    file.touch()
    monkeypatch.setattr(loading, "load_file", failing(error))
    with pytest.raises(type(error)):
        pc.load_model("squeezenet1_1", file, device="cpu")


def test_memory_that_runs_out_as_weights_are_copied_is_no_file_of_another_model(monkeypatch, tmp_path) -> None:
    net = models.squeezenet1_1()
    torch.save(net.state_dict(), file := tmp_path / "weights.pth")
    monkeypatch.setattr(models, "get_model", lambda name, weights: net)
    monkeypatch.setattr(Tensor, "copy_", failing(OUT_OF_MEMORY))  # torch makes it a RuntimeError of its own
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        pc.load_model("squeezenet1_1", file, device="cpu")
    assert not isinstance(caught.value, pc.PixelcertError)


class Counted(Net):
    """Runs out of memory in the pass `fails_at`, in itself and in its copies, and when it is traced."""

    passes = 0
    fails_at = -1

    def forward(self, x: Tensor) -> Tensor:
        Counted.passes += 1
        if Counted.passes == Counted.fails_at:
            raise OUT_OF_MEMORY
        return super().forward(x)


def all_of_surgery(dtype: torch.dtype | None) -> Iterator[Any]:
    model = model_of(Counted)
    yield for_grid(model, 2 * SIDE)
    for layer in ("input", "conv2"):
        fast = tuned(model, dtype, layer=layer, fused=True)
        yield pc.method("occlusion", model, layer).surgery
        yield pc.method("occlusion", fast, layer).surgery


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_memory_that_runs_out_in_any_trial_passes_through(dtype: torch.dtype | None) -> None:
    Counted.passes, Counted.fails_at = 0, -1
    list(all_of_surgery(dtype))
    passes = Counted.passes
    assert passes > 15
    for fails_at in range(1, passes + 1):
        Counted.passes, Counted.fails_at = 0, fails_at
        with pytest.raises(torch.OutOfMemoryError):
            list(all_of_surgery(dtype))


def test_memory_that_runs_out_in_an_attack_is_no_map_without_a_slope() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        surrogate_of(as_explainer(Hungry(0, most=0)), IMAGE, 0)


# ── Votes with another surgery ────────────────────────────────────────────────────────────────────────────────────────


def test_votes_whose_network_takes_another_surgery_now_are_not_resumed(tmp_path: Path) -> None:
    explainer = pc.method("grad", model := model_of())
    votes = pc.Votes.load(stopped(explainer).save(tmp_path / "votes.safetensors"))
    model.net.conv.register_forward_hook(lambda module, given, answer: answer + 0)  # no hash sees it
    why = "0 of 1 (1 do not follow a plain convolution of their own)"
    with pytest.raises(pc.ArgumentError, match=re.escape(f"resumed: folded was '1 of 1', now '{why}'. Sample again")):
        votes.resume(explainer, IMAGE)


@pytest.mark.parametrize("step", ["copied", "folded", "layout", "fused", "split", "head"])
def test_each_step_is_compared_by_its_name(step: str) -> None:
    explainer = pc.method("ixg", model_of(), "last")
    votes = stopped(explainer)
    source = votes.provenance
    changed = replace(votes, provenance=replace(source, surgery={**source.surgery, step: "otherwise"}))
    with pytest.raises(pc.ArgumentError, match=f"cannot be resumed: {step} was 'otherwise', now"):
        changed.resume(explainer, IMAGE)


@pytest.mark.parametrize("unknown", ["folded", "all"])
def test_votes_of_an_older_file_resume_though_their_steps_are_unknown(unknown: str, tmp_path: Path) -> None:
    explainer = pc.method("ixg", model_of(), "last")
    votes = stopped(explainer)
    surgery = dict(votes.provenance.surgery or {})
    known = None if unknown == "all" else {name: told for name, told in surgery.items() if name != unknown}
    older = replace(votes, provenance=replace(votes.provenance, surgery=known))
    resumed = pc.Votes.load(older.save(tmp_path / "votes.safetensors")).resume(explainer, IMAGE)
    assert resumed.complete
    assert resumed.provenance.surgery["folded"] == surgery["folded"]


def test_steps_that_only_one_of_two_knows_make_no_difference(make_votes) -> None:
    source = make_votes().provenance
    known, other = (replace(source, surgery={"folded": told, told: "yes"}) for told in ("1 of 1", "0 of 1"))
    assert source.differences(known) == known.differences(source) == []
    assert known.differences(other) == ["folded was '1 of 1', now '0 of 1'"]


# ── Shown ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def make_branching() -> pc.Classifier:
    return model_of(Branching, name="branching")


def facts_on(page: str) -> list[dict[str, str]]:
    """Return the facts of every entry of a page."""
    chunks = re.findall(r'<script[^>]*id="counts-[0-9a-f]{20}"[^>]*>([^<]*)<', page)
    lines = [zlib.decompress(base64.b64decode(chunk)).partition(b"\n")[0] for chunk in chunks]
    return [json.loads(line)["facts"] for line in lines]


@pytest.mark.usefixtures("cat")
def test_json_and_the_page_show_every_step(pixelcert, tmp_path: Path) -> None:
    asked = ("--model", "test_surgery:make_branching", "--method", "occlusion", "--layer", "last", "--target", 0)
    run = pixelcert("certify", "cat.png", *asked, "-n", 44, "--batch-size", 11, "--no-picture", "--json")
    assert run.code == 0, run.said
    (result,) = json.loads(run.out)
    told = result["provenance"]["surgery"]
    assert told["split"] == f"hooks ({NO_TRACE})"
    assert told["crops"] == "no (the network is split by hooks)"
    assert told == pc.Votes.load(tmp_path / result["votes"]).provenance.surgery
    assert "branching is split by hooks" in run.err
    assert pixelcert("report", result["votes"], "-o", "page.html").code == 0
    (facts,) = facts_on((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert set(facts["Network"].split("; ")) == {f"{name}: {step}" for name, step in told.items()}
    assert facts["Batches"] == "11 from sample 0"


def test_the_page_says_that_steps_of_an_older_file_are_unknown(make_votes, tmp_path: Path) -> None:
    from pixelcert.report import write_page

    (facts,) = facts_on(write_page(tmp_path / "page.html", [make_votes()]).page.read_text(encoding="utf-8"))
    assert (facts["Network"], facts["Batches"]) == ("unknown", "unknown")
