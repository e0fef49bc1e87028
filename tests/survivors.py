"""Studies that tests kill: small enough to end soon, long enough to be hit; `make test-long` has larger ones."""

import json
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from small_studies import tiny
from thoroughness import LONG

import pixelcert as pc

KILLS = 20 if LONG else 5
SIGMAS, IMAGES, GRIDS = ([0.1, 0.2], 3, 2) if LONG else ([0.1], 2, 1)
JOBS = 3 * 2 * len(SIGMAS) * (IMAGES + GRIDS)  # methods × layers × sigma × scenes
STUDY = f"""
models = ["small"]
methods = ["ixg", "grad_cam", "rise"]
sigma = {SIGMAS}
n = 36
levels = [50, 10]
tau = [0.6, 0.65]
deletion = 0.6
seed = 0
[images]
folder = "photographs"
count = {IMAGES}
[grids]
count = {GRIDS}
cell = 16
[model.small]
model = "survivors:network"
[method.rise]
masks = 6
"""


def network() -> pc.Classifier:
    """Make the model that the study loads by name."""
    torch.set_num_threads(1)
    return tiny()


def write_study(base: Path) -> Path:
    """Write a study file and its photographs, of one class each."""
    random = np.random.default_rng(0)
    lines = ["file,label"]
    (base / "photographs").mkdir(parents=True)
    for index in range(8):
        coarse = Image.fromarray(random.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        coarse.resize((32, 32), Image.Resampling.BICUBIC).save(base / "photographs" / f"{index}.png")
        lines.append(f"{index}.png,{index}")
    (base / "photographs" / "labels.csv").write_text("\n".join(lines))
    (base / "study.toml").write_text(STUDY)
    return base / "study.toml"


def command(*arguments: str) -> None:
    """Run `pixelcert` with these arguments, and end the process with its exit code."""
    from pixelcert.commands import main

    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it for jobs
    sys.argv = ["pixelcert", *arguments]
    main()


def command_into(log: str, *arguments: str) -> None:
    """Run `command`, with its messages in a file."""
    sys.stderr = open(log, "w", encoding="utf-8")  # noqa: SIM115, open until the process ends
    command(*arguments)


def count_finished(file: str, folder: str, answer: str, other: str) -> None:
    """Run a study and leave in `answer` how many jobs this very process did.

    With half of them done it waits for the process that answers in `other` to do a fourth, however late that begins.
    """
    given_up = time.monotonic() + 600

    def wait(tally) -> None:
        if tally.finished >= JOBS // 4:
            Path(f"{answer}-fourth").touch()
        while tally.finished >= JOBS // 2 and not Path(f"{other}-fourth").exists() and time.monotonic() < given_up:
            time.sleep(0.01)

    tally = pc.Study.open(file, folder).run(watch=wait)
    Path(answer).write_text(json.dumps([tally.done, tally.finished]))


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a study's folder that outlasts a run."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.relative_to(folder).parts[0] != "claims"
    }
