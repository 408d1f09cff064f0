"""References of JSON Schemas: within one, by anchors, and to others that the registry has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urldefrag, urljoin

JsonSchemaDocument: TypeAlias = Any
"""A JSON Schema as its JSON is parsed: an object or a boolean."""

_LITERALS = ("const", "enum", "default", "examples")
_BY_NAME = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas")
_DRAFTS_WITHOUT_SIBLINGS = ("draft-03", "draft-04", "draft-06", "draft-07")


class Reference(NamedTuple):
    """Stands in a schema for the text of ``$ref``.

    Attributes:
        text: as the schema has it.
        base: URI of the schema around it.
        has_siblings: whether what stands beside it counts, as it does since draft 2019-09; None:
            the schema does not name its draft.
    """

    text: str
    base: str
    has_siblings: bool | None


class SchemaReferences:
    """Finds what references name.

    Args:
        document: a schema.
        referenced: schemas that it refers to, by the names that it uses for them.

    Attributes:
        root: the document, in which each ``$ref`` is a :class:`Reference`.
    """

    def __init__(
        self, document: JsonSchemaDocument, referenced: Mapping[str, JsonSchemaDocument]
    ) -> None:
        self._schemas: dict[str, JsonSchemaDocument] = {}
        for name, other in {**referenced, "": document}.items():
            self._schemas[name] = self._marked(other, name, _has_siblings(other))
        self.root = self._schemas[""]

    def target(self, reference: Reference) -> JsonSchemaDocument | None:
        """Returns the schema that a reference names; None: it is not there."""
        for uri in (_joined(reference.base, reference.text), reference.text):
            if uri in self._schemas:
                return self._schemas[uri]
            name, pointer = urldefrag(uri)
            if name in self._schemas and pointer[:1] in ("", "/"):
                target = _at(self._schemas[name], unquote(pointer))
                if isinstance(target, Mapping | bool):
                    return target
        return None

    def _marked(
        self, schema: JsonSchemaDocument, base: str, has_siblings: bool | None
    ) -> JsonSchemaDocument:
        """Returns a copy of a schema with its references, and notes the names in it."""
        if isinstance(schema, list):
            return [self._marked(item, base, has_siblings) for item in schema]
        if not isinstance(schema, Mapping):
            return schema
        marked: dict[str, Any] = {}
        identifier, anchor = schema.get("$id", schema.get("id")), schema.get("$anchor")
        if isinstance(identifier, str):
            uri = _joined(base, identifier)
            base, fragment = urldefrag(uri)
            self._schemas[uri if fragment else base] = marked
        if isinstance(anchor, str):
            self._schemas[f"{base}#{anchor}"] = marked
        for key, value in schema.items():
            if key in _LITERALS:
                marked[key] = value
            elif key in _BY_NAME and isinstance(value, Mapping):
                parts = value.items()
                marked[key] = {name: self._marked(p, base, has_siblings) for name, p in parts}
            elif key == "$ref" and isinstance(value, str):
                marked[key] = Reference(value, base, has_siblings)
            else:
                marked[key] = self._marked(value, base, has_siblings)
        return marked


def _has_siblings(document: JsonSchemaDocument) -> bool | None:
    draft = document.get("$schema") if isinstance(document, Mapping) else None
    if not isinstance(draft, str):
        return None
    return not any(name in draft for name in _DRAFTS_WITHOUT_SIBLINGS)


def _joined(base: str, reference: str) -> str:
    # urljoin knows no fragments of `urn:` and the like.
    return base + reference if reference.startswith("#") else urljoin(base, reference)


def _at(document: JsonSchemaDocument, pointer: str) -> Any:
    """Returns what a JSON pointer names; None if it is not there."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, Mapping):
            document = document.get(key)
        elif isinstance(document, list) and key.isdecimal() and int(key) < len(document):
            document = document[int(key)]
        else:
            return None
    return document
