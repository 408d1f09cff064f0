"""pyarrow without pandas, for commands that only ask."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ImportError(name)


def keep_pandas_out() -> None:
    """Makes pyarrow work without pandas in this process, if neither of them is loaded yet.

    At its first value pyarrow imports pandas, to ask whether the value is one of its series. That
    takes longer than most commands. Others can still import pandas afterwards; but pyarrow converts
    nothing from or to it any more.
    """
    if {"pandas", "pyarrow"} & sys.modules.keys():
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.scalar(0)
    except ImportError:
        pass  # commands that need pyarrow name the extra that installs it
    finally:
        sys.meta_path.remove(finder)
