"""The schema registry: the schemas that producers have written records with, by their ids.

A schema of an id never changes, so each process looks it up once. An id that the registry does not
know may be registered later; it is looked up again after a while, so records with made-up ids do
not become as many requests. A request is repeated twice before the registry counts as unreachable.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, RegistryUnreachableError, SchemaRejectedError
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
_MAX_UNKNOWN = 10_000  # ids that are remembered; a topic of garbage may hold any number
_AVRO = "AVRO"
_SHARED: dict[tuple[str, ...], SchemaRegistry] = {}
_REJECTED = (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
# No such subject, version, or schema: the codes that only a registry answers with. The status 404
# alone says nothing: an ingress whose backend is being replaced answers with it too.
_UNKNOWN_CODES = frozenset({40401, 40402, 40403})


def registry_client(settings: SchemaRegistrySettings) -> SchemaRegistryClient:
    """Returns a client of the registry, which connects with its first request.

    Raises:
        ExtraMissingError: if the extra ``avro`` is not installed.
    """
    require_extra("avro")
    from confluent_kafka.schema_registry import SchemaRegistryClient

    config: dict[str, Any] = {"url": settings.url, **CLIENT_CONFIG}
    if settings.password is not None:
        config["basic.auth.user.info"] = f"{settings.username}:{settings.password.reveal()}"
    if settings.ca_file:
        config["ssl.ca.location"] = settings.ca_file
    return SchemaRegistryClient(config)


def register(settings: SchemaRegistrySettings, subject: str, schema: Any) -> int:
    """Returns the id of an Avro schema under ``subject``, where it is registered if it is not yet.

    Raises:
        ExtraMissingError: if the extra ``avro`` is not installed.
        RegistryUnreachableError: if the registry does not answer.
        SchemaRejectedError: if it rejects the schema.
    """
    require_extra("avro")
    from confluent_kafka.schema_registry import Schema
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    text = json.dumps(schema)
    try:
        with registry_client(settings) as client:
            return int(client.register_schema(subject, Schema(text, _AVRO)))
    except SchemaRegistryError as error:
        if error.http_status_code in _REJECTED:
            raise SchemaRejectedError(settings.url, subject, error.error_message) from error
        raise RegistryUnreachableError(settings.url, str(error)) from error
    except Exception as error:
        raise RegistryUnreachableError(settings.url, f"{type(error).__name__}: {error}") from error


def shared_registry(settings: SchemaRegistrySettings) -> SchemaRegistry:
    """Returns the registry of these settings that all tasks of this process share."""
    password = "" if settings.password is None else settings.password.reveal()
    # By its text: a secret that a task received is another object each time.
    key = (settings.url, settings.username, password, settings.ca_file)
    return _SHARED.setdefault(key, SchemaRegistry(settings))


def look_up_schema(settings: SchemaRegistrySettings, schema_id: int) -> Any | None:
    """Returns :meth:`SchemaRegistry.avro_schema` of the registry that this process shares."""
    return shared_registry(settings).avro_schema(schema_id)


@dataclass(frozen=True, slots=True)
class _OtherKind:
    """A schema that is not Avro, by its kind in the registry's words."""

    name: str


def _avro(schema: Any) -> Any:
    if not isinstance(schema, _OtherKind):
        return schema
    raise ValueError(f"it is of the type {schema.name}, and not {_AVRO}")


class SchemaRegistry:
    """Looks up Avro schemas, each once. It may be used by several threads at a time.

    Args:
        settings: where it is.
        clock: tells seconds, for ids that the registry does not know.
    """

    def __init__(
        self, settings: SchemaRegistrySettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._clock = settings, clock
        self._schemas: dict[int, Any] = {}
        self._unknown: dict[int, float] = {}
        self._lock = threading.Lock()

    def avro_schema(self, schema_id: int) -> Any | None:
        """Returns the parsed JSON of a schema, with the schemas that it refers to written out.

        ``None`` means that the registry has no schema of that id, or had none within the last 30
        seconds: it has said so with an error code of its own.

        Raises:
            ValueError: if the schema is not Avro.
            ExtraMissingError: if the extra ``avro`` is not installed.
            RegistryUnreachableError: if the registry does not answer, or refuses to, or something
                else answers in its place.
        """
        # Threads that need the same schema wait for one request, instead of making one each.
        with self._lock:
            if schema_id in self._schemas:
                return _avro(self._schemas[schema_id])
            if self._clock() < self._unknown.get(schema_id, 0.0):
                return None
            schema = self._look_up(schema_id)
            if schema is None:
                if len(self._unknown) >= _MAX_UNKNOWN:
                    self._unknown.clear()
                self._unknown[schema_id] = self._clock() + _UNKNOWN_SECONDS
            else:
                self._schemas[schema_id] = schema
            return _avro(schema)

    def _look_up(self, schema_id: int) -> Any | None:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        url = self._settings.url
        try:
            # Most processes look up one or two schemas: no connection is kept for the next one.
            with registry_client(self._settings) as client:
                schema = client.get_schema(schema_id)
                if schema.schema_type != _AVRO:
                    return _OtherKind(str(schema.schema_type))
                return _resolved(client, schema)
        except SchemaRegistryError as error:
            if error.error_code in _UNKNOWN_CODES:
                return None
            raise RegistryUnreachableError(url, str(error)) from error
        except HeadraceError:
            raise
        except Exception as error:
            # The client passes on what its HTTP library raises.
            raise RegistryUnreachableError(url, f"{type(error).__name__}: {error}") from error


def _resolved(client: SchemaRegistryClient, schema: Schema) -> Any:
    named: dict[str, Any] = {}
    _collect(client, schema, named)
    return _written_out(_document(schema), named, set())


def _document(schema: Schema) -> Any:
    """Returns a schema's parsed JSON.

    Raises:
        ValueError: if the answer holds none: the client takes any JSON object for an answer.
    """
    if not schema.schema_str:
        raise ValueError("the answer holds no schema")
    return json.loads(schema.schema_str)


def _collect(client: SchemaRegistryClient, schema: Schema, named: dict[str, Any]) -> None:
    """Fills ``named`` with the schemas that ``schema`` refers to, by their full names."""
    for reference in schema.references or ():
        if reference.name not in named:
            inner = client.get_version(reference.subject, reference.version).schema
            named[reference.name] = _document(inner)
            _collect(client, inner, named)


def _written_out(schema: Any, named: Mapping[str, Any], done: set[str]) -> Any:
    """Returns ``schema`` with the first use of each of the names replaced by its schema."""
    if isinstance(schema, str) and schema in named and schema not in done:
        done.add(schema)
        return _written_out(named[schema], named, done)
    if isinstance(schema, list):
        return [_written_out(branch, named, done) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: schema[key] for key in ("type", "items", "values") if key in schema}
    resolved = schema | {key: _written_out(value, named, done) for key, value in inner.items()}
    if "fields" in schema:
        resolved["fields"] = [_written_out(field, named, done) for field in schema["fields"]]
    return resolved
