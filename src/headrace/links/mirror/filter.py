"""Which records a mirror copies: all but loops.

A loop has been at the target before, or has left the source and come back. A record whose origins
name the source last has not left it: a link within that site has copied it.
"""

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
    """The rule of a mirror between two sites."""

    source: str
    target: str

    def counter_of(self, headers: Collection[tuple[str, bytes | None]]) -> MirrorCounter:
        """Returns what a record counts as, by its headers: ``records`` are copied, others not."""
        # Most records have no headers, or no origin: a look for it is cheaper than reading origins.
        if not headers or ORIGIN not in dict(headers):
            return "records"
        sites = [origin.site for origin in origins(headers)]
        while sites and sites[-1] == self.source:
            sites.pop()
        is_loop = self.source in sites or self.target in sites
        return "loops_skipped" if is_loop else "records"

    def is_copied_column(self, headers: Column) -> Column:
        """Returns whether records are copied, by their headers, none of them null."""
        from pyspark.sql import functions as f

        sites = origin_sites(headers)
        first = f.array_position(sites, self.source)  # from 1 on; 0: it is not there
        left = f.filter(sites, lambda site, at: (first > 0) & (at >= first) & (site != self.source))
        return ~f.array_contains(sites, self.target) & (f.size(left) == 0)
