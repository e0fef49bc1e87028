"""Networks in training mode: found wherever an explainer holds them, and nothing else is touched on the way."""

import functools
from collections import OrderedDict, UserDict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_networks import tiny
from torch import Tensor, nn

import pixelcert as pc
from pixelcert.basics.training import networks, refuse_training
from pixelcert.explainer import as_explainer

NET = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))


def explain(net: Any, images: Tensor, targets: Tensor) -> Tensor:
    return net(images).sum(dim=1)


def helper(images: Tensor) -> Tensor:
    return NET(images)


def of_a_global(images: Tensor, targets: Tensor) -> Tensor:
    return NET(images).sum(dim=1)


def of_a_helper(images: Tensor, targets: Tensor) -> Tensor:
    return helper(images).sum(dim=1)


def of_an_inner_function(images: Tensor, targets: Tensor) -> Tensor:
    return torch.stack([(lambda image: NET(image[None]))(image)[0, 0] for image in images])


def of_a_default(images: Tensor, targets: Tensor, *, net: nn.Module = NET) -> Tensor:
    return net(images).sum(dim=1)


class Calls:
    def __init__(self, net: Any) -> None:
        self.net = net

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        return explain(self.net, images, targets)


class Explains(pc.Explainer):
    def __init__(self, net: nn.Module) -> None:
        self.parts = {"nets": [net]}


class Slots:
    __slots__ = ("net",)

    def __init__(self, net: nn.Module) -> None:
        self.net = net

    def explain(self, images: Tensor, targets: Tensor) -> Tensor:
        return explain(self.net, images, targets)


class OfAGlobal:
    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        return NET(images).sum(dim=1)


def decorated(net: nn.Module) -> Any:
    @functools.wraps(explain)
    def inner(*args: Any) -> Any:
        return explain(net, *args)

    return inner


HOLDERS = {
    "itself": lambda net: net,
    "closure": lambda net: lambda images, targets: explain(net, images, targets),
    "decorated": decorated,
    "partial": lambda net: functools.partial(explain, net),
    "cached": lambda net: functools.lru_cache(lambda images, targets: explain(net, images, targets)),
    "attribute": Calls,
    "slots": Slots,
    "bound method": lambda net: Calls(net).__call__,
    "bound method of slots": lambda net: Slots(net).explain,
    "attribute of an attribute": lambda net: Calls(SimpleNamespace(net=net)),
    "subclass": Explains,
    "list": lambda net: Calls([net]),
    "ordered dict": lambda net: Calls(OrderedDict(net=net)),
    "user dict": lambda net: Calls(UserDict(net=net)),
    "global": lambda net: of_a_global,
    "global of a helper": lambda net: of_a_helper,
    "global of an inner function": lambda net: of_an_inner_function,
    "global of a method": lambda net: OfAGlobal(),
    "default": lambda net: of_a_default,
}


@pytest.mark.parametrize("make", HOLDERS.values(), ids=HOLDERS)
def test_networks_in_training_mode_are_found_wherever_they_are_held(make):
    explainer = make(NET.train())
    with pytest.raises(pc.ModelError, match=r"Sequential.*training mode.*call eval\(\)"):
        as_explainer(explainer)
    NET.eval()
    as_explainer(explainer)


def test_classifiers_and_adapters_are_looked_through():
    model = tiny()
    adapted = pc.adapt(lambda net, inputs, targets: inputs.sum(1), model, name="sum")
    explainers = [lambda images, targets: model(images)[:, :1, None], adapted, pc.method("grad", model, "input")]
    for explainer in explainers:
        as_explainer(explainer)
    model.net.train()
    for explainer in explainers:
        with pytest.raises(pc.ModelError, match=r"training mode.*eval\(\)"):
            pc.sample(explainer, torch.rand(3, 16, 16), 0, n=2, tau=None)


@pytest.mark.parametrize(
    "module", [nn.ReLU(), nn.Sequential(nn.Softmax(1)), nn.Upsample(8), nn.Conv2d(3, 4, 3).eval()], ids=str
)
def test_modules_that_are_the_same_in_both_modes_are_no_reason_to_refuse(module):
    refuse_training(Calls(module))


@pytest.mark.parametrize(
    "module", [nn.Dropout(), nn.BatchNorm2d(4, affine=False), nn.Sequential(nn.Dropout2d())], ids=str
)
def test_modules_without_weights_that_tell_modes_apart_are_refused(module):
    with pytest.raises(pc.ModelError, match="training mode"):
        refuse_training(Calls(module))


def test_networks_that_a_function_does_not_read_are_left_alone():
    used = nn.Conv2d(3, 4, 3).eval()
    assert list(networks(lambda images, targets: used(images))) == [used]  # and not NET, a global here


class Touchy:
    """An object that raises an error wherever it is looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"{name} was touched")

    def __len__(self) -> int:
        raise RuntimeError("counted")

    __iter__ = __bool__ = __hash__ = __eq__ = __len__  # type: ignore[assignment]


class Lazy(dict[str, Any]):
    """A mapping that loads what is taken out of it."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("loaded")

    values = items = __iter__ = __getitem__  # type: ignore[assignment]


def test_odd_objects_are_not_touched_and_never_end_the_search():
    loop: list[Any] = [Touchy(), Lazy(a=1), range(10**12), iter([]), (one for one in "a")]
    loop.append(loop)
    empty = [lambda: unbound]  # a cell without contents
    assert list(networks(Calls([loop, empty, [*range(100_000)], NET]))) == [NET]
    if loop is None:
        unbound = 1


def test_a_search_ends_however_much_there_is():
    chain: Any = NET
    for _ in range(100):
        chain = SimpleNamespace(next=chain)
    assert list(networks(Calls(chain))) == []
    wide = [[SimpleNamespace(a=SimpleNamespace()) for _ in range(1000)] for _ in range(1000)]
    assert list(networks(Calls(wide))) == []
