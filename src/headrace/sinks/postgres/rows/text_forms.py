"""Texts that columns of times, intervals and areas read in one way, and without rounding.

PostgreSQL reads ``01/02/2026`` by a setting, takes ``today`` for a date and a time of day for
nothing, drops the zone for a ``timestamp``, and rounds what is below microseconds. So such a column
takes only texts of a form: ISO 8601, with a zone where the column keeps it or it is UTC. Forms are
regular expressions that RE2 and PostgreSQL read alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.sinks.api import RejectedRow

if TYPE_CHECKING:
    import pyarrow as pa

_DAY = "[0-9]{4,6}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}(?::[0-5][0-9](?:\.[0-9]{1,6}0*)?)?"
_MIDNIGHT = r"00:00(?::00(?:\.0+)?)?"
_UTC = "(?: ?(?:[zZ]|UTC|[+-]00(?::?00)?))?"
_ZONE = "(?: ?(?:[zZ]|UTC|[+-][0-9]{2}(?::?[0-9]{2})?))?"
_INFINITY = "-?infinity"
# Fractions are of seconds: a fraction of a month is rounded to days.
_INTERVAL = r"(?:[0-9]+[^.0-9eE]|[^.0-9])*[0-9]*(?:\.[0-9]{1,6}0*[ ]*(?:[sS][a-zA-Z]*)?(?: ago)?)?"
# A double keeps all numbers of fifteen digits.
_AREA = "(?:[0-9.]{1,15}[^0-9.]+|[^0-9.])*[0-9.]{0,15}"
FORMS = {
    "date": f"{_DAY}(?:[T ]{_MIDNIGHT}{_UTC})?|{_INFINITY}",
    "time": f"{_TIME}{_UTC}",
    "timetz": f"{_TIME}{_ZONE}",
    "timestamp": f"{_DAY}(?:[T ]{_TIME}{_UTC})?|{_INFINITY}",
    "timestamptz": f"{_DAY}(?:[T ]{_TIME}{_ZONE})?|{_INFINITY}",
    "interval": _INTERVAL,
    **dict.fromkeys(("point", "line", "lseg", "box", "circle", "path", "polygon"), _AREA),
}


def text_form(base: str) -> str | None:
    """Returns the form of texts for a column, by the name of its type; None: any is read as it is.

    The name of an array starts with ``_``.
    """
    form = FORMS.get(base.removeprefix("_"))
    if form is None:
        return None
    if base.startswith("_"):
        element = f'[{{ ]*(?:"?(?:{form})"?|NULL)[}} ]*'
        form = rf"\{{(?:{element}(?:[,;]{element})*)?\}}"
    return f"^(?:{form})$"


def without_form(rows: pa.Table, forms: Mapping[str, str]) -> dict[int, RejectedRow]:
    """Returns the rows with a text in a column whose form it has not, by index."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rejected: dict[int, RejectedRow] = {}
    for name, form in forms.items():
        texts = rows[name].cast(pa.large_string())  # no view has the function
        has_form = pc.fill_null(pc.match_substring_regex(texts, form), fill_value=True)
        detail = (
            f"column {name!r}: its type would round or cut the text, or read it in several ways"
        )
        for index in pc.indices_nonzero(pc.invert(has_form)).to_pylist():
            rejected[index] = RejectedRow(index, "wrong-value", detail)
    return rejected
