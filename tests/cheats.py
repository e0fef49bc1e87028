"""Explainers that cheat: each pixel has p = 1/2 over the images, and votes that are not independent.

Each is a plain callable without attributes, made anew for each certificate. docs/guarantee.md has a line for each.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import pixelcert as pc
from pixelcert.basics.files import sha256

SIDE = 16
IMAGE = torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))

Maps = Callable[[Tensor, Tensor], Any]


def coin(of: Tensor) -> Tensor:
    """Return a map that is random from image to image, and always the same for one: every p is 1/2."""
    seed = int(sha256(of.cpu().contiguous().numpy())[:15], 16)
    return torch.rand(SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def fixed(number: float) -> Tensor:
    """Return a map that depends on a number only."""
    return coin(torch.tensor([number], dtype=torch.float64))


def fair(images: Tensor, targets: Tensor) -> Tensor:
    """Explain as a random function of one image would: with p = 1/2, and no cheating."""
    return torch.stack([coin(image) for image in images])


def same(one: Tensor, images: Tensor) -> Tensor:
    return one.expand(len(images), -1, -1)


# ── The rest of the batch ─────────────────────────────────────────────────────────────────────────────────────────────


def of_the_first_row() -> Maps:
    return lambda images, targets: same(coin(images[0]), images)


def of_the_whole_batch() -> Maps:
    return lambda images, targets: same(coin(images.sum(dim=0)), images)


def of_the_rows_before() -> Maps:
    return lambda images, targets: fair(images, targets).cummax(dim=0).values


def of_one_row_except(*fractions: float) -> Maps:
    """Fill a batch from one row, but for those at some places, as code that treats the ends of a batch apart may do."""

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        spared = [min(int(len(images) * fraction), len(images) - 1) for fraction in fractions]
        maps, honest = same(coin(images[len(images) // 3]), images).clone(), fair(images, targets)
        maps[spared] = honest[spared]
        return maps

    return cheat


def two_lines_of_the_whole_batch() -> Maps:
    """Mix so few pixels that a difference of rounding may be as large."""

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        maps = fair(images, targets)
        maps[:, :2] = coin(images.sum(dim=0))[:2]
        return maps

    return cheat


def a_pixel_of_the_whole_batch(value: float, huge: float = 0) -> Maps:
    """Let all images choose one pixel, which may be infinite, or hidden by two huge pixels, equal in all maps."""

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        maps = fair(images, targets).flatten(1)
        maps[:, coin(images.sum(dim=0)).argmax()] = value
        if huge:
            maps[:, 0], maps[:, -1] = huge, -huge
        return maps.view(-1, SIDE, SIDE)

    return cheat


def inputs_overwritten() -> Maps:
    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        images[:] = images[:1].clone()
        return fair(images, targets)

    return cheat


# ── The order ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def of_the_place_in_the_batch() -> Maps:
    return lambda images, targets: torch.stack([fixed(place >= 90) for place in range(len(images))])


def last_answer_again() -> Maps:
    last = [fixed(0)]

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        maps = torch.stack([*last, *fair(images, targets)])
        last[:] = [maps[-1]]
        return maps[:-1]

    return cheat


# ── State ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def mean_of_all_so_far() -> Maps:
    seen: list[Tensor] = []

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        seen.extend(fair(images, targets))
        return torch.stack(seen).cumsum(dim=0)[-len(images) :]

    return cheat


def changed_after(calls: int) -> Maps:
    left = [calls]

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        left[0] -= 1
        return fair(images, targets) if left[0] >= 0 else same(fixed(0), images)

    return cheat


def kept_of_the_first_batch() -> Maps:
    """Add up a reference from the first batch of several images: a call with one image makes none."""
    kept: list[Tensor] = []

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        if len(images) > 1 and not kept:
            kept.append(coin(images.sum(dim=0)))
        return fair(images, targets) / 1e3 + (kept[0] if kept else 0)

    return cheat


def kept_of_a_batch_without_memory() -> Maps:
    """Look at a batch, then run out of memory."""
    kept: list[Tensor] = []

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        if len(images) > 50 and not kept:
            kept.append(coin(images.sum(dim=0)))
            raise MemoryError
        return fair(images, targets) / 1e3 + (kept[0] if kept else 0)

    return cheat


# ── Logits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def logits_of_the_whole_batch() -> Maps:
    def cheat(images: Tensor, targets: Tensor) -> Any:
        sure = torch.zeros(len(images), 10)
        sure[:, int(coin(images.sum(dim=0))[0, 0] * 10)] = 1
        return pc.Explanation(fair(images, targets), sure)

    return cheat


def logits_by_chance() -> Maps:
    """Draw one class for each call, from numbers of its own."""
    generator = torch.Generator().manual_seed(0)

    def cheat(images: Tensor, targets: Tensor) -> Any:
        sure = torch.zeros(len(images), 10)
        sure[:, torch.randint(10, (1,), generator=generator)] = 1
        return pc.Explanation(fair(images, targets), sure)

    return cheat


# ── Memory ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def one_buffer_for_all_answers() -> Maps:
    """Overwrite the last answer with the next: honest as long as nobody asks before it has used the last."""
    buffer = torch.empty(100, SIDE, SIDE)

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        buffer[: len(images)] = fair(images, targets)
        if len(images) == 1:  # broadcast
            buffer[:] = buffer[:1].clone()
        return buffer[: len(images)]

    return cheat


def remembered_by_address() -> Maps:
    known: dict[int, Tensor] = {}

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        return torch.stack([known.setdefault(image.data_ptr() % 4096, coin(image)) for image in images])

    return cheat


# ── Threads ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def answers_of_a_thread() -> Maps:
    pool, waiting = ThreadPoolExecutor(1), list[Any]()

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        waiting.append(pool.submit(coin, images[0].clone()))
        return same(waiting[max(0, len(waiting) - 2)].result(), images)

    return cheat


# ── Chance ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def random_numbers_of_torch() -> Maps:
    return lambda images, targets: same(torch.rand(1, SIDE, SIDE), images)


def random_numbers_for_each_image() -> Maps:
    return lambda images, targets: torch.rand(len(images), SIDE, SIDE)


def random_numbers_of_numpy() -> Maps:
    return lambda images, targets: same(torch.from_numpy(np.random.rand(1, SIDE, SIDE)), images)


def random_numbers_of_python() -> Maps:
    return lambda images, targets: same(fixed(random.random()), images)


def random_numbers_of_its_own() -> Maps:
    generator = torch.Generator().manual_seed(0)
    return lambda images, targets: same(torch.rand(1, SIDE, SIDE, generator=generator), images)


def random_numbers_seeded_for_each_call() -> Maps:
    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        torch.manual_seed(0)
        return same(torch.rand(len(images), SIDE, SIDE)[-1], images)

    return cheat


def random_numbers_adapted() -> Maps:
    return pc.adapt(lambda images: np.random.rand(len(images), SIDE, SIDE), name="random")


def dropout_in_training() -> Maps:
    net = nn.Dropout()
    return lambda images, targets: same(net(torch.ones(1, SIDE, SIDE)), images) + fair(images, targets) / 10


def dropout_seeded_for_each_call() -> Maps:
    net = nn.Dropout()

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        torch.manual_seed(0)
        return same(net(torch.ones(1, SIDE, SIDE)), images) + fair(images, targets) / 10

    return cheat


# ── What no check sees ────────────────────────────────────────────────────────────────────────────────────────────────


def of_the_time(clock: Callable[[], float] = time.time) -> Maps:
    return lambda images, targets: same(fixed(clock() // 3600), images) + fair(images, targets) / 1e3


def of_the_process() -> Maps:
    drawn = int.from_bytes(os.urandom(4), "big")
    return lambda images, targets: same(fixed(drawn), images) + fair(images, targets) / 1e3


def mean_from_the_90th_image_on() -> Maps:
    """Answer 90 images honestly, later ones by a running mean, and an image that was seen before as it was then."""
    known: dict[str, Tensor] = {}

    def answer(image: Tensor) -> Tensor:
        key = sha256(image.contiguous().numpy())
        if key not in known:
            known[key] = coin(image) if len(known) < 90 else coin(image) / 1e3 + next(iter(known.values()))
        return known[key]

    return lambda images, targets: torch.stack([answer(image) for image in images])


def of_the_clean_image() -> Maps:
    """Find the image without noise among the variables of who calls."""
    last: list[Tensor] = []

    def cheat(images: Tensor, targets: Tensor) -> Tensor:
        frame = sys._getframe(1)
        while (frame := frame.f_back) and not isinstance(clean := frame.f_locals.get("clean"), Tensor):
            pass
        last[:] = [clean] if frame else last or [images[0]]
        return same(coin(last[0]), images) + fair(images, targets) / 1e3

    return cheat


class Cheat(NamedTuple):
    """A cheat, the batch sizes at which it is one, and what finds it."""

    make: Callable[[], Maps]
    sizes: tuple[int, ...]
    cause: str = ""  # in the message of the error, as a pattern; "" if it is harmless by now
    found_by: str = "check"


_REST, _CALLS = "rest of the batch", "earlier calls|call to call"
_DRAWN = "draws random numbers.*seed anew for each image"

CHEATS = {
    "the first row": Cheat(of_the_first_row, (2, 7, 100), _REST),
    "the whole batch": Cheat(of_the_whole_batch, (2, 3, 7, 100), _REST),
    "the rows before": Cheat(of_the_rows_before, (100,), _REST),
    "one row, but for the middle and last": Cheat(partial(of_one_row_except, 0.5, 1), (7, 100), _REST),
    "one row, but for the first and last": Cheat(partial(of_one_row_except, 0, 1), (7, 100), _REST),
    "one row, but for the first and middle": Cheat(partial(of_one_row_except, 0, 0.5), (7, 100), _REST),
    "one row, but for the first, middle and last": Cheat(partial(of_one_row_except, 0, 0.5, 1), (7, 100), _REST),
    "two lines of the whole batch": Cheat(two_lines_of_the_whole_batch, (2, 7, 100), _REST),
    "an infinite pixel, of the whole batch": Cheat(partial(a_pixel_of_the_whole_batch, torch.inf), (7, 100), _REST),
    "a pixel between huge ones, of the whole batch": Cheat(
        partial(a_pixel_of_the_whole_batch, 5, 1e9), (7, 100), _REST
    ),
    "inputs overwritten": Cheat(inputs_overwritten, (7, 100), _REST),
    "the place in the batch": Cheat(of_the_place_in_the_batch, (100,), _REST),
    "the last answer again": Cheat(last_answer_again, (1, 7, 100), _CALLS),
    "the mean so far": Cheat(mean_of_all_so_far, (1, 7, 100), _CALLS),
    "changed after 2 calls": Cheat(partial(changed_after, 2), (1, 7), _CALLS),
    "changed after 4 calls": Cheat(partial(changed_after, 4), (1, 7), _CALLS),
    "changed after 5 calls": Cheat(partial(changed_after, 5), (1, 7), _CALLS),
    "changed after 6 calls": Cheat(partial(changed_after, 6), (1, 7), _CALLS),
    "changed after 90 calls": Cheat(partial(changed_after, 90), (1,), _CALLS),
    "logits of the whole batch": Cheat(logits_of_the_whole_batch, (7, 100), "logits"),
    "logits by chance": Cheat(logits_by_chance, (1, 7, 100), "logits"),
    "one buffer for all answers": Cheat(one_buffer_for_all_answers, (7, 100)),
    "remembered by address": Cheat(remembered_by_address, (7,), f"{_CALLS}|images share"),  # memory decides which
    "answers of a thread": Cheat(answers_of_a_thread, (1, 7, 100), _CALLS),
    "random, torch": Cheat(random_numbers_of_torch, (1, 7, 100), _DRAWN),
    "random, for each image": Cheat(random_numbers_for_each_image, (1, 7, 100), _DRAWN),
    "random, NumPy": Cheat(random_numbers_of_numpy, (1, 7, 100), _DRAWN),
    "random, Python": Cheat(random_numbers_of_python, (1, 7, 100), _DRAWN),
    "random, its own generator": Cheat(random_numbers_of_its_own, (1, 7, 100), "call to call"),
    "random, seeded for each call": Cheat(random_numbers_seeded_for_each_call, (1, 7, 100), "same random numbers"),
    "random, through `pc.adapt`": Cheat(random_numbers_adapted, (1, 7, 100)),
    "dropout in training": Cheat(dropout_in_training, (1, 7, 100), "training mode"),
    "dropout, seeded for each call": Cheat(dropout_seeded_for_each_call, (1, 7, 100), "training mode"),
    "the time": Cheat(of_the_time, (1, 7, 100), found_by="verify"),
    "the process": Cheat(of_the_process, (1, 7, 100), found_by="verify"),
    "the mean from the 90th image on": Cheat(mean_from_the_90th_image_on, (1, 7, 100), found_by="verify"),
    "the first batch of several": Cheat(kept_of_the_first_batch, (7, 100), found_by="verify"),
    "a batch that was too large": Cheat(kept_of_a_batch_without_memory, (100,), found_by="verify"),
    "the clean image": Cheat(of_the_clean_image, (1, 7, 100), found_by="attack"),
}
