"""The formats of tables in the lake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from headrace.sinks.lake.layout import TimeUnit

CATALOGS = ("sql", "rest", "glue", "hive")
"""Kinds of catalogs of Iceberg tables, as ``[sinks.lake]`` names them; the first by default."""


@dataclass(frozen=True)
class Delta:
    """A Delta table: its log is in the folder of the table, and it needs no catalog.

    Partitions by time are the columns ``day`` and ``hour``.
    """


@dataclass(frozen=True)
class Iceberg:
    """An Apache Iceberg table in a catalog; :mod:`headrace.sinks.lake.iceberg` has the contract.

    The catalog is that of ``[sinks.lake]`` in headrace.toml; without it, a file in a lake that is
    a folder of this machine.

    Attributes:
        namespace: of the table in the catalog; it is made when it is missing.
    """

    namespace: str = "default"

    @staticmethod
    def partitions(partition_by: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the partitions of a table: Iceberg's hour is one of a certain day.

        So an hour makes a day redundant, and takes its place.
        """
        if TimeUnit.HOUR not in partition_by:
            return partition_by
        named = (TimeUnit.HOUR.value if name in set(TimeUnit) else name for name in partition_by)
        return tuple(dict.fromkeys(named))


TableFormat: TypeAlias = Delta | Iceberg
