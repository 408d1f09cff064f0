"""The driver's half of several servers: a batch is committed at one after the other."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import TableMismatchError
from headrace.sinks.api import CommitRejection, CommitResult, SinkDriver, Transaction
from headrace.sinks.postgres.servers.address import at_server
from headrace.sinks.postgres.servers.by_server import ByServer
from headrace.sinks.postgres.servers.positions import ServersPositions
from headrace.sinks.postgres.servers.standing import (
    AS_BEFORE,
    RecordIds,
    ServerRecord,
    check_sharding,
    members_of,
    newest_of,
    settled_in,
)
from headrace.sinks.postgres.servers.writer import (
    ServersWriter,
    check_rows,
    pieces_at,
    pieces_by_server,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.sinks.postgres.servers.records import ServerRecords


class BatchRecord:
    """What servers record beside the positions of the batch that is being committed."""

    def __init__(self) -> None:
        self.versions: Mapping[str, int] = {}


class ServersDriver(SinkDriver):
    """The open tables of all servers.

    Where a server rejects rows at its commit, those before it have committed: a repeat of the batch
    leaves them out.

    Args:
        drivers: of the servers, by name.
        sharding: which server has a row.
        pipeline: its name.
        positions: what the servers record, as one.
        record: what the drivers record beside the positions.
    """

    def __init__(
        self,
        drivers: Mapping[str, SinkDriver],
        sharding: ByServer,
        pipeline: str,
        positions: ServersPositions,
        record: BatchRecord,
    ) -> None:
        self._drivers, self._sharding = dict(sorted(drivers.items())), sharding
        self._ids = RecordIds(pipeline)
        self._record = record
        self._batch: int | None = None
        self._versions: Mapping[str, int] = {}
        self._done: dict[str, CommitResult] = {}
        self.positions = self._positions = positions
        writers = {name: driver.writers for name, driver in self._drivers.items()}
        self.writers = functools.partial(ServersWriter, writers, sharding)

    def commit(
        self, pieces: Sequence[str], transaction: Transaction, watermark_us: int
    ) -> CommitResult | CommitRejection:
        """Commits at each server that lacks the batch, also where it has no rows.

        Raises:
            SinkError: if a server does not take it. Those before it have it.
        """
        if self._versions != transaction.versions:  # not another attempt at the same batch
            self._versions, self._done = transaction.versions, {}
        if self._batch is None:
            self._batch = self._positions.standing().batch
        number = self._batch + 1
        self._record.versions = self._ids.versions(number, self._drivers, self._sharding.number)
        own = pieces_by_server(pieces)
        for name, driver in self._drivers.items():
            if name in self._done:
                self._discard(name, own.get(name, []))
                continue
            with at_server(name):
                done = driver.commit(own.get(name, []), transaction, watermark_us)
            if isinstance(done, CommitRejection):
                others = (it for it in own if it != name and it not in self._done)
                left = [piece for it in others for piece in pieces_at(it, own[it])]
                return replace(done, pieces=[*pieces_at(name, done.pieces), *left])
            if not done.is_new:
                self._discard(name, own.get(name, []))
            self._done[name] = done
        result = self._result()
        # Where all had it, another driver may have committed more.
        self._batch = number if result.is_new else None
        return result

    def _result(self) -> CommitResult:
        done, self._versions = list(self._done.values()), {}
        figures: Counter[str] = Counter()
        for result in done:
            figures.update(result.figures)
        is_new = any(result.is_new for result in done)
        return CommitResult(is_new, sum(result.rows for result in done), figures)

    def discard(self, pieces: Sequence[str]) -> None:
        """Drops the staging tables of each server that answers."""
        for name, own in pieces_by_server(pieces).items():
            self._discard(name, own)

    def _discard(self, server: str, pieces: Sequence[str]) -> None:
        if pieces:
            self._drivers[server].discard(pieces)

    def close(self, max_wait_seconds: float) -> None:
        """Closes the drivers of all servers."""
        for driver in self._drivers.values():
            driver.close(max_wait_seconds)


def open_servers(
    sharding: ByServer,
    records: ServerRecords,
    schema: pa.Schema,
    open_at: Callable[[str, BatchRecord], SinkDriver],
) -> ServersDriver:
    """Opens the tables of all servers, and gives those that join the positions of the others.

    Args:
        sharding: which server has a row.
        records: of the pipeline.
        schema: of the rows.
        open_at: opens the table of a server, which records that beside its positions.

    Raises:
        TableMismatchError: as ``open_at``; if rows have no such column; if two servers are one
            database; if a server lacks a batch, and rows are sharded in another way since.
        SinkUnavailableError: if a server does not answer.
    """
    check_rows(records.table, sharding, schema)
    drivers, record = {}, BatchRecord()
    for server in sharding.names:
        with at_server(server):
            drivers[server] = open_at(server, record)
    records.check_apart(sharding.names)
    _settle(sharding, records)
    positions = ServersPositions(records, sharding.names)
    return ServersDriver(drivers, sharding, records.pipeline, positions, record)


def _settle(sharding: ByServer, records: ServerRecords) -> None:
    """Records how rows are sharded at all servers, where it is another way than before.

    Servers that join get the positions of the others, and their record with them. A crash at any
    point leaves what the next start continues.

    Raises:
        TableMismatchError: if a server lacks a batch.
        SinkError: if another driver writes meanwhile.
    """
    names, number = sharding.names, sharding.number
    declared = {server: records.read(server) for server in names}
    record_of = functools.partial(_record_of_former, records)
    known = check_sharding(records.table, declared, number, record_of)
    newest = newest_of(known)
    if newest.is_of(names, number):
        batch, settled = newest.batch, settled_in(known)
        members = sorted(newest.former.difference(settled))
    else:
        batch = newest.batch + 1
        members = settled = members_of(known) or sorted(names)
    # In the order of commits: a driver that was frozen in one of them is noticed.
    for server in members:
        records.record(server, known[server], batch, names, number)
    for server in names:
        if server not in settled:
            records.copy(settled[0], server, declared[server])


def leave_servers(server: str | None, records: ServerRecords) -> None:
    """Records that a server alone has the rows of a pipeline from now on, if it had others before.

    Raises:
        TableMismatchError: if one of the servers lacks a batch.
        SinkUnavailableError: if one does not answer.
        SinkError: if another driver writes meanwhile.
    """
    own, here = records.read(server), records.address_of(server)
    if not own.batch:
        return
    alone = sorted(name for name in own.servers if records.address_of(name) == here)[:1]
    if not alone:
        reason = f"the batches of the pipeline are at {', '.join(sorted(own.servers))}"
        raise TableMismatchError(records.table, reason)
    is_alone = own.is_of(alone, 0)
    members = own.former.difference(alone) if is_alone else own.servers
    known = {name: _record_of_former(records, name) for name in members}
    left = [name for name in sorted(known) if not known[name].is_of(alone, 0)]
    if not is_alone and any(known[name].batch != own.batch for name in left):
        reason = f"not all of its servers have the same batches: {', '.join(sorted(known))}"
        raise TableMismatchError(records.table, f"{reason}. {AS_BEFORE}")
    batch = own.batch if is_alone else own.batch + 1
    for name in left:
        records.record(name, known[name], batch, alone)
    if members:
        # So that the next start need not ask those that have left.
        records.record(server, records.read(server), batch + 1, alone)


def _record_of_former(records: ServerRecords, server: str) -> ServerRecord:
    """Returns the record of a server that may be declared no more.

    Raises:
        TableMismatchError: if it has no address any more.
    """
    if server not in records.names:
        reason = (
            f"server {server} may lack the last batch of the pipeline, and headrace.toml has no"
            f" [sinks.postgres.{server}]. Name it there until a batch has been written without it"
        )
        raise TableMismatchError(records.table, reason)
    return records.read(server)
