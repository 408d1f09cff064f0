"""The stack of a suspended coroutine."""

from __future__ import annotations

import traceback
from collections.abc import Coroutine, Iterator
from types import FrameType
from typing import Any


def where_suspended(coroutine: Coroutine[Any, Any, Any]) -> str:
    """Returns the stack of ``coroutine``, the innermost call last.

    A task's own ``get_stack`` has the outermost call alone.
    """
    frames = ((frame, frame.f_lineno) for frame in _frames(coroutine))
    return "".join(traceback.StackSummary.extract(frames).format())


def _frames(waiting: Any) -> Iterator[FrameType]:
    while waiting is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(waiting, f"{kind}_frame", None)
            if frame is not None:
                yield frame
                waiting = getattr(
                    waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None
                )
                break
        else:
            return
