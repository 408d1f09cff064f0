"""What errors say while a topic is copied into another one."""

from __future__ import annotations

from headrace.links.copying.errors import copy_words

WORDS = copy_words("change")
