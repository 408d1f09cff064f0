"""Types of options, and options that commands share."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import click

from headrace.model import TopicPartition
from headrace.runtime.logs import LOG_FORMATS
from headrace.settings import MASTERS, Secret, environment, master_problem

# Kafka makes folders of topics, so `.` and `..` are no names.
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_MAX_PORT = 65_535
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "kib": 1 << 10, "mib": 1 << 20}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A duration such as 90d, 12h, 30m."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Parses a number and a unit, above zero."""
        if isinstance(value, timedelta):
            return value
        # Six digits of any unit fit into a timedelta.
        parts = re.fullmatch(r"([1-9][0-9]{0,5})([smhdw])", str(value))
        if parts is None:
            self.fail(f"{value!r} is no duration; write 90d, 12h, 30m or 45s", param, ctx)
        return timedelta(**{_UNITS[parts[2]]: int(parts[1])})


class Time(click.ParamType):  # type: ignore[type-arg]
    """A time in ISO 8601, of UTC where it has no zone."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Returns the time with its zone."""
        if isinstance(value, datetime):
            return value
        try:
            time = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no time; write 2026-11-21T18:00:00Z", param, ctx)
        # The machine's zone would make a command mean something else on each host.
        return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


class RecordStart(click.ParamType):  # type: ignore[type-arg]
    """Which record of a topic comes first: that of a word, or the first since a time."""

    def __init__(self, *words: str) -> None:
        self._words = words or ("earliest", "latest")
        self.name = "|".join((*self._words, "time"))

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | datetime:
        """Returns one of the words, or a time with its zone."""
        if value in self._words:
            return str(value)
        try:
            return Time().convert(value, param, ctx)
        except click.BadParameter:
            words = ", ".join(self._words)
            self.fail(
                f"{value!r} is no start in a topic; write {words}, or a time such as "
                "2026-11-21T18:00:00Z",
                param,
                ctx,
            )


class Amount(click.ParamType):  # type: ignore[type-arg]
    """A number above zero, exact: 2650, 57.74k, 1.5M, 2e6."""

    name = "number"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Fraction:
        """Parses a number; K (or k), M and G are thousands, millions, thousands of millions."""
        if isinstance(value, Fraction):
            return value
        amount = _amount(str(value), _DECIMAL)
        if not amount:
            self.fail(f"{value!r} is no number above 0; write 20000, 57.74K or 1M", param, ctx)
        return amount


class ByteSize(click.ParamType):  # type: ignore[type-arg]
    """Bytes above zero: 2500, 2.5kB (thousands) or 2KiB (1,024)."""

    name = "bytes"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Fraction:
        """Parses a size. Its unit must say which thousand is meant, which a K alone does not."""
        if isinstance(value, Fraction):
            return value
        amount = _amount(str(value), _BYTES)
        if not amount:
            self.fail(
                f"{value!r} is no size; write 2500, 2.5kB (2,500) or 2KiB (2,048)", param, ctx
            )
        return amount


def _amount(text: str, units: Mapping[str, int]) -> Fraction | None:
    # Bounded, since a Fraction is exact: it would compute with every digit that is typed.
    parts = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?(?:e[0-9]{1,2})?)([A-Za-z]*)", text)
    unit = units.get(parts[2].lower()) if parts else None
    return Fraction(parts[1]) * unit if parts and unit else None


class DatabaseUrl(click.ParamType):  # type: ignore[type-arg]
    """A URL such as postgresql://user:${VAR}@host/database; variables are of the environment."""

    name = "url"
    _placeholder = re.compile(r"\$\{(\w+)\}")

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Secret:
        """Returns the URL with its variables filled in; it prints as stars."""
        if isinstance(value, Secret):
            return value
        known = environment()
        text = str(value)
        # Passwords belong into the environment: others on the machine see the command line.
        for name in self._placeholder.findall(text):
            if name not in known:
                self.fail(f"environment variable {name} is not set", param, ctx)
        url = self._placeholder.sub(lambda match: known[match[1]], text)
        if not url.startswith(("postgresql://", "postgres://")):
            self.fail("the URL begins with neither postgresql:// nor postgres://", param, ctx)
        return Secret(url)


class Master(click.ParamType):  # type: ignore[type-arg]
    """A supported URL of Spark's master."""

    name = "url"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Returns the URL as it is."""
        problem = master_problem(str(value))
        if problem is not None:
            self.fail(f"{value!r}: {problem}; {MASTERS}", param, ctx)
        return str(value)


class TableRoute(click.ParamType):  # type: ignore[type-arg]
    """``TABLE=DESTINATION``, or ``TABLE`` for the destination of that name."""

    name = "table[=destination]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Returns the names of the table and of its destination."""
        if isinstance(value, tuple):
            return value
        table, equals, destination = str(value).partition("=")
        if not table or (equals and not destination):
            self.fail(f"{value!r} is neither TABLE nor TABLE=DESTINATION", param, ctx)
        return table, destination or table


class PartitionName(click.ParamType):  # type: ignore[type-arg]
    """``TOPIC/PARTITION``, such as clicks/3."""

    name = "topic/partition"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> TopicPartition:
        """Returns the partition; it need not exist."""
        if isinstance(value, TopicPartition):
            return value
        topic, _, number = str(value).rpartition("/")
        if not topic or not (number.isascii() and number.isdigit()):
            self.fail(f"{value!r} is not TOPIC/PARTITION, such as clicks/3", param, ctx)
        return TopicPartition(topic, int(number))


class Header(click.ParamType):  # type: ignore[type-arg]
    """``NAME=VALUE``, a header of a record."""

    name = "name=value"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, bytes]:
        """Returns the name, and the bytes of the value as they were typed."""
        if isinstance(value, tuple):
            return value
        name, equals, content = str(value).partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return Text().convert(name, param, ctx), os.fsencode(content)


class Text(click.ParamType):  # type: ignore[type-arg]
    """Text that has bytes in UTF-8; arguments of the command line may be any bytes."""

    name = "text"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Returns the text as it is."""
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"{value!r} is not UTF-8", param, ctx)
        return text


class TopicName(Text):
    """A name that Kafka takes for a topic."""

    name = "topic"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Returns the name as it is."""
        topic = super().convert(value, param, ctx)
        if not _TOPIC.fullmatch(topic):
            words = "write 1 to 249 letters, digits, '.', '_' or '-'"
            self.fail(f"{topic!r} is no name of a topic; {words}", param, ctx)
        return topic


metrics_port = click.option(
    "--metrics-port", type=click.IntRange(1, _MAX_PORT), help="Serve /metrics on this port."
)
metrics_host = click.option(
    "--metrics-host", default="127.0.0.1", show_default=True, help="Address of --metrics-port."
)
log_format = click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    help="Write log lines in this format, and to standard error too.",
)
queries_name = click.option(
    "--in",
    "queries",
    metavar="NAME",
    help="The StandingQueries, where the project declares several.",
)
