"""What pipelines, workers and tables may be called."""

from __future__ import annotations

import re

# Also the name of a folder, a consumer group and a label in metrics, so it is narrow: no slash, no
# space, no dot at the beginning.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NAME_WORDS = "up to 100 letters, digits, '.', '_', '-'"
