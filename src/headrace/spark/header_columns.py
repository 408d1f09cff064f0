"""Headers of records as columns of Spark's: where records have been, and when they happened.

They are written in functions that Spark knows, since its real-time mode runs no Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.kafka.origin import ORIGIN, ORIGIN_PATTERN

if TYPE_CHECKING:
    from pyspark.sql import Column

TIMESTAMP = "headrace-timestamp"
"""The name of the header that keeps a record's timestamp, in milliseconds since 1970."""

_HEADERS = "array<struct<key:string,value:binary>>"
_WHOLE = f"^{ORIGIN_PATTERN}\\z"
_AFTER_LAST_MS = 253_402_300_800_000  # the year 10,000
_SITE, _TOPIC, _PARTITION, _OFFSET = range(1, 5)


def headers_or_empty(headers: Column) -> Column:
    """Returns the headers of Spark's Kafka source, an empty array where a record has none."""
    from pyspark.sql import functions as f

    return f.coalesce(headers, f.array().cast(_HEADERS))


def header(name: str, value: Column) -> Column:
    """Returns a header."""
    from pyspark.sql import functions as f

    return f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))


def origin_sites(headers: Column) -> Column:
    """Returns the sites that records have been at, the first one first."""
    from pyspark.sql import functions as f

    return f.transform(_origins(headers), lambda value: f.regexp_extract(value, _WHOLE, _SITE))


def last_origin(headers: Column, site: str, topic: str) -> Column:
    """Returns the offset at a site that a record was copied from; null: it was not.

    Its partition is that of the record.

    Args:
        headers: of :func:`headers_or_empty`.
        site: the one that it was copied from last.
        topic: of that site.
    """
    from pyspark.sql import functions as f

    values = _origins(headers)
    last = f.get(values, f.size(values) - 1)

    def part(group: int) -> Column:
        return f.regexp_extract(last, _WHOLE, group)

    is_copy = (
        (part(_SITE) == site)
        & (part(_TOPIC) == topic)
        & (part(_PARTITION) == f.col("partition").cast("string"))
    )
    return f.when(is_copy, part(_OFFSET).try_cast("long"))


def time_ms(headers: Column) -> Column:
    """Returns when records happened, in milliseconds since 1970: at the source, as far as known.

    Null where the header of a dispatcher holds no number, or a time after the year 9999.
    """
    from pyspark.sql import functions as f

    times = f.filter(headers, lambda pair: pair["key"] == TIMESTAMP)
    kept = f.get(times, f.lit(0))["value"].cast("string").try_cast("long")
    known = f.when(kept < _AFTER_LAST_MS, f.greatest(kept, f.lit(1)))
    return f.when(f.size(times) > 0, known).otherwise(own_time_ms())


def own_time_ms() -> Column:
    """Returns the timestamps of records, in milliseconds since 1970; 1 for those before.

    Null for those after the year 9999.
    """
    from pyspark.sql import functions as f

    # Mirrors and mergers write none before: to librdkafka, 0 is the time of the clock.
    own = f.unix_millis("timestamp")
    return f.when(own < _AFTER_LAST_MS, f.greatest(own, f.lit(1)))


def _origins(headers: Column) -> Column:
    """The values of the headers that name an origin."""
    from pyspark.sql import functions as f

    own = f.filter(headers, lambda pair: pair["key"] == ORIGIN)
    values = f.transform(own, lambda pair: pair["value"].cast("string"))
    return f.filter(values, lambda value: value.rlike(_WHOLE))
