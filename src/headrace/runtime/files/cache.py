"""What headrace keeps once per user, for all projects: jars and the bundled Java's home."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache_folder(environ: Mapping[str, str]) -> Path:
    """The per-user cache: ``HEADRACE_CACHE``, else ``headrace`` under ``XDG_CACHE_HOME``."""
    if chosen := environ.get("HEADRACE_CACHE"):
        return Path(chosen).expanduser().absolute()
    if base := environ.get("XDG_CACHE_HOME"):
        return Path(base).absolute() / "headrace"
    return Path(environ.get("HOME") or Path.home()) / ".cache" / "headrace"
