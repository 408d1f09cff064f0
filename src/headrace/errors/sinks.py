"""A sink cannot take rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.errors.base import FactsError


@dataclass(eq=False)
class SinkError(FactsError):
    """The sink can't take the batch."""

    sink: str
    reason: str


@dataclass(eq=False)
class RecordRejectedError(SinkError):
    """Kafka cannot take the record as it is."""


@dataclass(eq=False)
class ReplayedRecordError(SinkError):
    """Kafka refuses the record of a dead letter that is replayed.

    ``record`` is where it came from, ``dead_letter`` where its letter lies, both as
    ``topic/partition:offset``.
    """

    record: str
    dead_letter: str
    sent: int
    refused: int

    @property
    def remedy(self) -> str:
        return (
            "What was sent is remembered: another replay sends the rest only. A record that is too "
            "large needs a larger max.message.bytes of its topic, by some 1,000 bytes for the "
            "headers of a replay; the others can be replayed by --record, --reason or --pipeline."
        )


# A class of its own, as a pipeline waits for it without using up a restart.
@dataclass(eq=False)
class SinkUnavailableError(SinkError):
    """The sink can't take the batch now."""


@dataclass(eq=False)
class StorageUnavailableError(SinkUnavailableError):
    """The storage of the lake does not answer."""

    @property
    def remedy(self) -> str:
        return "Check `endpoint` and `region` in [s3] of headrace.toml, and the network."


@dataclass(eq=False)
class StorageError(SinkError):
    """The storage of the lake can't be used."""


@dataclass(eq=False)
class BucketMissingError(StorageError):
    """The bucket of the lake does not exist."""

    @property
    def remedy(self) -> str:
        return (
            "Create it, or correct `lake` in [project] and `endpoint` and `region` in [s3] of "
            "headrace.toml: headrace does not create buckets."
        )


@dataclass(eq=False)
class StorageAccessError(StorageError):
    """The storage of the lake refuses access."""

    @property
    def remedy(self) -> str:
        return (
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of the driver and "
            "of Spark's workers, or the keys in [s3] of headrace.toml, and allow them to get, put, "
            "delete and list objects of the lake."
        )


@dataclass(eq=False)
class StorageRegionError(StorageError):
    """The bucket of the lake is in another region."""

    @property
    def remedy(self) -> str:
        return "Set `region` in [s3] of headrace.toml, or AWS_REGION, to the bucket's region."


@dataclass(eq=False)
class StorageClockError(StorageError):
    """The clock of this machine and that of the lake's storage differ by minutes."""

    @property
    def remedy(self) -> str:
        return "Set the clock of the driver's and the workers' machines, by NTP for example."


@dataclass(eq=False)
class ConditionalWritesError(StorageError):
    """The storage of the lake has no conditional writes, on which Delta commits rest."""

    @property
    def remedy(self) -> str:
        return "Use a storage that carries out `If-None-Match: *` when it writes an object."


@dataclass(eq=False)
class ProfileStoreUnavailableError(SinkUnavailableError):
    """The store of profiles can't be used now."""

    @property
    def remedy(self) -> str:
        return "Check `url` in [sinks.profiles] of headrace.toml, and the server that it names."


@dataclass(eq=False)
class ProfileStoreFullError(SinkError):
    """The store of profiles has no memory left."""

    @property
    def remedy(self) -> str:
        return (
            "Raise `maxmemory` of Redis, or shorten `ttl`, `max_entries` or `columns` of Profiles. "
            "Keep the policy `noeviction`: others remove profiles that are still needed."
        )


@dataclass(eq=False)
class ProfileStoreError(SinkError):
    """The store of profiles can't be used."""

    @property
    def remedy(self) -> str:
        return "Correct `url` in [sinks.profiles] of headrace.toml."


@dataclass(eq=False)
class ProfileTableMissingError(ProfileStoreError):
    """The store of profiles has no table."""

    @property
    def remedy(self) -> str:
        return (
            "Start a pipeline into the store, which creates it; or correct the keyspace in `url` "
            "of [sinks.profiles] in headrace.toml."
        )


@dataclass(eq=False)
class ProfileStoreAccessError(ProfileStoreError):
    """The store of profiles refuses access.

    ``permissions`` is a sentence on what the user needs.
    """

    permissions: str = field(repr=False)

    @property
    def remedy(self) -> str:
        return (
            "Correct user and password in `url` of [sinks.profiles] in headrace.toml. "
            f"{self.permissions}"
        )


@dataclass(eq=False)
class ProfileMissingError(FactsError):
    """The store has no profile of this user."""

    store: str
    user: str

    @property
    def remedy(self) -> str:
        return (
            "No row of this user came within the store's ttl, or none was loaded yet: "
            "`headrace status` shows how far the pipeline is."
        )
