"""What pipelines, workers, tables and columns may be called."""

from __future__ import annotations

import re

# Also the name of a folder, a consumer group and a label in metrics, so it is narrow: no slash, no
# space, no dot at the beginning.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NAME_WORDS = "up to 100 letters, digits, '.', '_', '-'"
NAME_ROLE = f"{NAME_WORDS}: it names a consumer group and a folder"
OWN_PREFIX = "_headrace"


def is_own_column(name: str) -> bool:
    """Returns whether a column's name is headrace's own, in any case, as Spark compares names."""
    return name.lower().startswith(OWN_PREFIX)
