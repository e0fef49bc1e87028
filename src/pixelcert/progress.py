"""Progress: how whoever waits is told how far something is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]  # (done, planned), as often as there is news
Track = Callable[[str], Progress]  # for each of several things, by name
