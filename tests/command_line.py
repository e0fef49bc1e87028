"""The command line in this process, and a network that answers at once, for tests of commands."""

import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import pixelcert as pc
from pixelcert.sampling import loop

N_TINY = 44  # the fewest for 16 × 16 pixels at the default τ and α
TINY = ("--model", "command_line:make", "--method", "grad", "--target", "0", "-n", N_TINY, "--no-picture")


class Run(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Everything, without the width of the terminal."""
        return " ".join((self.out + " " + self.err).split())


# ── A network for 16 × 16 images ──────────────────────────────────────────────────────────────────────────────────────


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Softplus())
        self.head = nn.Linear(4, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images).mean(dim=(2, 3)))


def make(scale: float = 1.0, answer: int | None = None) -> pc.Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Net()
    net.head.weight.data *= scale
    if answer is not None:
        net.head.bias.data[answer] = 100.0
    classes = ("[red]x[/red]", ":dog: [bold]", ":dog: [bold]")
    return pc.Classifier(net, mean=(0.5,) * 3, std=(0.25,) * 3, name="tiny", classes=classes, size=16)


def make_constant() -> pc.Classifier:
    return make(scale=0.0)


def make_always_0() -> pc.Classifier:
    return make(answer=0)


def make_always_1() -> pc.Classifier:
    return make(answer=1)


# ── Fixtures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def pixelcert(monkeypatch, tmp_path) -> Callable[..., Run]:
    """Runs the command in this process, in an empty folder, on a wide terminal without colours."""
    monkeypatch.chdir(tmp_path)
    return run_here


def run_here(*arguments: Any, encoding: str = "utf-8") -> Run:
    """Run the command in this process and folder, on a wide terminal with the letters of `encoding`."""
    from pixelcert.commands import main  # after conftest.py has cleared what decides about colours

    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True) for _ in range(2)]
    code: Any = 0
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(sys, "argv", ["pixelcert", *map(str, arguments)])
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        patch.setenv("COLUMNS", os.environ.get("COLUMNS", "1000"))
        warnings.simplefilter("default", pc.PixelcertWarning)  # as in a process of its own
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    return Run(code, *(stream.buffer.getvalue().decode(encoding) for stream in streams))


@pytest.fixture
def cat(tmp_path) -> Path:
    """A photograph of noise, 16 × 16."""
    noise = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "cat.png")
    return tmp_path / "cat.png"


@pytest.fixture
def certify(pixelcert, cat) -> Callable[..., Run]:
    """`pixelcert certify` of cat.png with the tiny network in four batches. Later options win."""

    def run(*arguments: Any, images: tuple[Any, ...] = ("cat.png",)) -> Run:
        return pixelcert("certify", *images, *TINY, "--batch-size", 11, *arguments)

    return run


@pytest.fixture
def no_sampling(monkeypatch) -> None:
    monkeypatch.setattr(loop, "noisy", lambda *_, **__: pytest.fail("sampling began"))


@pytest.fixture
def quick_pictures(monkeypatch) -> None:
    """Files that tell what would be in the picture."""
    monkeypatch.setattr(pc.Certificate, "plot", lambda self, path: Path(path).write_text(repr(self)))


# ── Tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def stopping_after(batches: int, stop: BaseException) -> Iterator[None]:
    """Raises `stop` in place of the next batch of noise."""
    noisy, done = loop.noisy, []

    def noisy_until(*given: Any, **named: Any) -> torch.Tensor:
        done.append(given)
        if len(done) > batches:
            raise stop
        return noisy(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "noisy", noisy_until)
        yield


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Ends what takes this process longer, however busy the machine is with others."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def assert_refused(run: Run, *words: Any) -> None:
    """One message says it, with these words, and nothing else is printed."""
    assert run.code == 1
    assert run.out == ""
    (message,) = [line for line in run.err.splitlines() if line.startswith("error: ")]
    assert run.err.endswith(f"{message}\n"), "one message, and nothing after it"
    for word in words:
        assert str(word) in message


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt
