"""The schema registry: the schemas that producers have written records with, by their ids.

A schema of an id never changes, so each process looks it up once. An id that the registry does not
know may be registered later; it is looked up again after a while, so records with made-up ids do
not become as many requests. A request is repeated twice before the registry counts as unreachable.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, get_args

from headrace.errors import HeadraceError, RegistryUnreachableError, SchemaRejectedError
from headrace.model import Avro, Registered, RegisteredSchema, SchemaId
from headrace.runtime.extras import require_extra

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    from headrace.settings import SchemaRegistrySettings

CLIENT_CONFIG: Mapping[str, Any] = {
    "timeout": 5.0,  # seconds, of each attempt
    "max.retries": 2,
    "retries.wait.ms": 500,
    "retries.max.wait.ms": 2000,
}
_UNKNOWN_SECONDS = 30.0
_MAX_UNKNOWN = 10_000  # bounds the memory of ids: a topic of invalid records may name any number
_EXTRAS = {kind.registry_kind: kind.extra for kind in get_args(Registered)}
_SHARED: dict[tuple[str, ...], SchemaRegistry] = {}
_REJECTED = (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
# No such subject, version, or schema: the codes that only a registry answers with. The status 404
# alone says nothing: an ingress whose backend is being replaced answers with it too.
_UNKNOWN_CODES = frozenset({40401, 40402, 40403})


def registry_client(settings: SchemaRegistrySettings) -> SchemaRegistryClient:
    """Returns a client of the registry, which connects with its first request.

    Its packages are those of each extra of a format, one of which is installed.
    """
    from confluent_kafka.schema_registry import SchemaRegistryClient

    config: dict[str, Any] = {"url": settings.url, **CLIENT_CONFIG}
    if settings.password is not None:
        config["basic.auth.user.info"] = f"{settings.username}:{settings.password.reveal()}"
    if settings.ca_file:
        config["ssl.ca.location"] = settings.ca_file
    return SchemaRegistryClient(config)


def register(settings: SchemaRegistrySettings, subject: str, kind: str, text: str) -> int:
    """Returns the id of a schema under ``subject``, where it is registered if it is not yet.

    Args:
        settings: where the registry is.
        subject: name of the schema's versions.
        kind: the registry's name of the language of the schema.
        text: the schema.

    Raises:
        ExtraMissingError: if the extra of the format is not installed.
        RegistryUnreachableError: if the registry does not answer.
        SchemaRejectedError: if it rejects the schema.
    """
    require_extra(_EXTRAS[kind])
    from confluent_kafka.schema_registry import Schema
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        with registry_client(settings) as client:
            return int(client.register_schema(subject, Schema(text, kind)))
    except SchemaRegistryError as error:
        if error.http_status_code in _REJECTED:
            raise SchemaRejectedError(settings.url, subject, error.error_message) from error
        raise RegistryUnreachableError(settings.url, str(error)) from error
    except Exception as error:
        raise RegistryUnreachableError(settings.url, f"{type(error).__name__}: {error}") from error


def latest_schema(
    settings: SchemaRegistrySettings, subject: str, extra: str
) -> RegisteredSchema | None:
    """Returns the newest schema of a subject; None: the registry has none.

    Args:
        settings: where the registry is.
        subject: name of the schema's versions.
        extra: of the format whose schema it is.

    Raises:
        ExtraMissingError: if the extra is not installed.
        RegistryUnreachableError: if the registry does not answer.
    """
    with _asking(settings, extra) as client:
        version = _answer(client.get_latest_version, subject)
        if version is None:
            return None
        return replace(_registered(client, version.schema), id=version.schema_id or 0)


@contextmanager
def _asking(settings: SchemaRegistrySettings, extra: str) -> Iterator[SchemaRegistryClient]:
    """Gives a client for a few requests, whatever comes of which is the registry's failure."""
    require_extra(extra)
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    url = settings.url
    try:
        with registry_client(settings) as client:
            yield client
    except SchemaRegistryError as error:
        raise RegistryUnreachableError(url, str(error)) from error
    except HeadraceError:
        raise
    except Exception as error:
        # The client passes on what its HTTP library raises.
        raise RegistryUnreachableError(url, f"{type(error).__name__}: {error}") from error


def shared_registry(settings: SchemaRegistrySettings) -> SchemaRegistry:
    """Returns the registry of these settings that all tasks of this process share."""
    password = "" if settings.password is None else settings.password.reveal()
    # By its text: a secret that a task received is another object each time.
    key = (settings.url, settings.username, password, settings.ca_file)
    return _SHARED.setdefault(key, SchemaRegistry(settings))


def lookup_of(
    settings: SchemaRegistrySettings, kind: str
) -> Callable[[SchemaId], RegisteredSchema | None]:
    """Returns :meth:`SchemaRegistry.schema` of the shared registry; it can be pickled."""
    return functools.partial(_look_up, settings, kind)


def _look_up(
    settings: SchemaRegistrySettings, kind: str, schema_id: SchemaId
) -> RegisteredSchema | None:
    return shared_registry(settings).schema(kind, schema_id)


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A schema by which nothing can be read, with the reason in a sentence."""

    reason: str


def _read(schema: RegisteredSchema | _Unreadable) -> RegisteredSchema:
    if isinstance(schema, RegisteredSchema):
        return schema
    raise ValueError(schema.reason)


class SchemaRegistry:
    """Looks up schemas, each once. It may be used by several threads at a time.

    Args:
        settings: where it is.
        clock: gives seconds, for ids that the registry does not know.
    """

    def __init__(
        self, settings: SchemaRegistrySettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._clock = settings, clock
        self._schemas: dict[tuple[str, SchemaId], RegisteredSchema | _Unreadable] = {}
        self._unknown: dict[SchemaId, float] = {}
        self._lock = threading.Lock()

    def schema(self, kind: str, schema_id: SchemaId) -> RegisteredSchema | None:
        """Returns a schema with the texts of those that it refers to.

        ``None`` means that the registry has no schema of that id, or had none within the last 30
        seconds: it has said so with an error code of its own.

        Args:
            kind: the registry's name of the language that the schema must be in.
            schema_id: of the schema.

        Raises:
            ValueError: if the schema is of another kind, or refers to one that is not there.
            ExtraMissingError: if the extra of the format is not installed.
            RegistryUnreachableError: if the registry does not answer, or refuses to, or something
                else answers in its place.
        """
        # Threads that need the same schema wait for one request, instead of making one each.
        with self._lock:
            if (kind, schema_id) in self._schemas:
                return _read(self._schemas[kind, schema_id])
            if self._clock() < self._unknown.get(schema_id, 0.0):
                return None
            schema = self._requested(kind, schema_id)
            if schema is None:
                # Forgetting all of them costs a request for each, and bounds the memory.
                if len(self._unknown) >= _MAX_UNKNOWN:
                    self._unknown.clear()
                self._unknown[schema_id] = self._clock() + _UNKNOWN_SECONDS
                return None
            self._schemas[kind, schema_id] = schema
            return _read(schema)

    def _requested(self, kind: str, schema_id: SchemaId) -> RegisteredSchema | _Unreadable | None:
        # Most processes look up one or two schemas: no connection is kept for the next one.
        with _asking(self._settings, _EXTRAS[kind]) as client:
            by_number = isinstance(schema_id, int)
            get = client.get_schema if by_number else client.get_schema_by_guid
            schema = _answer(get, schema_id if by_number else str(schema_id))
            if schema is None:
                return None
            if schema.schema_type != kind:
                return _Unreadable(f"it is of the type {schema.schema_type}, and not {kind}")
            try:
                return _registered(client, schema)
            except LookupError as error:
                return _Unreadable(str(error.args[0]))


def _answer(request: Callable[..., Any], *of: Any) -> Any | None:
    """Returns the answer to a request; None: the registry says that it has no such schema."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        return request(*of)
    except SchemaRegistryError as error:
        if error.error_code in _UNKNOWN_CODES:
            return None
        raise


def _text(schema: Schema) -> str:
    """Returns the text of a schema.

    Raises:
        ValueError: if the answer holds none: the client takes any JSON object for an answer.
    """
    text: str | None = schema.schema_str
    if not text:
        raise ValueError("the answer holds no schema")
    return text


def _registered(client: SchemaRegistryClient, schema: Schema) -> RegisteredSchema:
    """Returns a schema with the texts of what it refers to, and of what those refer to.

    Raises:
        LookupError: if one of them is not there.
    """
    texts: dict[tuple[str | None, str | None, int | None], str] = {}
    text, references = _text(schema), [*(schema.references or ())]
    for reference in references:  # which grows
        place = reference.name, reference.subject, reference.version
        if place in texts:
            continue
        version = _answer(client.get_version, reference.subject, reference.version)
        if version is None:
            raise LookupError(
                f"it refers to version {reference.version} of {reference.subject!r}, which the "
                "registry lacks"
            )
        texts[place] = _text(version.schema)
        references += version.schema.references or ()
    referenced = tuple((str(name), referred) for (name, _, _), referred in texts.items())
    return RegisteredSchema(schema.schema_type or Avro.registry_kind, text, referenced)
