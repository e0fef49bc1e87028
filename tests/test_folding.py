"""Folding: convolutions that are fused with their ReLUs answer the same. The kernel itself needs a GPU."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from small_networks import small_model
from torch import Tensor, nn
from torch.nn import functional as F

import pixelcert as pc
from pixelcert.models import folding
from pixelcert.models.folding import FusedConvolution, fuse
from pixelcert.models.variants import tuned

INPUTS = torch.randn(2, 4, 9, 9, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def kernel(monkeypatch) -> list[bool]:
    """What the kernel computes, and for each call whether it had something to add."""
    calls: list[bool] = []

    def convolve(inputs: Tensor, weight: Tensor, other: Tensor | None, bias: Tensor, options: Any) -> Tensor:
        calls.append(other is not None)
        answer = F.conv2d(inputs, weight, bias, *options)
        assert other is None or other.shape == answer.shape, "it does not broadcast"
        return F.relu(answer if other is None else answer + other)

    monkeypatch.setattr(folding, "convolve_add_relu", convolve)
    return calls


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.strided = nn.Conv2d(4, 4, 3, stride=2, padding=2, dilation=2)
        self.grouped, self.biasless = nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3, bias=False)
        self.reflecting = nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")
        self.same = nn.Conv2d(4, 4, 3, padding="same")
        self.relu, self.in_place, self.identity = nn.ReLU(), nn.ReLU(inplace=True), nn.Identity()


FORMS = {  # what is done, and how many kernels that is
    "module": (lambda net, x: net.relu(net.one(x)), 1),
    "function": (lambda net, x: F.relu(net.one(x)), 1),
    "torch's function": (lambda net, x: torch.relu(net.one(x)), 1),
    "stride, padding and dilation": (lambda net, x: net.relu(net.strided(x)), 1),
    "behind a folded batch norm": (lambda net, x: net.relu(net.identity(net.one(x))), 1),
    "residual": (lambda net, x: net.relu(net.one(x) + x), 1),
    "residual from the left": (lambda net, x: net.relu(x + net.one(x)), 1),
    "residual behind a batch norm": (lambda net, x: net.relu(x + net.identity(net.one(x))), 1),
    "residual of a convolution": (lambda net, x: net.relu(net.one(x) + net.two(x)), 1),
    "in a row": (lambda net, x: net.relu(net.two(net.relu(net.one(x))) + x), 2),
    "one module twice": (lambda net, x: net.relu(net.one(net.relu(net.one(x)))), 2),
    "no ReLU": (lambda net, x: net.one(x) + x, 0),
    "ReLU in place": (lambda net, x: net.in_place(net.one(x)), 0),
    "function in place": (lambda net, x: F.relu(net.one(x), inplace=True), 0),
    "groups": (lambda net, x: net.relu(net.grouped(x)), 0),
    "no bias": (lambda net, x: net.relu(net.biasless(x)), 0),
    "reflection": (lambda net, x: net.relu(net.reflecting(x)), 0),
    "padding in words": (lambda net, x: net.relu(net.same(x)), 0),
    "another reader": (lambda net, x: (lambda y: net.relu(y) + y)(net.one(x)), 0),
    "another reader of the sum": (lambda net, x: (lambda y: net.relu(y) + y)(net.one(x) + x), 0),
    "another reader of the batch norm": (lambda net, x: (lambda y: net.relu(y) + y)(net.identity(net.one(x))), 0),
    "sum with itself": (lambda net, x: (lambda y: net.relu(y + y))(net.one(x)), 0),
    "scalar": (lambda net, x: net.relu(net.one(x) + 1.0), 0),
    "alpha": (lambda net, x: net.relu(torch.add(net.one(x), x, alpha=2)), 0),
    "difference": (lambda net, x: net.relu(net.one(x) - x), 0),
    "sum in place": (lambda net, x: net.relu(operator.iadd(net.one(x), x)), 1),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_a_fused_network_answers_the_same(name, gradients, kernel):
    form, count = FORMS[name]

    class Formed(Net):
        def forward(self, x: Tensor) -> Tensor:
            return form(self, x)

    net = Formed().eval()
    fast, why = fuse(net)
    assert sum(isinstance(module, FusedConvolution) for module in fast.modules()) == count
    assert (fast is net) == (count == 0)
    assert why == ("" if count else "no convolution feeds only a ReLU")
    given, same = INPUTS.clone().requires_grad_(gradients), INPUTS.clone().requires_grad_(gradients)
    with torch.set_grad_enabled(gradients):
        expected, answer = net(given), fast(same)
    torch.testing.assert_close(answer, expected)
    assert len(kernel) == (0 if gradients else count)
    if gradients:
        expected.square().sum().backward()
        answer.square().sum().backward()
        torch.testing.assert_close(same.grad, given.grad)


def test_a_network_that_cannot_be_traced_is_left_alone():
    class Deciding(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.relu(self.one(x)) if x.sum() > 0 else self.one(x)

    net = Deciding()
    same, why = fuse(net)
    assert same is net
    assert why.startswith("it cannot be traced: symbolically traced variables")


class Aliasing(nn.Module):
    """A sum in place that is read under another name, which torch.fx takes for y = y + z."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution, self.relu = nn.Conv2d(3, 3, 3, padding=1), nn.ReLU()
        self.head = nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        alias = y
        y += self.convolution(x)
        return self.head((self.relu(y) + alias).mean(dim=(2, 3)))


def test_what_fusing_would_change_is_not_fused():
    model = pc.Classifier(Aliasing(), (0.5,) * 3, (0.25,) * 3, size=16)
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    features, head = tuned(model, fused=True).split("input")
    with torch.no_grad():
        torch.testing.assert_close(head(features(images)), model(images), rtol=1e-4, atol=1e-4)


def test_what_cudnn_has_no_kernel_for_is_not_fused(monkeypatch):
    def refuse(*_: Any) -> Tensor:
        raise RuntimeError("unable to find an engine")

    monkeypatch.setattr(folding, "convolve_add_relu", refuse)
    model = small_model("resnet")
    images = torch.rand(2, 3, model.size, model.size)
    features, head = tuned(model, fused=True).split("input")
    with torch.no_grad():
        torch.testing.assert_close(head(features(images)), model(images), rtol=1e-3, atol=1e-3)


def test_a_convolution_with_a_hook_is_left_alone():
    class Hooked(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.relu(self.one(x))

    net = Hooked()
    net.one.register_forward_hook(lambda module, given, answer: answer + 1)
    with torch.no_grad():
        torch.testing.assert_close(fuse(net)[0](INPUTS), net(INPUTS))


def test_a_convolution_that_was_patched_is_left_alone():
    class Patched(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.relu(self.one(x))

    net = Patched()
    own = net.one.forward
    net.one.forward = lambda x: own(x).clamp(max=0.1)
    with torch.no_grad():
        torch.testing.assert_close(fuse(net)[0](INPUTS), net(INPUTS))


def test_a_relu_with_a_hook_is_left_alone():
    class Hooked(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.relu(self.one(x))

    net = Hooked()
    net.relu.register_forward_pre_hook(lambda module, given: (given[0] + 1,))
    with torch.no_grad():
        torch.testing.assert_close(fuse(net)[0](INPUTS), net(INPUTS))


@pytest.mark.parametrize("layer", ["input", "final"])
def test_every_relu_of_a_tuned_resnet_is_fused_and_methods_answer_the_same(layer, kernel):
    model = small_model("resnet")
    images = torch.rand(2, 3, 64, 64)
    plain, fast = (tuned(model, layer=layer, fused=fused) for fused in (False, True))
    assert plain is not fast
    features, head = fast.split(layer)
    kernel.clear()  # it was tried out
    with torch.no_grad():
        torch.testing.assert_close(head(features(images)), model(images), rtol=1e-4, atol=1e-4)
    assert kernel == [False] + [False, True] * 4
    expected, answer = (
        torch.autograd.functional.jacobian(lambda x, m=m: m.split(layer).head(x)[0, 3], m.split(layer).features(images))
        for m in (plain, fast)
    )
    torch.testing.assert_close(answer, expected, rtol=1e-3, atol=1e-5)
    assert len(kernel) == 9 + (9 if layer == "final" else 0), "the kernel has no gradient"
