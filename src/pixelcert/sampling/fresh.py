"""Fresh: noisy copies explained in a new process, one in each call and in shuffled order.

A new process has no memory of the process that counted the votes, except what the explainer object itself keeps. What
else is in its batch, and the order, cannot be the same as then.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..basics.messages import ExplainerError
from ..explainer import Explainer
from ..models.loading import torchvision_models
from ..plan import Plan
from ..ranking import Counts, Ranking, answers_of
from ..votes import Provenance
from .loop import explain_copies
from .precision import rounding, settle_as

Report = Callable[[int], None]  # called with the number of copies that are done


class Fresh(NamedTuple):
    """The fresh copies of an image to explain and count."""

    explainer: Explainer
    clean: Tensor  # (C, H, W), on the lattice and the device
    source: Provenance
    plan: Plan
    key: int
    threads: int

    def do(self, report: Report) -> Counts:
        """Explain one copy in each call, in shuffled order."""
        clean, plan = self.clean, self.plan
        tuning = settle_as(self.source, self.explainer, clean.device, batch_size=1)
        tuned, counts = self.explainer.tuned(tuning), Counts.none(plan, clean[0].numel(), clean.device)
        for done, index in enumerate(np.random.default_rng(self.key % 2**64).permutation(plan.n).tolist(), 1):
            one: dict[str, Any] = {"sigma": plan.sigma, "key": self.key, "samples": range(index, index + 1)}
            with rounding(tuning, clean.device):
                _, (maps, logits) = explain_copies(tuned, clean, self.source.target, **one)
            ranking = Ranking.of(maps.flatten(1), plan.levels, plan.sign, plan.rule)
            answers, classes = (None, 0) if logits is None else (answers_of(logits), logits.shape[1])
            counts = counts.plus(ranking, slice(0, 1), answers, classes, plan)
            report(done)
        return counts.to("cpu")


def packed(work: Fresh) -> bytes | str:
    """Return the work as bytes for another process, or the reason why that is not possible."""
    try:
        return pickle.dumps(work)
    except Exception as error:  # pickling runs code of every object, which may raise anything
        return f"the explainer cannot be sent to a new process ({error})"


def count(work: Fresh, sent: bytes | str, report: Report) -> tuple[Counts, str]:
    """Do the work as it was packed, in a new process; in this one if that is not possible, and say why."""
    return (work.do(report), sent) if isinstance(sent, str) else _in_a_new_process(work, sent, report)


# Without the current folder, where modules of somebody else may lie, perhaps beside the votes.
_ANSWER = "import sys; sys.path[:] = filter(None, sys.path); from pixelcert.sampling.fresh import answer; answer()"


def _in_a_new_process(work: Fresh, sent: bytes, report: Report) -> tuple[Counts, str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment}
    command = [sys.executable, "-c", _ANSWER, *(["torchvision"] if "torchvision" in sys.modules else [])]
    with subprocess.Popen(command, **pipes, start_new_session=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError):  # it may answer before it has read everything
                process.stdin.write(sent)
                process.stdin.close()
            while True:
                what, value = pickle.load(process.stdout)
                if what == "done":
                    return value, ""
                if what == "unknown":
                    return work.do(report), f"a new process cannot make the explainer ({value})"
                if what == "failed":
                    raise ExplainerError(f"the explainer failed in a new process ({value}): fix the cause.")
                report(value)
        except (EOFError, pickle.UnpicklingError) as error:
            process.kill()
            process.wait()
            code = process.returncode
            raise ExplainerError(f"the new process ended with exit code {code}: read above what it printed.") from error
        finally:
            process.kill()


def answer() -> None:
    """Do the work that is read from standard input, and write progress and result to standard output."""
    with os.fdopen(os.dup(1), "wb") as channel:
        os.dup2(2, 1)  # the explainer may print

        def tell(what: str, value: object) -> None:
            pickle.dump((what, value), channel)
            channel.flush()

        try:
            if "torchvision" in sys.argv:
                torchvision_models()  # imports it in the way that works beside a CPU-only torch
            work: Fresh = pickle.load(sys.stdin.buffer)
        except Exception as error:
            tell("unknown", f"{type(error).__name__}: {error}")
            return
        torch.set_num_threads(work.threads)
        try:
            tell("done", work.do(lambda done: tell("progress", done)))
        except Exception as error:
            tell("failed", f"{type(error).__name__}: {error}")
