"""Digests: what makes two images, models or files the same."""

from __future__ import annotations

import hashlib


def sha256(*parts: bytes | memoryview) -> str:
    """Hexadecimal SHA-256 of the concatenated parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
