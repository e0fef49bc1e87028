"""Threads: several that explain give the votes of one, and leave torch, NumPy and the network as they found them."""

from __future__ import annotations

import copy
import ctypes
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from small_networks import HALF, SIZE, assert_same, small_model
from thoroughness import LONG
from torch import Tensor, fx, nn

import pixelcert as pc
from pixelcert.basics.machine import tf32, tf32_allowed
from pixelcert.explainer import Tuning, as_explainer
from pixelcert.figures.sheet import STYLE, styled
from pixelcert.models.inspection import Memory
from pixelcert.models.splitting import HookedSplit
from pixelcert.models.tracing import trace
from pixelcert.models.variants import for_grid, tuned
from pixelcert.sampling.loop import explain_copies
from pixelcert.sampling.precision import rounding

THREADS = 4
REPEATS = 10 if LONG else 1
QUICK = {"rise": {"masks": 6}, "intgrad": {"steps": 2}, "occlusion": {"window": 16, "stride": 16}}
IMAGE = torch.rand(3, SIZE, SIZE, generator=torch.Generator().manual_seed(5))

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning:captum", "ignore:.*split by hooks", "ignore:every map was constant"
)


def switches() -> list[Any]:
    """Return what all threads share of torch, except for its generators, and of matplotlib."""
    cudnn = torch.backends.cudnn
    return [
        *(nn.Module.__call__, nn.Module.__getattr__, fx._symbolic_trace._is_fx_tracing_flag),
        *(tf32_allowed(), cudnn.deterministic, cudnn.benchmark, torch.are_deterministic_algorithms_enabled()),
        *(torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        *(torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled()),
        [matplotlib.rcParams[name] for name in STYLE],
    ]


def generators() -> list[Any]:
    """Return the states of the generators that all threads share."""
    states = random.getstate(), *np.random.get_state(), torch.get_rng_state()
    return [state.tolist() if isinstance(state, (np.ndarray, Tensor)) else state for state in states]


@pytest.fixture(autouse=True)
def as_found() -> Iterator[None]:
    """Let threads take turns often, and look whether anything stays changed."""
    before, interval = switches(), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
    assert switches() == before
    assert nn.Linear(2, 2)(torch.zeros(1, 2)).shape == (1, 2)


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Return what each work returns, all begun at the same time in threads of their own."""
    barrier, before = threading.Barrier(len(works)), generators()

    def begin(work: Callable[[], Any]) -> Any:
        barrier.wait(60)
        return work()

    with ThreadPoolExecutor(len(works)) as threads:
        found = [future.result() for future in [threads.submit(begin, work) for work in works]]
    assert generators() == before
    return found


def votes_of(explainer: Any, image: Tensor = IMAGE) -> tuple[Any, ...]:
    """Return everything that votes say, in a form that can be compared."""
    votes = pc.sample(explainer, image, 1, n=2, levels=(50, 10), tau=None)
    assert votes.predictions is not None
    return votes.ones.tolist(), votes.zeros.tolist(), votes.predictions.tolist(), votes.provenance


def shares(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the items for each thread, each in another order."""
    for number in range(THREADS):
        start = number * len(items) // THREADS
        yield [*items[start:], *items[:start]]


# ── Votes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

CELLS = [(name, layer) for name in pc.METHODS for layer in ("input", "final")]


def sample_methods(model: pc.Classifier, cells: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Any]:
    methods = ((cell, pc.method(cell[0], model, cell[1], **QUICK.get(cell[0], {}))) for cell in cells)
    return {cell: votes_of(method) for cell, method in methods}


@pytest.mark.parametrize("shared", [True, False], ids=["one model", "a model each"])
@pytest.mark.parametrize("network", ["resnet", "vgg", "vit"])
def test_four_threads_give_the_votes_of_one(network: str, shared: bool) -> None:
    expected = sample_methods(small_model(network), CELLS)
    for _ in range(REPEATS):
        models = [small_model(network)] * THREADS if shared else [small_model(network) for _ in range(THREADS)]
        works = zip(models, shares(CELLS), strict=True)
        found = at_once(*(lambda work=work: sample_methods(*work) for work in works))
        assert [{cell: votes[cell] for cell in CELLS} for votes in found] == [expected] * THREADS
        assert not any(module._forward_hooks or module._backward_hooks for module in models[0].net.modules())


def small_net() -> nn.Sequential:
    """Return a network for adapters, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 16, 3), nn.ReLU())
        net.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)])
        with torch.no_grad():
            net[0].weight.mul_(4)
            net[2].weight.mul_(4)
    return net


def chance(images: np.ndarray) -> np.ndarray:
    """Explain by the images and all generators that threads share."""
    noise = np.random.rand(*images.shape) + torch.rand(images.shape).numpy() + random.random()
    time.sleep(0.001)
    return (images + np.random.rand(*images.shape) * noise).sum(axis=1)


def adapters(model: pc.Classifier) -> dict[str, Any]:
    """Adapt explainers of every library that is installed."""

    def need(module: str) -> Any:
        return import_module(module) if find_spec(module.partition(".")[0]) else None

    net, made = model.net, {}
    if captum := need("captum.attr"):
        made["captum DeepLift"] = pc.adapt(captum.DeepLift(net), model, baselines=0.5)
        made["captum GuidedBackprop"] = pc.adapt(captum.GuidedBackprop(net), model)
        made["captum NoiseTunnel"] = pc.adapt(captum.NoiseTunnel(captum.Saliency(net)), model, nt_samples=2)
    if cams := need("pytorch_grad_cam"):
        made["grad-cam GradCAM"] = pc.adapt(cams.GradCAM(model=net, target_layers=[net[2]]), model)
    if zennit := need("zennit.composites"):
        made["zennit"] = pc.adapt(zennit.EpsilonPlusFlat(), model)
    if torchcam := need("torchcam.methods"):
        made["torch-cam LayerCAM"] = pc.adapt(torchcam.LayerCAM(net, "2", input_shape=(3, 16, 16)), model)
    return made


def sample_adapters(explainers: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: votes_of(explainers[name], IMAGE[:, :16, :16]) for name in names}


@pytest.mark.filterwarnings("ignore:.*draws random numbers")
@pytest.mark.parametrize("shared", [True, False], ids=["one model", "a model each"])
def test_four_threads_give_the_votes_of_one_with_adapters(shared: bool) -> None:
    make = lambda: pc.Classifier(small_net(), HALF, HALF, final="2", size=16)  # noqa: E731
    made = adapters(make())
    if not made:
        pytest.skip("no library with an adapter is installed")
    names = list(made)
    expected = sample_adapters(made, names)
    for _ in range(REPEATS):
        models = [make()] * THREADS if shared else [make() for _ in range(THREADS)]
        explainers = [adapters(models[0])] * THREADS if shared else [adapters(model) for model in models]
        hooks = [len(module._forward_hooks) for module in models[0].net.modules()]
        works = zip(explainers, shares(names), strict=True)
        found = at_once(*(lambda work=work: sample_adapters(*work) for work in works))
        assert [{name: votes[name] for name in names} for votes in found] == [expected] * THREADS
        assert [len(module._forward_hooks) for module in models[0].net.modules()] == hooks


@pytest.mark.filterwarnings("ignore:.*draws random numbers")
def test_functions_that_draw_random_numbers_do_not_disturb_each_other() -> None:
    images, targets = IMAGE[None, :, :8, :8], torch.tensor([0])
    expected = pc.adapt(chance)(images, targets)
    explainers = [pc.adapt(chance) for _ in range(THREADS)]
    for maps in at_once(*(lambda one=one: [one(images, targets) for _ in range(5)] for one in explainers)):
        assert all(torch.equal(each, expected) for each in maps)


def test_a_prediction_waits_for_an_adapter_that_changes_the_network() -> None:
    """A foreign explanation holds hooks on the network while another thread predicts with it."""
    model = pc.Classifier(small_net(), HALF, HALF, size=16)
    image, changed = IMAGE[:, :16, :16], threading.Event()
    expected = model.predict(image)

    def explain(net: nn.Module, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        with net[0].register_forward_hook(lambda module, args, output: -output):
            changed.set()
            time.sleep(0.05)
        return inputs

    def predict() -> Any:
        changed.wait(60)
        return model.predict(image)

    assert at_once(lambda: votes_of(pc.adapt(explain, model), image), predict)[1] == expected


def test_attacks_do_not_change_the_attention_of_other_threads() -> None:
    """The slope of attention needs one of torch's kernels, which is chosen for the whole process."""
    method = pc.method("grad", small_model("vit"), "input")
    votes = pc.sample(method, IMAGE, 1, n=62, levels=(50,))

    def attacked() -> list[Any]:
        outcome = pc.attack(votes, method, IMAGE, steps=2, draws=2, samples=62, radii=[0.05], gradient="pathwise")
        return [(attempt.delta.tolist(), attempt.ones.tolist()) for attempt in outcome.attempts]

    expected, sampled = attacked(), votes_of(method)
    found = at_once(attacked, attacked, *[lambda: [votes_of(method) for _ in range(5)]] * 2)
    assert found == [expected] * 2 + [[sampled] * 5] * 2


def by_sampling(explainer: Any, image: Tensor) -> Any:
    return pc.sample(explainer, image, 1, n=8, batch_size=1, tau=None)


def by_copies(explainer: Any, image: Tensor) -> Any:
    return [explain_copies(as_explainer(explainer), image, 1, sigma=0.1, key=0, samples=range(2)) for _ in range(8)]


@pytest.mark.parametrize("explained", [by_sampling, by_copies])
def test_explanations_take_turns(explained: Callable[..., Any]) -> None:
    """A plain callable may rely on what all threads share, such as the hooks that it puts on its network."""
    now, most = [], []

    def explain(images: Tensor, targets: Tensor) -> Tensor:
        now.append(1)
        most.append(len(now))
        time.sleep(0.001)
        now.pop()
        return images.sum(dim=1)

    at_once(*[lambda: explained(explain, IMAGE[:, :8, :8])] * THREADS)
    assert max(most) == 1


class Telling(pc.Explainer):
    """Tells as surgery how large the images of the last batch were."""

    name, seen = "telling", torch.Size()

    @property
    def surgery(self) -> dict[str, str]:
        return {"seen": str(tuple(self.seen))}

    def explain(self, images: Tensor, targets: Tensor) -> pc.Explanation:
        self.seen = images.shape
        time.sleep(0.001)
        return pc.Explanation(images.sum(dim=1))


def test_votes_tell_of_their_own_batch() -> None:
    explainer = Telling()
    sizes = range(8, 8 + THREADS)
    found = at_once(*(lambda size=size: by_sampling(explainer, IMAGE[:, :size, :size]) for size in sizes))
    assert [votes.provenance.surgery["seen"] for votes in found] == [f"(1, 3, {size}, {size})" for size in sizes]


def test_figures_of_several_threads_have_one_style() -> None:
    def draw(number: int) -> list[Any]:
        matplotlib.rcParams["text.parse_math"]
        time.sleep(0.001 * number)
        return [matplotlib.rcParams[name] for name in STYLE]

    expected = styled(draw)(0)
    found = at_once(*(lambda number=number: [styled(draw)(number) for _ in range(5)] for number in range(THREADS)))
    assert found == [[expected] * 5] * THREADS


# ── One at a time ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_answer_is_found_once_for_all_threads() -> None:
    memory, found = Memory(small_net()), []

    def find() -> int:
        time.sleep(0.01)
        found.append(threading.get_ident())
        return len(found)

    assert at_once(*[lambda: memory.recall("question", find)] * THREADS) == [1] * THREADS


@pytest.mark.parametrize("block", ["tf32", "rounding"])
def test_rounding_stays_as_a_thread_has_set_it(block: str) -> None:
    def inside(allowed: bool) -> list[Any]:
        tuning = Tuning(1, "tf32" if allowed else "float32", False)
        seen = []
        for _ in range(5):
            with tf32(allowed) if block == "tf32" else rounding(tuning, torch.device("cuda")):
                time.sleep(0.002)
                seen.append((tf32_allowed(), block == "tf32" or torch.backends.cudnn.deterministic))
        return seen

    found = at_once(lambda: inside(True), lambda: inside(False))
    assert found == [[((allowed, allowed), True)] * 5 for allowed in (True, False)]


def test_hooks_that_split_a_network_meet_only_their_own_threads_pass() -> None:
    model = pc.Classifier(small_net(), HALF, HALF, final="2", size=16, trace=False)
    images = [torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(seed)) for seed in range(THREADS)]
    split = HookedSplit(model.net, "2")
    expected = [(split.body(one), model.net(one)) for one in images]

    def run(number: int) -> None:
        for _ in range(20):
            features = split.body(images[number])
            assert torch.equal(features, expected[number][0])
            assert torch.equal(split.head(features), expected[number][1])

    at_once(*(lambda number=number: run(number) for number in range(THREADS)))


class Watched(nn.Module):
    """Counts the traces that run through it at the same time."""

    now: list[int] = []  # noqa: RUF012
    most = 0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ReLU()

    def forward(self, x: Any) -> Any:
        if isinstance(x, fx.Proxy):
            self.now.append(1)
            Watched.most = max(Watched.most, len(self.now))
            time.sleep(0.01)
            self.now.pop()
        return self.layer(x)


def test_one_network_is_traced_at_a_time() -> None:
    found = at_once(*[lambda: trace(Watched())] * THREADS)
    assert all(isinstance(traced, fx.GraphModule) for traced in found)
    assert Watched.most == 1


# ── Other threads during a trace ──────────────────────────────────────────────────────────────────────────────────────


class Busy(nn.Module):
    """Lets another thread do `work` while it is traced."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self.layer, self.work, self.seen = nn.Conv2d(3, 2, 3), work, []

    def forward(self, x: Any) -> Any:
        if isinstance(x, fx.Proxy):
            with ThreadPoolExecutor(1) as other:
                self.seen.append(other.submit(self.work).result(60))
        return self.layer(x)


def test_other_threads_run_their_networks_during_a_trace() -> None:
    net = small_net()
    images = torch.rand(2, 3, 16, 16)
    expected = net(images)
    busy = Busy(lambda: (net(images), net[0].weight, nn.Linear(2, 2)(torch.zeros(1, 2)).shape))
    assert isinstance(trace(busy), fx.GraphModule)
    ((answer, weight, shape),) = busy.seen
    assert torch.equal(answer, expected)
    assert weight is net[0].weight
    assert shape == (1, 2)


def test_a_traced_network_itself_answers_another_thread() -> None:
    busy = Busy(lambda: busy.layer(torch.zeros(1, 3, 4, 4)).shape)
    assert isinstance(trace(busy), fx.GraphModule)
    assert busy.seen == [(1, 2, 2, 2)]


def test_other_threads_run_compiled_functions_during_a_trace() -> None:
    double = torch.compile(lambda x: 2 * x, backend="eager")
    busy = Busy(lambda: double(torch.ones(2)).tolist())
    assert isinstance(trace(busy), fx.GraphModule)
    assert busy.seen == [[2, 2]]


def test_a_compiled_part_is_not_traced() -> None:
    net = nn.Sequential(nn.Conv2d(3, 2, 3), torch.compile(nn.ReLU(), backend="eager"))
    assert "dynamo" in str(trace(net))


@pytest.mark.parametrize("fails", [False, True], ids=["done", "failed"])
def test_a_trace_that_another_thread_puts_back_does_no_harm(fails: bool) -> None:
    """A trace in a user's own thread, begun during ours and ended after it, restores what it found: our own."""
    before, found = (nn.Module.__call__, nn.Module.__getattr__), []

    def look() -> None:
        found.extend((nn.Module.__call__, nn.Module.__getattr__))
        assert not fails, "no way"

    assert isinstance(trace(Busy(look)), AssertionError if fails else fx.GraphModule)
    assert (nn.Module.__call__, nn.Module.__getattr__) == before
    net, images = small_net(), torch.rand(2, 3, 16, 16)
    expected = net(images)
    try:
        nn.Module.__call__, nn.Module.__getattr__ = found
        assert torch.equal(net(images), expected)
    finally:
        nn.Module.__call__, nn.Module.__getattr__ = before
    assert found[0] is not before[0]


# ── Foreign code ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Foreign(nn.Module):
    """Gives its input to code outside torch, which must never be given anything but numbers."""

    def __init__(self, leave: Callable[[Any], Any]) -> None:
        super().__init__()
        self.leave, self.given = leave, []

    def forward(self, x: Any) -> Any:
        values = self.leave(x)
        self.given.append(type(values))
        return x.mean(dim=(2, 3)) + 0 * x.sum()


EXITS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda x: x.detach().cpu().numpy(),
    "data": lambda x: x.data.numpy(),
    "array": lambda x: np.asarray(x),
    "array method": lambda x: np.stack([x, x]),
    "list": lambda x: x.tolist(),
    "address": lambda x: ctypes.c_void_p(x.data_ptr()),
    "storage": lambda x: x.untyped_storage(),
    "dlpack": lambda x: x.__dlpack__(),
    "numba": lambda x: getattr(x, "__cuda_array_interface__", None),
}


@pytest.mark.parametrize("leave", EXITS.values(), ids=EXITS.keys())
@pytest.mark.parametrize("inside", [False, True], ids=["whole network", "part of a network"])
def test_foreign_code_is_never_given_symbols(leave: Callable[[Any], Any], inside: bool) -> None:
    foreign = Foreign(leave)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), foreign) if inside else foreign
    model = pc.Classifier(net, HALF, HALF, size=16)
    votes = pc.sample(pc.method("occlusion", model, window=4, stride=4), IMAGE[:, :16, :16], 1, n=2, tau=None)
    assert not any(issubclass(kind, fx.Proxy) for kind in foreign.given)
    copied = (votes.provenance.surgery or {})["crops"]
    why = "hands values to code outside torch" if inside else "it has no modules inside"
    assert copied.startswith("no (it cannot be traced: ")
    assert why in copied


def test_onnx_runtime_is_run_and_not_traced() -> None:
    onnx, runtime = (pytest.importorskip(name, reason=f"{name} is not installed") for name in ("onnx", "onnxruntime"))
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    inputs, outputs = (
        helper.make_tensor_value_info(name, kind, shape)
        for name, shape in (("x", ["B", 3, "H", "W"]), ("y", ["B", 3, 1, 1]))
    )
    graph = helper.make_graph([helper.make_node("GlobalAveragePool", ["x"], ["y"])], "mean", [inputs], [outputs])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])

    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.from_numpy(session.run(None, {"x": x.detach().numpy()})[0]).flatten(1)

    for net in (Mean(), nn.Sequential(nn.Conv2d(3, 3, 3), Mean())):
        votes_of(pc.method("occlusion", pc.Classifier(net, HALF, HALF, size=16)), IMAGE[:, :16, :16])


# ── Tracing switched off ──────────────────────────────────────────────────────────────────────────────────────────────


class Untraced(nn.Module):
    """A network that must not be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small_net()

    def forward(self, x: Any) -> Any:
        assert isinstance(x, Tensor), "it is traced"
        return self.net(x)


@pytest.mark.parametrize(("name", "layer"), [cell for cell in CELLS if cell[0] != "cam"])
@pytest.mark.filterwarnings("error:.*split by hooks")
def test_a_network_is_not_traced_if_that_is_switched_off(name: str, layer: str) -> None:
    traced = pc.Classifier(small_net(), HALF, HALF, final="2", size=16)
    model = pc.Classifier(Untraced(), HALF, HALF, final="net.2", size=16, trace=False)
    one, other = (pc.method(name, which, layer, **QUICK.get(name, {})) for which in (traced, model))
    images, targets = torch.rand(2, 3, 16, 16), torch.tensor([1, 4])
    assert_same(other(images, targets), one(images, targets))
    surgery = votes_of(other, images[0])[-1].surgery
    if layer == "final":
        assert surgery["split"] == "hooks (tracing is switched off)"
    if name == "occlusion":
        assert surgery["crops"] == "no (tracing is switched off)"


def test_without_tracing_cam_and_layers_are_refused_with_the_reason() -> None:
    model = pc.Classifier(small_net(), HALF, HALF, final="2", size=16, trace=False)
    with pytest.raises(pc.PixelcertError, match="tracing is switched off"):
        pc.method("cam", model)
    with pytest.raises(pc.PixelcertError, match="layer='nowhere' is not a module"):
        pc.method("grad", model, "nowhere")


def test_copies_and_classifiers_for_grids_are_not_traced_either() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5))
    model = pc.Classifier(net, HALF, HALF, final="0", size=16, trace=False)
    assert not tuned(model).trace
    with pytest.warns(pc.PixelcertWarning, match=r"cannot slide \(tracing is switched off\)"):
        larger = for_grid(model, 32)
    assert not larger.trace
    assert not pc.load_model("resnet18", weights=None, device="cpu", trace=False).trace
    with pytest.raises(pc.PixelcertError, match="trace=False cannot be given"):
        pc.load_model("test_threads:small_net", trace=False)


def test_fusing_asks_whether_a_network_may_be_traced() -> None:
    model = pc.Classifier(small_net(), HALF, HALF, final="2", size=16, trace=False)
    method = pc.method("rise", copy.copy(model), "input")
    assert method._why_not_fused(compiled=False) == "tracing is switched off"
