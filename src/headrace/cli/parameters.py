"""Types of options, and options that commands share."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import click

from headrace.settings import Secret, environment

_LARGEST_PORT = 65_535
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Such as 90d, 12h, 30m."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """A number and a unit, above zero."""
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"([1-9][0-9]{0,5})([smhdw])", str(value))
        if found is None:
            self.fail(f"{value!r} is no duration; write 90d, 12h, 30m or 45s", param, ctx)
        return timedelta(**{_UNITS[found[2]]: int(found[1])})


class Place(click.ParamType):  # type: ignore[type-arg]
    """Where to begin in a topic: earliest, latest, or a time in ISO 8601, of UTC by default."""

    name = "place"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | datetime:
        """One of the two words, or a time with its zone."""
        if isinstance(value, datetime) or value in ("earliest", "latest"):
            return value
        try:
            time = datetime.fromisoformat(str(value))
        except ValueError:
            words = "write earliest, latest, or a time such as 2026-11-21T18:00:00Z"
            self.fail(f"{value!r} is no place in a topic; {words}", param, ctx)
        return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


class Amount(click.ParamType):  # type: ignore[type-arg]
    """A number above zero, exact: 2650, 57.74K, 1.5M."""

    name = "number"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Fraction:
        """K and M are thousands and millions."""
        if isinstance(value, Fraction):
            return value
        found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([KM]?)", str(value))
        amount = Fraction(found[1]) * {"": 1, "K": 10**3, "M": 10**6}[found[2]] if found else 0
        if not amount:
            self.fail(f"{value!r} is no number above 0; write 20000, 57.74K or 1M", param, ctx)
        return Fraction(amount)


class DatabaseUrl(click.ParamType):  # type: ignore[type-arg]
    """Such as postgresql://user@host/database, with ``${VAR}`` where the password stands."""

    name = "url"
    _placeholder = re.compile(r"\$\{(\w+)\}")

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Secret:
        """The URL with its variables filled in; it prints as stars."""
        if isinstance(value, Secret):
            return value
        known = environment()
        text = str(value)
        for name in self._placeholder.findall(text):
            if name not in known:
                self.fail(f"environment variable {name} is not set", param, ctx)
        url = self._placeholder.sub(lambda found: known[found[1]], text)
        if not url.startswith(("postgresql://", "postgres://")):
            self.fail("the URL begins with neither postgresql:// nor postgres://", param, ctx)
        return Secret(url)


class Route(click.ParamType):  # type: ignore[type-arg]
    """``TABLE=DESTINATION``."""

    name = "table=destination"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Both names."""
        if isinstance(value, tuple):
            return value
        table, equals, destination = str(value).partition("=")
        if not (table and equals and destination):
            self.fail(f"{value!r} is not TABLE=DESTINATION", param, ctx)
        return table, destination


metrics_port = click.option(
    "--metrics-port", type=click.IntRange(1, _LARGEST_PORT), help="Serve /metrics on this port."
)
metrics_host = click.option(
    "--metrics-host", default="127.0.0.1", show_default=True, help="And this address."
)
