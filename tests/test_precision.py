"""Tuning: what "auto" stands for, what is refused and how, and flags that are put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pixelcert as pc
from pixelcert.basics import machine as compilers
from pixelcert.explainer import Tuning, as_explainer
from pixelcert.plan import Plan
from pixelcert.sampling import independence, loop
from pixelcert.sampling import precision as tuning
from pixelcert.sampling.precision import rounding, settle, settle_as
from pixelcert.sampling.sample import Subject, differences, sample_each

CPU, GPU = torch.device("cpu"), torch.device("cuda")
LONG = 10_000_000  # network runs, for which compiling pays
IMAGE = torch.rand(3, 12, 12, generator=torch.Generator().manual_seed(0))


def explainer(name: str = "grad", dtype: torch.dtype = torch.float32, layer: str | None = None) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5))
    model = pc.Classifier(net.to(dtype), mean=(0.5,) * 3, std=(0.25,) * 3, final="1", size=12)
    return pc.method(name, model, layer)


def black_box(images: Tensor, targets: Tensor) -> Tensor:
    return images[:, 0]


class BlackBoxWithModel:
    """Tells its model, and cannot be tuned."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.model = explainer(dtype=dtype).model

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        return images[:, 0]


Flags = tuple[bool, bool, bool]


def flags() -> Flags:
    """TF32 in convolutions, TF32 in products, and convolutions that repeat themselves."""
    cudnn = torch.backends.cudnn
    return cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32, cudnn.deterministic


def set_flags(values: Flags) -> None:
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    cudnn.allow_tf32, products.allow_tf32, cudnn.deterministic = values


@pytest.fixture
def torch_flags() -> Iterator[None]:
    """Puts the flags back, for tests that set them."""
    found = flags()
    yield
    set_flags(found)


@pytest.fixture
def gpu(monkeypatch, torch_flags) -> Callable[[tuple[int, int]], None]:
    """Makes torch speak of a GPU of some capability, with a compiler and without TF32 asked for."""

    def of(capability: tuple[int, int]) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)

    of((9, 0))
    monkeypatch.setattr(tuning, "missing_for_compiling", lambda device: "")
    set_flags((False, False, False))
    return of


def settled(given: Any, device: torch.device, asked: Tuning, passes: float = 0) -> Tuning:
    return settle(as_explainer(given), asked, device, IMAGE.numel(), passes).tuning


# ── Precision ─────────────────────────────────────────────────────────────────────────────────────────────────────


def precision(given: Any, device: torch.device, asked: str) -> str:
    return settled(given, device, Tuning(precision=asked, compile=False)).precision


def test_auto_is_float32_on_a_cpu():
    assert settled(explainer(), CPU, Tuning(4), LONG) == Tuning(4, "float32", False)


@pytest.mark.parametrize(
    ("capability", "expected"), [((9, 0), "bfloat16"), ((8, 0), "bfloat16"), ((7, 5), "float32"), ((7, 0), "float32")]
)
def test_auto_is_bfloat16_on_gpus_that_have_it(gpu, capability, expected):
    gpu(capability)
    assert precision(explainer(), GPU, "auto") == expected


@pytest.mark.parametrize(("layer", "expected"), [("input", "float32"), ("final", "bfloat16")])
def test_auto_is_float32_for_methods_that_do_not_bear_bfloat16(gpu, layer, expected):
    assert precision(explainer("grad_cam_pp", layer=layer), GPU, "auto") == expected


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("device", [CPU, GPU])
def test_auto_leaves_black_boxes_and_other_formats_as_they_are(device):
    assert precision(black_box, device, "auto") == "float32"
    assert precision(BlackBoxWithModel(torch.bfloat16), device, "auto") == "bfloat16"
    assert precision(explainer(dtype=torch.float64), device, "auto") == "float64"
    assert precision(explainer(dtype=torch.bfloat16), device, "auto") == "bfloat16"


def test_a_black_box_on_a_gpu_rounds_as_torch_is_told_to(gpu):
    set_flags((True, True, False))
    assert precision(black_box, GPU, "auto") == "float32, tf32 convolutions, tf32 products"
    assert precision(explainer(), GPU, "auto") == "bfloat16"
    gpu((7, 5))
    assert precision(explainer(), GPU, "auto") == "float32"


def test_auto_leaves_autocast_as_it_is():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert precision(explainer(), CPU, "auto") == "float32, autocast"


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("given", "device", "asked"),
    [
        (explainer(), CPU, "float32"),
        (explainer(), CPU, "bfloat16"),
        (explainer(), GPU, "float32"),
        (explainer(), GPU, "tf32"),
        (explainer(), GPU, "bfloat16"),
        (explainer("grad_cam_pp", layer="input"), GPU, "bfloat16"),
        (black_box, CPU, "float32"),
        (black_box, GPU, "tf32"),
        (explainer(dtype=torch.bfloat16), CPU, "bfloat16"),
    ],
)
def test_what_is_asked_for_is_what_one_gets(given, device, asked):
    assert precision(given, device, asked) == asked


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("given", "device", "asked", "words"),
    [
        (explainer(), CPU, "float64", ["precision='float64'", "auto, float32, tf32, bfloat16"]),
        (explainer(), CPU, "tf32", ["precision='tf32'", "cpu", "use float32"]),
        (black_box, CPU, "tf32", ["precision='tf32'", "cpu", "use float32"]),
        (explainer(dtype=torch.float64), CPU, "float32", ["precision='float32'", "float64", "use auto"]),
        (explainer(dtype=torch.float64), CPU, "bfloat16", ["precision='bfloat16'", "float64", "use auto"]),
        (explainer(dtype=torch.float64), GPU, "tf32", ["precision='tf32'", "float64", "use auto"]),
        (explainer(dtype=torch.bfloat16), CPU, "float32", ["precision='float32'", "bfloat16", "use auto"]),
        (black_box, CPU, "bfloat16", ["precision='bfloat16'", "black box", "cast its network", "auto"]),
        (black_box, GPU, "bfloat16", ["precision='bfloat16'", "black box", "cast its network", "auto"]),
    ],
)
def test_what_cannot_be_had_is_refused_with_a_remedy(given, device, asked, words):
    with pytest.raises(pc.ArgumentError) as refused:
        settled(given, device, Tuning(precision=asked), LONG)
    assert [word for word in words if word not in str(refused.value)] == []


@pytest.mark.parametrize("asked", ["float32", "bfloat16"])
def test_a_precision_under_autocast_is_refused(asked):
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(pc.ArgumentError, match="autocast: use auto"):
        precision(explainer(), CPU, asked)


# ── Compiling ─────────────────────────────────────────────────────────────────────────────────────────────────────


def compiled(given: Any, device: torch.device, asked: Any, runs: float = LONG) -> bool:
    return settled(given, device, Tuning(compile=asked), runs).compile is True


@pytest.mark.usefixtures("gpu")
def test_auto_compiles_on_a_gpu_when_the_wait_pays():
    assert compiled(explainer(), GPU, "auto")
    assert not compiled(explainer(), GPU, "auto", runs=1000)
    assert not compiled(explainer(), CPU, "auto")
    assert not compiled(explainer(), GPU, False)


@pytest.mark.usefixtures("gpu")
def test_auto_does_not_compile_for_crops_of_many_sizes():
    assert not compiled(explainer("occlusion"), GPU, "auto")
    assert compiled(explainer("occlusion"), GPU, True)
    assert compiled(explainer("rise"), GPU, "auto")


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("device", [CPU, GPU])
def test_compiling_that_is_asked_for_is_done_however_short_the_run(device):
    assert compiled(explainer(), device, True, runs=1)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (black_box, ["black box", "compile its network yourself"]),
        (explainer("gb"), ["gb", "functions of the network"]),
        (explainer("lrp"), ["lrp", "functions of the network"]),
    ],
)
def test_what_cannot_be_compiled_is_refused_and_left_by_auto(given, words):
    assert not compiled(given, GPU, "auto")
    assert not compiled(given, GPU, False)
    with pytest.raises(pc.ArgumentError) as refused:
        compiled(given, GPU, True)
    assert [word for word in ["compile=True", '"auto"', *words] if word not in str(refused.value)] == []


def test_compiling_without_a_compiler_is_refused_and_left_by_auto(gpu, monkeypatch):
    monkeypatch.setattr(tuning, "missing_for_compiling", lambda device: f"no compiler on {device}: install one")
    assert not compiled(explainer(), GPU, "auto")
    for device in (CPU, GPU):
        with pytest.raises(
            pc.ArgumentError, match=rf'compile=True: no compiler on {device}: install one, or use "auto"'
        ):
            compiled(explainer(), device, True)


@pytest.mark.parametrize("asked", ["yes", None, 2, "Auto"])
def test_another_word_for_compile_is_refused(asked):
    with pytest.raises(pc.ArgumentError, match=r'compile=.* is not known: use True, False or "auto"'):
        compiled(explainer(), CPU, asked)


@pytest.fixture
def machine(monkeypatch) -> Iterator[Callable[..., None]]:
    """A machine that has just these programs and packages."""

    def has(*programs: str, packages: tuple[str, ...] = (), environment: dict[str, str] | None = None) -> None:
        compilers.missing_for_compiling.cache_clear()
        monkeypatch.setattr(compilers.shutil, "which", lambda name: f"/bin/{name}" if name in programs else None)
        monkeypatch.setattr(compilers, "find_spec", lambda name: object() if name in packages else None)
        monkeypatch.setattr(compilers.os, "environ", environment or {})

    yield has
    compilers.missing_for_compiling.cache_clear()


def test_a_compiler_is_looked_for_under_its_usual_names_and_in_the_environment(machine):
    for program in ("cc", "gcc", "clang", "c++", "g++"):
        machine(program)
        assert compilers.missing_for_compiling(CPU) == ""
    machine("icc")
    assert compilers.missing_for_compiling(CPU) == "compiling needs a C compiler: install one, such as gcc"
    machine("icc", environment={"CC": "icc"})
    assert compilers.missing_for_compiling(CPU) == ""
    machine("icpc", environment={"CXX": "icpc"})
    assert compilers.missing_for_compiling(CPU) == ""


def test_a_gpu_needs_triton_too(machine):
    machine("gcc")
    assert "pip install triton" in compilers.missing_for_compiling(GPU)
    assert not compilers.can_run_triton(GPU)
    machine(packages=("triton",))
    assert "C compiler" in compilers.missing_for_compiling(GPU)
    assert not compilers.can_run_triton(GPU)
    machine("gcc", packages=("triton",))
    assert compilers.missing_for_compiling(GPU) == ""
    assert compilers.can_run_triton(GPU)
    assert not compilers.can_run_triton(CPU)


# ── Explainers that are tuned ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bfloat16", torch.bfloat16), ("float32", torch.float32), ("tf32", torch.float32)]
)
def test_the_tuned_explainer_computes_so(precision, dtype):
    given = explainer(layer="0")
    fast = given.tuned(Tuning(1, precision, False))
    assert fast.model.net[0].weight.dtype == dtype
    assert fast is not given


def test_a_tuning_that_compiles_gives_a_compiled_explainer(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function: function)
    assert explainer().tuned(Tuning(1, "float32", True)).model.compiled
    assert not explainer().tuned(Tuning(1, "float32", False)).model.compiled


def test_a_model_of_another_format_keeps_it_when_tuned():
    assert explainer(dtype=torch.float64).tuned(Tuning(1, "float64", False)).model.net[0].weight.dtype == torch.float64


def test_a_black_box_stays_what_it_is():
    wrapped = as_explainer(black_box)
    assert wrapped.tuned(Tuning(1, "float32", False)) is wrapped


# ── Votes of earlier ──────────────────────────────────────────────────────────────────────────────────────────────


def test_tuning_of_votes_is_that_of_their_provenance(make_votes):
    source = make_votes().provenance
    for tuned in (Tuning(16, "bfloat16", True), Tuning(16, "float32", False), Tuning(16, "tf32", True)):
        told = replace(source, precision=tuned.precision, compiled=tuned.compile)
        assert settle_as(told, explainer(), CPU, None) == tuned
        assert settle_as(told, explainer(), CPU, 3) == replace(tuned, batch_size=3)


def test_tuning_of_a_black_box_or_another_format_is_what_it_is_now(make_votes):
    source = replace(make_votes().provenance, precision="bfloat16", compiled=True)
    assert settle_as(source, as_explainer(black_box), CPU, None) == Tuning(16, "float32", False)
    with_model = as_explainer(BlackBoxWithModel(torch.float64))
    assert settle_as(source, with_model, CPU, None) == Tuning(16, "float64", False)
    told = replace(source, precision="float64")
    assert settle_as(told, explainer(dtype=torch.float64), CPU, None) == Tuning(16, "float64", False)


def stopping_after(calls: int) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        nonlocal calls
        calls -= 1
        if calls == 0:
            raise KeyboardInterrupt

    return progress


def interrupted(given: Any, **settings: Any) -> pc.Votes:
    with pytest.raises(pc.Interrupted) as stop:
        pc.sample(given, IMAGE, 1, n=60, batch_size=10, progress=stopping_after(2), tau=None, **settings)
    assert stop.value.votes.counted == 20
    return stop.value.votes


@pytest.mark.parametrize("asked", ["bfloat16", "float32"])
def test_resuming_goes_on_in_the_precision_of_the_votes(asked, tmp_path):
    given = explainer()
    whole = pc.sample(given, IMAGE, 1, n=60, batch_size=10, precision=asked, tau=None)
    assert whole.provenance.precision == asked
    partial = pc.Votes.load(interrupted(given, precision=asked).save(tmp_path / "part.safetensors"))
    resumed = partial.resume(given, IMAGE)
    assert resumed.provenance.precision == asked
    np.testing.assert_array_equal(resumed.ones, whole.ones)
    np.testing.assert_array_equal(resumed.predictions, whole.predictions)


def test_precisions_are_different_functions():
    given = explainer()
    exact, rough = (pc.sample(given, IMAGE, 1, n=60, precision=name, tau=None) for name in ("float32", "bfloat16"))
    assert (exact.ones != rough.ones).any()
    (difference,) = exact.provenance.differences(rough.provenance)
    assert difference == "precision was 'float32', now 'bfloat16'"


def test_compiling_is_recorded_and_resumed(monkeypatch):
    calls = []

    def compiling(function: Any) -> Any:
        calls.append(function)
        return function

    monkeypatch.setattr(torch, "compile", compiling)
    monkeypatch.setattr(tuning, "missing_for_compiling", lambda device: "")
    given = explainer()
    votes = interrupted(given, compile=True)
    assert votes.provenance.compiled
    assert calls
    assert votes.resume(given, IMAGE).provenance.compiled
    assert not pc.sample(given, IMAGE, 1, n=10, compile=False, tau=None).provenance.compiled


def test_votes_are_not_resumed_under_an_autocast_that_they_were_not_sampled_under():
    votes = interrupted(explainer())
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(pc.ArgumentError, match="precision was 'float32'"):
        votes.resume(explainer(), IMAGE)


def test_differences_tell_of_another_precision():
    given, plan = explainer(), Plan(n=60, levels=(50,))
    votes = pc.sample(given, IMAGE, 1, n=60, levels=(50,), precision="bfloat16", tau=None)
    assert differences(votes, plan, given, Subject(IMAGE, 1), Tuning(precision="bfloat16")) == []
    assert differences(votes, plan, given, Subject(IMAGE, 1)) == ["precision was 'bfloat16', now 'float32'"]
    assert differences(votes, plan, given, Subject(IMAGE, 1), Tuning(precision="float32")) == [
        "precision was 'bfloat16', now 'float32'"
    ]


# ── Flags ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=[(True, False, False), (False, True, True)])
def before(request, torch_flags) -> Flags:
    set_flags(request.param)
    return request.param


@pytest.mark.parametrize("name", ["float32", "tf32", "bfloat16"])
def test_a_gpu_rounds_as_the_tuning_says_and_repeats_itself(name, before):
    with rounding(Tuning(1, name, False), GPU):
        assert flags() == (name != "float32", name != "float32", True)
    assert flags() == before


def test_flags_are_put_back_after_an_error(before):
    def work() -> None:
        with rounding(Tuning(1, "tf32", False), GPU):
            assert flags() != before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert flags() == before


@pytest.mark.parametrize(
    ("name", "device"),
    [("float32", CPU), ("bfloat16", CPU), ("float64", GPU), ("float32, tf32 convolutions", GPU), ("float16", GPU)],
)
def test_cpus_and_models_that_are_left_as_they_are_have_no_flags_set(name, device, before):
    with rounding(Tuning(1, name, False), device):
        assert flags() == before


def test_flags_are_set_while_the_explainer_runs_and_not_while_the_votes_are_looked_at(monkeypatch):
    active, seen = [], []

    @contextmanager
    def watched(tuning: Tuning, device: torch.device) -> Any:
        active.append(tuning)
        try:
            yield
        finally:
            active.pop()

    def watching(images: Tensor, targets: Tensor) -> Tensor:
        seen.append(list(active))
        return images[:, 0]

    monkeypatch.setattr(loop, "rounding", watched)
    monkeypatch.setattr(independence, "rounding", watched)
    subjects = [Subject(IMAGE, 0, progress=lambda done, total: seen.append(list(active))) for _ in range(3)]
    for _ in sample_each(Plan(n=10, levels=(50,)), watching, subjects, Tuning(7)):
        assert active == []
    calls = [state for state in seen if state]
    # A copy; batches; three rows of each image, one of the last batch, one again at the end of each image.
    assert len(calls) == 1 + 5 + 9 + 1 + 3
    assert set(map(len, calls)) == {1}
    assert calls[0] == [Tuning(7, "float32", False)]
    assert len(seen) - len(calls) == 7  # every call of progress, once for each image in a batch
