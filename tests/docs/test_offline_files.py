"""The reference of offline files lists every reason that the code has, and no other."""

from __future__ import annotations

import re

from headrace.offline_files.entry import read_line
from headrace.sinks.postgres.rows.json_rows import RowFault

_PAGE = "docs/reference/offline-files.md"
_ROW = re.compile(r"^\| `(?P<reason>[^`]+)`", re.MULTILINE)
_LISTED = re.compile(r"^ +([a-z]+(?:-[a-z0-9]+)*) +\S", re.MULTILINE)


def test_every_reason_is_documented(pages: dict[str, str]) -> None:
    of_a_line, of_a_row = pages[_PAGE].partition("\n## Reasons\n")[2].split("Into topics there are")
    assert _ROW.findall(of_a_line) == [*_listed(read_line.__doc__), "unknown-table"]
    assert _ROW.findall(of_a_row) == _listed(RowFault.__doc__)


def _listed(docstring: str | None) -> list[str]:
    _, table, _ = re.split(r"^ *=+ =+$", docstring or "", maxsplit=2, flags=re.MULTILINE)
    return _LISTED.findall(table.partition("\n    ====")[0])
