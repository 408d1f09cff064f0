"""Hashes of texts that are the same in all processes and versions."""

from __future__ import annotations

import hashlib

HASH_BITS = 64


def text_hash(text: str) -> str:
    """Returns the hash of a text, as 16 hex digits."""
    return hashlib.blake2b(text.encode(), digest_size=HASH_BITS // 8).hexdigest()
