"""The catalog of Iceberg tables, as ``[sinks.lake]`` of headrace.toml has it.

==============  ====================================================================
key             meaning
==============  ====================================================================
``catalog``     ``sql`` (the default), ``rest``, ``glue`` or ``hive``
``name``        of the catalog; ``headrace`` by default. A SQL catalog keeps it
(any other)     a property of pyiceberg's catalog, such as ``uri`` and ``warehouse``
==============  ====================================================================

A SQL catalog without ``uri`` is a SQLite file in the lake, below ``_iceberg``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import requests
from pyiceberg import exceptions
from sqlalchemy.exc import IntegrityError, OperationalError

from headrace.errors import SinkError, SinkUnavailableError, TableMismatchError
from headrace.runtime.extras import require_extra
from headrace.runtime.files.file_locks import exclusive
from headrace.runtime.retrying import retry
from headrace.sinks.api import SinkContext
from headrace.sinks.lake.conflicts import CONFLICT_DELAYS, collided
from headrace.sinks.lake.iceberg.catalog.settings import CATALOGS
from headrace.storage import files as storage
from headrace.storage.s3 import ALLOW_HTTP, is_s3

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_Result = TypeVar("_Result")
_FOLDER = "_iceberg"  # no table of the lake can have this name
_LOCK_SECONDS = 60  # that SQLite waits for other processes
_CATALOGS_KEPT = 8  # of a process: a project has one
_PROBE = "_headrace/probe"
_FILE_IO = "pyiceberg.io.pyarrow.PyArrowFileIO"
# The names that pyiceberg has for options of `[s3]`.
_S3 = {
    "endpoint": "s3.endpoint",
    "region": "s3.region",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
}
_CONFLICTS = (exceptions.CommitFailedException, exceptions.TableAlreadyExistsError)
LOST_RACES = (*_CONFLICTS, IntegrityError)  # the last: of a namespace that others made in SQL
# Short: it is asked again at once whether a commit whose answer was lost is in the table.
_LOST_ANSWER_DELAYS = (0.01, 0.02, 0.03)
_PASSING = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,  # it broke off in the middle
    requests.exceptions.ContentDecodingError,
    OperationalError,
    exceptions.CommitStateUnknownException,
    exceptions.ServerError,
    exceptions.ServiceUnavailableError,
    exceptions.TooManyRequestsError,
)


@dataclass(frozen=True)
class CatalogTable:
    """A table by its name in a catalog.

    Attributes:
        catalog: its kind and properties, secrets in plain text.
        namespace: of the table.
        name: of the table.
    """

    catalog: Mapping[str, str] = field(repr=False)
    namespace: str
    name: str

    @classmethod
    def of(cls, context: SinkContext, namespace: str, name: str) -> CatalogTable:
        """Returns a table of the catalog of a project.

        Raises:
            SinkError: if there is no catalog for a lake that is no folder of this machine, or the
                path of that folder is read otherwise where it is part of a URI.
        """
        settings = {key: value.reveal() for key, value in context.settings.items()}
        options = {_S3[key]: text for key, text in context.storage.items() if key in _S3}
        properties = {"catalog": CATALOGS[0], "name": "headrace", "py-io-impl": _FILE_IO}
        properties |= options | settings
        if properties["catalog"] != "rest":
            if not {"uri", "warehouse"} <= properties.keys():
                _check_path(context.lake, f"{namespace}.{name}")
            properties.setdefault("warehouse", _url(storage.join(context.lake, _FOLDER)))
        if properties["catalog"] == "sql" and "uri" not in properties:
            # SQLite's locks hold on one machine: a lake elsewhere needs a catalog of its own.
            if not storage.is_local(context.lake):
                raise SinkError(
                    f"Iceberg table {namespace}.{name}",
                    f"the lake is at {context.lake}, and there is no catalog: set `catalog` in"
                    " [sinks.lake]",
                )
            file = storage.local_path(storage.join(context.lake, _FOLDER, "catalog.db"))
            properties["uri"] = f"sqlite:///{file}?timeout={_LOCK_SECONDS}"
        return cls(properties, namespace, name)

    @property
    def uri(self) -> str:
        """Returns its name, for messages."""
        return f"Iceberg table {self.namespace}.{self.name}"

    @property
    def identifier(self) -> tuple[str, ...]:
        """Returns its name as pyiceberg takes it."""
        return (*self.namespace.split("."), self.name)

    def open_catalog(self) -> Catalog:
        """Returns the catalog, one for each process."""
        return _catalog(os.getpid(), tuple(sorted(self.catalog.items())))

    def load(self) -> Table | None:
        """Returns the table as it is now; None: there is none.

        Raises:
            SinkError: if the catalog or the table's files can't be read.
        """
        with self.errors_named():
            try:
                return self.open_catalog().load_table(self.identifier)
            except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError):
                return None

    def existing(self) -> Table:
        """Returns the table as it is now.

        Raises:
            SinkError: if there is none, or it can't be read.
        """
        table = self.load()
        if table is None:
            raise SinkError(self.uri, "there is none yet: `headrace apply` and `run` make it")
        return table

    def retrying(self, attempt: Callable[[], _Result]) -> _Result:
        """Returns the result of ``attempt``, which is repeated after conflicts and lost answers.

        It reads the table each time, and commits only what that lacks: what it sent before can be
        there, although it failed.

        Raises:
            SinkUnavailableError: if answers were lost too often, or there was none.
            SinkError: if other writers came in between too often, or it failed otherwise.
        """

        def past_conflicts() -> _Result:
            try:
                with self.errors_named():
                    return retry(attempt, LOST_RACES, CONFLICT_DELAYS)
            except _CONFLICTS as error:
                raise collided(self.uri, error) from error

        return retry(past_conflicts, SinkUnavailableError, _LOST_ANSWER_DELAYS)

    @contextmanager
    def errors_named(self) -> Iterator[None]:
        """Raises what catalog and storage raise as a SinkError of the table.

        Raises:
            SinkUnavailableError: if a server does not answer, for a time.
        """
        try:
            yield
        except (SinkError, TableMismatchError, *_CONFLICTS):
            raise
        except _PASSING as error:
            raise SinkUnavailableError(self.uri, f"the catalog does not answer: {error}") from error
        except Exception as error:  # pyiceberg's errors have no class of their own
            if isinstance(error, OSError):
                # Arrow says in words alone what S3 refuses; the same request of ours has a typed
                # error.
                place = self.catalog.get("warehouse", "")
                storage.require_reachable(storage.join(place, _PROBE), _s3_options(self.catalog))
            raise SinkError(self.uri, f"{type(error).__name__}: {error}") from error


def folder_of(table: Table, uri: str) -> tuple[str, dict[str, str]]:
    """Returns the folder of a table's data files, and the options of its storage.

    Raises:
        SinkError: if it is neither on S3 nor on a disk of this machine.
        ExtraMissingError: if it is on S3, and the extra for that is not installed.
    """
    place = table.properties.get("write.data.path") or storage.join(table.location(), "data")
    if is_s3(place):
        require_extra("s3")
        return place, _s3_options(table.io.properties)
    if not storage.is_local(place):
        reason = f"it is at {place}: Iceberg tables are written on S3 or on a disk"
        raise SinkError(uri, reason)
    return place, {}


def _s3_options(properties: Mapping[str, Any]) -> dict[str, str]:
    """Returns the options of a storage by the names of ``[s3]``, from those of pyiceberg."""
    options = {ours: str(properties[name]) for ours, name in _S3.items() if properties.get(name)}
    plain = options.get("endpoint", "").startswith("http://")
    return options | ({ALLOW_HTTP: "true"} if plain else {})


@functools.lru_cache(_CATALOGS_KEPT)
def _catalog(
    pid: int,  # noqa: ARG001  connections are of the process that made them
    properties: tuple[tuple[str, str], ...],
) -> Catalog:
    """Cached: each instance has its own connections, and logs in."""
    rest = dict(properties)
    kind, name = rest.pop("catalog"), rest.pop("name")
    module = f"{__package__}.rest" if kind == "rest" else f"pyiceberg.catalog.{kind}"
    made = getattr(import_module(module), f"{kind.capitalize()}Catalog")
    if not rest.get("uri", "").startswith("sqlite:///"):
        return made(name, **rest)  # type: ignore[no-any-return]
    # Of several processes one makes the tables of the catalog.
    path = storage.local_path(rest["uri"].removeprefix("sqlite://").partition("?")[0])
    with exclusive(path.with_suffix(".lock")):
        return made(name, **rest)  # type: ignore[no-any-return]


def _url(uri: str) -> str:
    """Returns a URI with a scheme, so that other engines find files by it."""
    # Not escaped: pyiceberg takes such a path as it is.
    return f"file://{storage.local_path(uri)}" if storage.is_local(uri) else uri


def _check_path(lake: str, table: str) -> None:
    if storage.is_local(lake) and {*"?#%"} & {*(path := str(storage.local_path(lake)))}:
        reason = f"the lake is at {path}, and URIs of tables can't have '?', '#' or '%'"
        raise SinkError(f"Iceberg table {table}", f"{reason}: rename the folder")
