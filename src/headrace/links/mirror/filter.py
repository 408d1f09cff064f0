"""Which records a mirror copies: all but loops, which have been at one of its sites before."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kafka.origin import ORIGIN, origins
from headrace.spark.header_columns import origin_sites

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headrace.links.mirror.status import MirrorCounter


@dataclass(frozen=True, slots=True)
class MirrorFilter:
    """The rule of a mirror, whose ``sites`` are the source's and the target's."""

    sites: frozenset[str]

    def counter_of(self, headers: Collection[tuple[str, bytes | None]]) -> MirrorCounter:
        """Returns what a record counts as, by its headers: ``records`` are copied, others not."""
        # Most records have no origin, and the look for its header is cheaper than reading origins.
        if ORIGIN not in dict(headers):
            return "records"
        passed = (origin.site for origin in origins(headers))
        return "records" if self.sites.isdisjoint(passed) else "loops_skipped"

    def is_copied_column(self, headers: Column) -> Column:
        """Returns whether records are copied, by their headers, none of them null."""
        from pyspark.sql import functions as f

        sites = f.array(*map(f.lit, sorted(self.sites)))
        return ~f.arrays_overlap(origin_sites(headers), sites)
