"""Avro schemas that use types of other schemas, as one schema that defines all of them.

A reference of a registry has a label and names no type. So every type that any of the schemas
defines, at any depth, may be used by its full name, or by one that the namespace around it allows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.events.avro.schemas import PRIMITIVES, Schema
from headrace.model import RegisteredSchema, SchemaId

_DEFINITIONS = ("record", "error", "enum", "fixed")
_OWN_TYPES = (*PRIMITIVES, *_DEFINITIONS, "array", "map")


@dataclass(frozen=True)
class AvroSchemas:
    """Returns the schema of an id, as Avro's readers take it; it can be pickled.

    Attributes:
        lookup: returns a registered schema of Avro.
    """

    lookup: Callable[[SchemaId], RegisteredSchema | None]

    def __call__(self, schema_id: SchemaId) -> Schema | None:
        """Returns what :func:`written_out` does; ``None`` if the registry has no such schema.

        Raises:
            ValueError: if it is no schema of Avro's.
            RegistryUnreachableError: if the registry does not answer.
        """
        registered = self.lookup(schema_id)
        return None if registered is None else written_out(registered)


def written_out(registered: RegisteredSchema) -> Schema:
    """Returns the parsed JSON of a schema, with the types that it uses of others written out.

    Raises:
        ValueError: if it is no JSON, or no schema of Avro's.
    """
    try:
        schema = json.loads(registered.text)
        if not registered.referenced:
            return schema
        referenced = [json.loads(text) for _, text in registered.referenced]
        return _WrittenOut([schema, *referenced]).of(schema, "")
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise ValueError(f"it is no schema of Avro's ({error})") from error


class _WrittenOut:
    """Schemas in which the first use of each type is its definition, and others its full name.

    Args:
        documents: where the types are defined, at any depth.

    Raises:
        ValueError: if a type is defined in two ways.
    """

    def __init__(self, documents: list[Any]) -> None:
        self._named: dict[str, Any] = {}
        self._written: set[str] = set()
        for document in documents:
            for name, definition in _definitions(document, ""):
                if self._named.setdefault(name, definition) != definition:
                    raise ValueError(f"{name} is defined in two ways")

    def of(self, schema: Any, namespace: str) -> Any:
        """Returns a schema that stands in a namespace."""
        if isinstance(schema, list):
            return [self.of(branch, namespace) for branch in schema]
        if isinstance(schema, str):
            # A name that its namespace lacks may be one without a namespace, as for Avro in Java.
            for full in (_full_name(schema, namespace), schema):
                if full in self._named and schema not in _OWN_TYPES:
                    return self._type(full, self._named[full])
            return schema
        if not isinstance(schema, dict):
            return schema
        if schema["type"] not in _OWN_TYPES:  # such as {"type": "Item"}
            return self.of(schema["type"], namespace)
        name = _defined_name(schema, namespace)
        return self._parts(schema, namespace) if name is None else self._type(name, schema)

    def _type(self, name: str, definition: Mapping[str, Any]) -> Any:
        if name in self._written:
            return name
        self._written.add(name)
        return self._parts(definition, name.rpartition(".")[0]) | {"name": name}

    def _parts(self, schema: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        parts = {
            key: self.of(schema[key], namespace) for key in ("items", "values") if key in schema
        }
        if "fields" in schema:
            parts["fields"] = [
                field | {"type": self.of(field["type"], namespace)} for field in schema["fields"]
            ]
        return {**schema, **parts}


def _definitions(schema: Any, namespace: str) -> Iterator[tuple[str, Any]]:
    """Yields each type that a schema defines, with its full name."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _definitions(branch, namespace)
    elif isinstance(schema, dict):
        name = _defined_name(schema, namespace)
        if name is not None:
            yield name, schema
            namespace = name.rpartition(".")[0]
        for key in ("type", "items", "values", "fields"):
            yield from _definitions(schema.get(key), namespace)


def _defined_name(schema: Mapping[str, Any], namespace: str) -> str | None:
    """Returns the full name of the type that a schema defines; None: it defines none."""
    if schema.get("type") not in _DEFINITIONS or not isinstance(schema.get("name"), str):
        return None
    return _full_name(schema["name"], schema.get("namespace", namespace))


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
