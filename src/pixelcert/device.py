"""Devices, by the names that torch gives them."""

from __future__ import annotations

import torch

from .errors import ArgumentError


def check_device(device: str | None) -> None:
    """Refuse a device that cannot hold a number and give it back, before a network is loaded for it."""
    if not device:
        return
    try:
        torch.zeros(1, device=device).item()
    except Exception as error:  # torch raises anything for devices that it knows by name alone
        reason = str(error).partition("\n")[0]
        raise ArgumentError(f"device={device} cannot be used ({reason}): leave it out, or use cpu.") from error
