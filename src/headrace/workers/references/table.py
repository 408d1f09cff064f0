"""The references of a worker in memory: what was read of each topic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.errors import RegistryUnreachableError
from headrace.events.instances import event_reader
from headrace.kafka.client.headers import headers_of
from headrace.runtime.error_text import error_message
from headrace.workers.references.lookups import EventLookups
from headrace.workers.tasks.references import References, changed

if TYPE_CHECKING:
    from headrace.kafka.read.range_reader import Record
    from headrace.model import Topic
    from headrace.workers.declaration import Worker
    from headrace.workers.tasks.task import WorkerTask

_LOG = logging.getLogger("headrace.workers")


class WorkerReference:
    """The table of one topic. Changed by one thread, looked at by any.

    Attributes:
        topic: whose table it is.
        snapshot: as it is now; empty until the topic was read to its end once.
        is_read: whether it was.
        bytes: of keys and values, as they are in the topic.
        taken: how many records were read.
        rejected: those of them that are no events.
    """

    def __init__(self, worker: Worker, topic: Topic) -> None:
        self._worker, self.topic = worker.name, topic
        lookups = worker.lookups or EventLookups()
        # Bounds of the event time are for events that arrive: a reference may be as old as it is.
        self._read = event_reader(
            replace(topic, event_time=None), schemas=lookups.avro, protobuf=lookups.protobuf
        )
        self.snapshot: References[Any] = References()
        self.is_read = False
        self.bytes = self.taken = self.rejected = 0
        self._sizes: dict[bytes, int] = {}
        # What was read since the first offset, until the end is reached.
        self._unfinished: dict[bytes, Any] | None = {}

    def restart(self) -> None:
        """Begins a read from the first offset; the snapshot stays until :meth:`publish`."""
        self._unfinished, self._sizes, self.bytes = {}, {}, 0

    def take(self, key: bytes, record: Record | None) -> None:
        """Applies the next record of a key.

        Args:
            key: of the record.
            record: with a value; ``None``: the key was deleted.

        Raises:
            RegistryUnreachableError: if the schema of the record is not known, and the schema
                registry does not answer. Nothing is applied then.
        """
        event = None if record is None else self._event(key, record)
        self.taken += 1
        size = 0 if event is None or record is None else len(key) + len(record.value() or b"")
        self.bytes += size - self._sizes.pop(key, 0)
        if event is not None:
            self._sizes[key] = size
        if self._unfinished is None:
            self.snapshot = changed(self.snapshot, key, event)
        elif event is None:
            self._unfinished.pop(key, None)
        else:
            self._unfinished[key] = event

    def publish(self) -> None:
        """Ends a read from the first offset: tasks get what it has read."""
        if self._unfinished is not None:
            self.snapshot, self._unfinished, self.is_read = References(self._unfinished), None, True

    def _event(self, key: bytes, record: Record) -> Any:
        """Returns the event in a record; ``None``, and logs it, if it has none."""
        try:
            return self._read(record.value(), headers_of(record) or ())
        except RegistryUnreachableError:
            raise
        except Exception as error:  # noqa: BLE001 - also what the constructor of the user's class raises
            self.rejected += 1
            _LOG.warning(
                "%s: the record of %s at offset %d with key %r is no event of it, and its key has "
                "no value: %s",
                self._worker,
                self.topic.name,
                record.offset(),
                key,
                error_message(error),
            )
            return None


class ReferenceTables(Mapping[str, References[Any]]):
    """The references of an instance by name, each as it is at the moment of the lookup."""

    def __init__(self, worker: Worker) -> None:
        self.tables = {
            name: WorkerReference(worker, topic) for name, topic in worker.references.items()
        }

    def __getitem__(self, name: str) -> References[Any]:
        return self.tables[name].snapshot

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def given_to(self, make: Callable[[], WorkerTask]) -> Callable[[], WorkerTask]:
        """Returns ``make`` so that each task it makes has the references."""

        def make_with_references() -> WorkerTask:
            task = make()
            task.references = self
            return task

        return make_with_references
