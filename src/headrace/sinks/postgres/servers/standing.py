"""What servers record of the batches of a pipeline that writes to several of them.

A batch is committed at one server after the other, in one transaction at each. Beside the positions
of the batch, each of them records in ``headrace.positions``:

================================ ================================================================
headrace.<pipeline>/servers      how rows are sharded, :attr:`ByServer.number`
headrace.<pipeline>/server/<s>   number of the batch, for each server ``s`` that it is committed at
================================ ================================================================

So at any moment servers stand at the same batch, or a crash has left some of them one behind. Where
the pipeline stands is what the last of them records. It repeats the batch from there; servers that
have it leave it out, as they leave out any batch that is repeated.

That is exact only if the same rows go to the same servers. So while a server lacks a batch, another
sharding is refused, also where a declaration no longer names that server. A server that joins gets
the positions of the others. Before the first batch of a sharding, all servers record it, those that
leave too, as a batch without positions: whichever of them a later declaration names, it is known
there which others may have a batch. A driver that was frozen meanwhile, and shards rows in another
way, is refused by each server that has recorded it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from headrace.errors import TableMismatchError

AS_BEFORE = "Start the pipeline once with `server` as it was before: it completes the batch"


@dataclass(frozen=True)
class ServerRecord:
    """What one server records of a pipeline.

    Attributes:
        batch: number of the last batch, from 1; 0: its pipeline has not written to several servers.
        servers: names of those that the batch is committed at.
        sharding: how rows are sharded; 0: they are at one server.
        former: names of servers that have left since, until the next batch.
        has_positions: whether it records any position of the pipeline.
    """

    batch: int = 0
    servers: frozenset[str] = frozenset()
    sharding: int = 0
    former: frozenset[str] = frozenset()
    has_positions: bool = False

    def is_of(self, servers: Collection[str], sharding: int) -> bool:
        """Whether rows are sharded in this way, over these servers."""
        return self.sharding == sharding and self.servers == frozenset(servers)


class RecordIds:
    """Application ids under which a server records the batches of a pipeline."""

    def __init__(self, pipeline: str) -> None:
        self.pipeline = f"headrace.{pipeline}"
        self.sharding = f"{self.pipeline}/servers"
        self._of_server = f"{self.pipeline}/server/"

    @property
    def prefix(self) -> str:
        """What all ids of the pipeline begin with, but for its own."""
        return f"{self.pipeline}/"

    @property
    def of_batches(self) -> str:
        """What the ids begin with that a record is made of, but for that of the pipeline."""
        return f"{self.pipeline}/server"

    def versions(self, batch: int, servers: Collection[str], sharding: int) -> dict[str, int]:
        """Returns what a batch records."""
        return {self.sharding: sharding, **{f"{self._of_server}{name}": batch for name in servers}}

    def record(self, versions: Mapping[str, int]) -> ServerRecord:
        """Returns what the ids of a server say."""
        batches = {
            app_id.removeprefix(self._of_server): batch
            for app_id, batch in versions.items()
            if app_id.startswith(self._of_server)
        }
        newest = max(batches.values(), default=0)
        # Servers of an earlier sharding stay with the numbers of their last batches.
        servers = frozenset(name for name, batch in batches.items() if batch == newest)
        former = frozenset(name for name, batch in batches.items() if batch == newest - 1)
        has_positions = self.pipeline in versions
        return ServerRecord(newest, servers, versions.get(self.sharding, 0), former, has_positions)


@dataclass(frozen=True)
class ServersStanding:
    """The batches that the servers of a pipeline have.

    Attributes:
        batch: number of the last batch that all of its servers have; 0: none.
        last: a server that has no batch beyond; None: no server has a position of the pipeline.
        joining: servers that are declared and get the positions of ``last``.
    """

    batch: int = 0
    last: str | None = None
    joining: tuple[str, ...] = ()

    @classmethod
    def of(cls, records: Mapping[str, ServerRecord]) -> ServersStanding:
        """Returns where the declared servers stand by what they record."""
        own = members_of(records)
        joining = tuple(sorted(records.keys() - own))
        if not own:
            return cls(joining=joining)
        last = min(own, key=lambda name: records[name].batch)
        return cls(records[last].batch, last, joining)


def check_sharding(
    table: str,
    records: Mapping[str, ServerRecord],
    sharding: int,
    record_of: Callable[[str], ServerRecord],
) -> Mapping[str, ServerRecord]:
    """Returns what servers record, if rows may be sharded in this way from now on.

    Args:
        table: its name, for messages.
        records: of the servers that are declared.
        sharding: how rows are sharded from now on.
        record_of: returns the record of a server that is not declared.

    Returns:
        the records of the servers that are declared, and of others that had the last batch.

    Raises:
        TableMismatchError: if rows were sharded in another way, and a server lacks a batch that
            another one has, or none of those that have the last batch is declared; or if several
            servers have been written to, one at a time.
    """
    newest = newest_of(records)
    alone = sorted(name for name, record in records.items() if record.has_positions)
    if not newest.batch and len(alone) > 1:
        reason = (
            f"servers {' and '.join(alone)} each have positions of the pipeline, which has written"
            " to one of them at a time. Delete those in headrace.positions of the servers that it"
            " did not write to last"
        )
        raise TableMismatchError(table, reason)
    # One that is not declared may have a batch that no other has, or lack one.
    known = dict(records)
    while unknown := sorted((newest.servers | newest.former) - known.keys()):
        known |= {name: record_of(name) for name in unknown}
        newest = newest_of(known)
    if newest.is_of(records, sharding):
        return known
    if lacking := sorted(it for it in newest.servers if known[it].batch < newest.batch):
        reason = f"server {lacking[0]} lacks a batch, and rows are sharded in another way since"
        raise TableMismatchError(table, f"{reason}. {AS_BEFORE}")
    if newest.batch and not newest.servers & records.keys():
        names = ", ".join(sorted(newest.servers))
        reason = f"none of its servers has the batches of the pipeline. Declare one of {names}, too"
        raise TableMismatchError(table, reason)
    return known


def newest_of(records: Mapping[str, ServerRecord]) -> ServerRecord:
    """Returns the record of the last batch."""
    return max(records.values(), key=lambda record: record.batch)


def members_of(records: Mapping[str, ServerRecord]) -> list[str]:
    """Returns the servers that have the positions of the pipeline, as the newest record says.

    One that is named there, and has no such record, is yet to get them.
    """
    newest = newest_of(records)
    if not newest.batch:
        return sorted(name for name, record in records.items() if record.has_positions)
    return [name for name in settled_in(records) if name in newest.servers]


def settled_in(records: Mapping[str, ServerRecord]) -> list[str]:
    """Returns the servers that record the sharding of the newest record, also those that left."""
    newest = newest_of(records)
    return sorted(
        name for name, record in records.items() if record.is_of(newest.servers, newest.sharding)
    )
