"""What a JSON Schema allows and an event class does not take: those events are dead letters.

Compared are types, nulls, fields that may be missing, and the texts of enums. Not compared are
bounds of numbers, patterns and lengths, conditions (``if``, ``not``, ``dependencies``), and types
that a schema leaves open: it may say less than its senders keep to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from headrace.model import EventField, EventSchema, FieldType

JsonSchemaDocument = Any
"""A JSON Schema as its JSON is parsed: an object or a boolean."""

_TAKEN: Mapping[FieldType, tuple[str, ...]] = {
    FieldType.STRING: ("string",),
    FieldType.LONG: ("integer",),
    FieldType.DOUBLE: ("number", "integer"),
    FieldType.BOOLEAN: ("boolean",),
    FieldType.TIMESTAMP: ("string",),
    FieldType.MILLIS: ("integer",),
    FieldType.DATE: ("string",),
    FieldType.DECIMAL: ("number", "integer", "string"),
    FieldType.BINARY: ("string",),
    FieldType.STRUCT: ("object",),
    FieldType.LIST: ("array",),
    FieldType.MAP: ("object",),
}
_FORMATS: Mapping[FieldType, tuple[str, str, str]] = {
    FieldType.TIMESTAMP: ("format", "date-time", "time"),
    FieldType.DATE: ("format", "date", "date"),
    FieldType.BINARY: ("contentEncoding", "base64", "base64"),
}


def allowed_but_not_taken(
    document: JsonSchemaDocument, referenced: Mapping[str, JsonSchemaDocument], schema: EventSchema
) -> Iterator[str]:
    """Yields a phrase for each thing that a schema allows and an event class does not take.

    Args:
        document: the schema.
        referenced: schemas that it refers to, by the names that it uses for them.
        schema: of the event class.
    """
    comparison = _Comparison(document, referenced)
    yield from comparison.of(
        document, EventField("", FieldType.STRUCT, schema=schema), "", document
    )


class _Comparison:
    def __init__(
        self, document: JsonSchemaDocument, referenced: Mapping[str, JsonSchemaDocument]
    ) -> None:
        self._documents = {**referenced, "": document}

    def of(
        self, schema: JsonSchemaDocument, field: EventField, path: str, root: JsonSchemaDocument
    ) -> Iterator[str]:
        """Yields phrases about a field of a path; ``root`` is the document with the schema."""
        if field.type is FieldType.JSON:
            return
        where = f"field {path!r}" if path else "an event"
        for branch, document in self._branches(schema, root, frozenset()):
            for kind in _kinds(branch):
                if kind == "null":
                    if not field.nullable:
                        yield f"{where} may be null"
                elif kind not in _TAKEN[field.type]:
                    expected = " or ".join(_TAKEN[field.type])
                    yield f"{where} may be {_article(kind)}, expected {expected}"
                elif kind == "string":
                    yield from _of_text(branch, field, where)
                elif field.schema is not None:
                    yield from self._members(branch, field.schema, path, document)
                elif field.element is not None:
                    yield from self._held(branch, field, field.element, path, document)

    def _members(
        self, branch: Mapping[str, Any], schema: EventSchema, path: str, root: JsonSchemaDocument
    ) -> Iterator[str]:
        properties, required = branch.get("properties", {}), branch.get("required", [])
        for field in schema.fields:
            inner = f"{path}.{field.name}" if path else field.name
            if (
                field.name not in required
                and not field.nullable
                and field.type is not FieldType.JSON
            ):
                yield f"field {inner!r} may be missing"
            if field.name in properties:
                yield from self.of(properties[field.name], field, inner, root)

    def _held(
        self,
        branch: Mapping[str, Any],
        field: EventField,
        element: EventField,
        path: str,
        root: JsonSchemaDocument,
    ) -> Iterator[str]:
        if field.type is FieldType.MAP:
            keys = ("properties", "patternProperties")
            held = [schema for key in keys for schema in branch.get(key, {}).values()]
            held.append(branch.get("additionalProperties", {}))
        else:
            items = branch.get("items", {})
            held = [*(items if isinstance(items, list) else [items])]
            held += [*branch.get("prefixItems", ()), branch.get("additionalItems", {})]
        for schema in held:
            yield from self.of(schema, element, f"{path}[]", root)

    def _branches(
        self, schema: JsonSchemaDocument, root: JsonSchemaDocument, within: frozenset[int]
    ) -> Iterator[tuple[Mapping[str, Any], JsonSchemaDocument]]:
        """Yields what a value may be by ``$ref``, ``allOf``, ``anyOf`` and ``oneOf``."""
        # What refers to itself on the way to its types allows nothing more by that.
        if not isinstance(schema, Mapping) or id(schema) in within:
            return
        within |= {id(schema)}
        if isinstance(reference := schema.get("$ref"), str):
            target, document = self._target(reference, root)
            yield from self._branches(target, document, within)
            return
        unions = [schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)]
        if isinstance(parts := schema.get("allOf"), list):
            rest = {key: value for key, value in schema.items() if key != "allOf"}
            yield from self._all(parts, rest, root, within)
        elif unions:
            rest = {key: schema[key] for key in schema if key not in ("anyOf", "oneOf")}
            for choice in unions[0]:
                for branch, document in self._branches(choice, root, within):
                    yield _both(rest, branch), document
        else:
            yield schema, root

    def _all(
        self,
        parts: list[JsonSchemaDocument],
        rest: Mapping[str, Any],
        root: JsonSchemaDocument,
        within: frozenset[int],
    ) -> Iterator[tuple[Mapping[str, Any], JsonSchemaDocument]]:
        if not parts:
            yield from self._branches(rest, root, within)
            return
        for branch, document in self._branches(parts[0], root, within):
            for other, _ in self._all(parts[1:], rest, root, within):
                yield _both(branch, other), document

    def _target(
        self, reference: str, root: JsonSchemaDocument
    ) -> tuple[JsonSchemaDocument, JsonSchemaDocument]:
        """Returns what a reference names, and its document; an open schema if it names nothing."""
        name, _, pointer = reference.partition("#")
        document = root if not name else self._documents.get(name, {})
        target = document
        for step in filter(None, unquote(pointer).split("/")):
            key = step.replace("~1", "/").replace("~0", "~")
            target = target.get(key, {}) if isinstance(target, Mapping) else {}
        return target, document


def _both(first: Mapping[str, Any], second: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a schema that says what two of the same value say."""
    both = {**first, **second}
    for key in ("properties", "patternProperties"):
        if key in first and key in second:
            both[key] = {**first[key], **second[key]}
            for name in first[key].keys() & second[key].keys():
                both[key][name] = {"allOf": [first[key][name], second[key][name]]}
    if "required" in first and "required" in second:
        both["required"] = [*first["required"], *second["required"]]
    if "type" in first and "type" in second:
        both["type"] = _in_both(_listed(first["type"]), _listed(second["type"]))
    return both


def _listed(kinds: str | list[str]) -> list[str]:
    return [kinds] if isinstance(kinds, str) else [*kinds]


def _in_both(first: list[str], second: list[str]) -> list[str]:
    """Returns the types that two lists allow; a number may be an integer."""
    allowed = [{*kinds, *(["integer"] if "number" in kinds else [])} for kinds in (first, second)]
    return [kind for kind in dict.fromkeys([*first, *second]) if all(kind in a for a in allowed)]


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    """Returns the JSON types that a schema allows; none where it leaves them open."""
    if "const" in schema or "enum" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        allowed = [*dict.fromkeys(map(_kind_of, values))]
        return _in_both(allowed, _listed(schema["type"])) if "type" in schema else allowed
    kinds = schema.get("type")
    if kinds is None:
        implied = (("properties", "object"), ("items", "array"))
        return [kind for key, kind in implied if key in schema]
    return _listed(kinds)


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names = {str: "string", int: "integer", float: "number", dict: "object", list: "array"}
    return names[type(value)]


def _of_text(schema: Mapping[str, Any], field: EventField, where: str) -> Iterator[str]:
    texts = [schema["const"]] if "const" in schema else schema.get("enum")
    if field.values:
        others = None if texts is None else [t for t in texts if isinstance(t, str)]
        unknown = None if others is None else [t for t in others if t not in field.values]
        if unknown is None:
            yield f"{where} may be any text, and is one of {len(field.values)}"
        elif unknown:
            yield f"{where} may be {unknown[0]!r}, which is none of its texts"
    elif field.type in _FORMATS:
        key, expected, words = _FORMATS[field.type]
        if schema.get(key) != expected:
            yield f"{where} may be a text that is no {words}: its schema has no {key} {expected!r}"
    elif field.type is FieldType.DECIMAL and "pattern" not in schema:
        yield f"{where} may be a text that is no number"


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
