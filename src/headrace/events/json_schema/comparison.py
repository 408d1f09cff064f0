"""What a JSON Schema allows and an event class does not take: those events are dead letters.

Compared are types, nulls, fields that may be missing, and the values of ``enum`` and ``const``,
which the class reads as it reads events. Not compared are bounds of numbers, patterns and lengths,
and types that a schema leaves open: it may say less than its senders keep to. Where it says a type
in a way that is not compared, such as by ``if``, there is a phrase that says so.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, product
from typing import Any, TypeAlias, TypeVar

from headrace.events.comparison import may_be_missing, may_be_null, named, texts_not_taken
from headrace.events.json_schema.references import JsonSchemaDocument, Reference, SchemaReferences
from headrace.events.json_schema.schemas import DECIMAL_PATTERN, JSON_KINDS
from headrace.events.parsing.parser import event_parser
from headrace.events.parsing.readable import ReadableCheck
from headrace.events.rejection import Rejection, rejection
from headrace.model import EventField, EventSchema, FieldType, RegisteredSchema

_Branch: TypeAlias = tuple[Mapping[str, Any], ...]
"""Schemas that a value has to fit all of, whose unions and references count no more."""

_Kind = TypeVar("_Kind", list[Any], dict[str, Any])

_FORMATS: Mapping[FieldType, tuple[str, str, str]] = {
    FieldType.TIMESTAMP: ("format", "date-time", "time"),
    FieldType.DATE: ("format", "date", "date"),
    FieldType.BINARY: ("contentEncoding", "base64", "base64"),
}
_IMPLIED = {
    **dict.fromkeys(
        ("properties", "required", "patternProperties", "additionalProperties"), "object"
    ),
    **dict.fromkeys(("items", "prefixItems"), "array"),
}
"""The type that a schema without one is about, by its keywords."""
_NOT_COMPARED = (
    *("if", "not", "dependencies", "dependentSchemas", "unevaluatedProperties"),
    *("$dynamicRef", "$recursiveRef"),
)
_MAX_BRANCHES = 1_000
_MAX_DEPTH = 100
_MAX_LEVELS = 300  # of objects and lists, each of which takes two calls: the stack holds 1,000


def allowed_but_not_taken(registered: RegisteredSchema, schema: EventSchema) -> Iterator[str]:
    """Yields a phrase for each thing that a schema allows and an event class does not take.

    Args:
        registered: the schema.
        schema: of the event class.

    Raises:
        ValueError: if it is no JSON Schema, or one that can't be compared.
    """
    referenced = {name: _document(text) for name, text in reversed(registered.referenced)}
    references = SchemaReferences(_document(registered.text), referenced)
    event = EventField("", FieldType.STRUCT, schema=schema)
    yield from _Comparison(references).of(references.root, event, "")


def _document(text: str) -> JsonSchemaDocument:
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    # Level by level and without recursion, since the depth is what is checked.
    level = [document]
    for _ in range(_MAX_LEVELS):
        level = [part for value in level for part in _parts(value)]
    if level:
        raise ValueError(f"it is nested deeper than {_MAX_LEVELS} levels")
    return document


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


class _Comparison:
    def __init__(self, references: SchemaReferences) -> None:
        self._references = references
        self._compared = Counter[str]()  # alternatives, by path: they multiply over levels

    def of(self, schema: JsonSchemaDocument, field: EventField, path: str) -> Iterator[str]:
        """Yields phrases about the field at a path."""
        if field.type is FieldType.JSON:
            return
        for branch in self._branches(schema, frozenset()):
            if self._compared[path] == _MAX_BRANCHES:
                yield f"{named(path)} is compared with {_MAX_BRANCHES} of its alternatives alone"
                return
            self._compared[path] += 1
            yield from self._of_branch(branch, field, path)

    def _branches(self, schema: JsonSchemaDocument, within: frozenset[int]) -> Iterator[_Branch]:
        """Yields what a value may be by ``$ref``, ``allOf``, ``anyOf`` and ``oneOf``."""
        if schema is False:
            return
        # What refers to itself on the way to its types says nothing more by that.
        if not isinstance(schema, Mapping) or id(schema) in within:
            yield ()
            return
        within |= {id(schema)}
        if len(within) > _MAX_DEPTH:
            raise ValueError(f"its alternatives nest deeper than {_MAX_DEPTH} levels")
        unions = [[part] for part in _keyword(schema, "allOf", list)]
        unions += [_keyword(schema, key, list) for key in ("anyOf", "oneOf") if key in schema]
        reference = schema.get("$ref")
        if isinstance(reference, Reference):
            target = self._references.target(reference)
            if target is not None:
                unions.append([target])
                if not reference.has_siblings:
                    yield from self._branches(target, within)
                    if reference.has_siblings is not None or len(schema) == 1:
                        return
        choices = [self._choices(union, within) for union in unions]
        for parts in product(*choices):
            yield (schema, *chain.from_iterable(parts))

    def _choices(
        self, union: Sequence[JsonSchemaDocument], within: frozenset[int]
    ) -> list[_Branch]:
        branches = chain.from_iterable(self._branches(schema, within) for schema in union)
        # Each is multiplied by those of other unions: without a bound, a schema could fill the
        # memory.
        return list(islice(branches, _MAX_BRANCHES + 1))

    def _of_branch(self, branch: _Branch, field: EventField, path: str) -> Iterator[str]:
        for part in branch:
            reference = part.get("$ref")
            if isinstance(reference, Reference) and self._references.target(reference) is None:
                yield f"{named(path)} is not compared with {reference.text!r}, which is not there"
        kinds, values = _kinds(branch), _values(branch)
        if values is not None:
            # An `enum` or `const` lists all that there can be, so each is compared by itself.
            for value in values:
                if kinds is None or any(kind in kinds for kind in _kinds_of(value)):
                    yield from _of_value(value, field, path)
            return
        if kinds is None:
            hidden = [key for key in _NOT_COMPARED if any(key in part for part in branch)]
            if hidden:
                yield f"{named(path)} is not compared: its schema says by {hidden[0]!r} what it is"
            return
        for kind in kinds:
            yield from self._of_kind(kind, branch, field, path)

    def _of_kind(self, kind: str, branch: _Branch, field: EventField, path: str) -> Iterator[str]:
        if kind == "null":
            if not field.nullable:
                yield may_be_null(path)
        elif kind not in JSON_KINDS[field.type]:
            yield _other_kind(kind, field, path)
        elif kind == "string":
            yield from _of_text(branch, field, path)
        elif field.schema is not None:
            yield from self._members(branch, field.schema, path)
        elif field.element is not None:
            held = [{"anyOf": [*_held(part, field.type)], **_hidden(part)} for part in branch]
            yield from self.of({"allOf": held}, field.element, f"{path}[]")

    def _members(self, branch: _Branch, schema: EventSchema, path: str) -> Iterator[str]:
        required = [name for part in branch for name in _keyword(part, "required", list)]
        for field in schema.fields:
            inner = f"{path}.{field.name}" if path else field.name
            is_needed = not field.nullable and field.type is not FieldType.JSON
            if is_needed and field.name not in required:
                yield may_be_missing(inner)
            parts = chain.from_iterable(_property(part, field.name) for part in branch)
            yield from self.of({"allOf": list(parts)}, field, inner)


def _property(schema: Mapping[str, Any], name: str) -> Iterator[JsonSchemaDocument]:
    """Yields the schemas that a property of an object has to fit."""
    properties = _keyword(schema, "properties", dict)
    patterns = _keyword(schema, "patternProperties", dict)
    own = [properties[name]] if name in properties else []
    # `additionalProperties` counts only for names that neither of the two has.
    own += [patterns[pattern] for pattern in patterns if _matches(pattern, name)]
    yield from own or [schema.get("additionalProperties", True)]
    yield _hidden(schema)


def _held(schema: Mapping[str, Any], kind: FieldType) -> Iterator[JsonSchemaDocument]:
    """Yields the schemas of what a map or list holds, each of which is one of them."""
    if kind is FieldType.MAP:
        for key in ("properties", "patternProperties"):
            yield from _keyword(schema, key, dict).values()
        yield schema.get("additionalProperties", True)
        return
    items = schema.get("items", True)
    yield from _keyword(schema, "prefixItems", list)
    # Before draft 2020-12, a list in `items` was what `prefixItems` is now.
    if isinstance(items, list):
        yield from items
        items = schema.get("additionalItems", True)
    yield items


def _hidden(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the keywords of a schema that may say something about what is in its values."""
    return {key: schema[key] for key in _NOT_COMPARED if key in schema}


def _keyword(schema: Mapping[str, Any], key: str, kind: type[_Kind]) -> _Kind:
    """Returns what a schema has for a keyword; it is empty where the schema does not have it."""
    value = schema.get(key, kind())
    if isinstance(value, kind):
        return value
    expected = "list" if kind is list else "object"
    raise ValueError(f"{key!r} is {value!r:.60}, and no {expected}")


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the pattern {pattern!r:.60} is not known here: {error}") from error


def _listed(kinds: Any) -> list[str]:
    listed = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(listed, list) or not all(isinstance(kind, str) and kind for kind in listed):
        raise ValueError(f"'type' is {kinds!r:.60}, and no name of a type")
    return listed


def _in_both(first: list[str], second: list[str]) -> list[str]:
    """Returns the types that two lists allow; a number may be an integer."""
    allowed = [{*kinds, *(["integer"] if "number" in kinds else [])} for kinds in (first, second)]
    return [kind for kind in dict.fromkeys([*first, *second]) if all(kind in a for a in allowed)]


def _kinds(branch: _Branch) -> list[str] | None:
    """Returns the JSON types that schemas allow together; None where they leave them open."""
    listed = [_listed(part["type"]) for part in branch if "type" in part]
    if not listed:
        # Strictly, `properties` alone allows a text too; authors of schemas mean an object.
        implied = [kind for key, kind in _IMPLIED.items() if any(key in part for part in branch)]
        return [*dict.fromkeys(implied)] or None
    kinds = functools.reduce(_in_both, listed)
    divisors = (part.get("multipleOf") for part in branch)
    # A number that is a multiple of an integer is one itself.
    if any(isinstance(n, int | float) and n >= 1 and n % 1 == 0 for n in divisors):
        return [*dict.fromkeys("integer" if kind == "number" else kind for kind in kinds)]
    return kinds


def _values(branch: _Branch) -> list[Any] | None:
    """Returns the values that schemas allow together; None: they do not list them."""
    lists = [
        [part["const"]] if "const" in part else _keyword(part, "enum", list)
        for part in branch
        if "const" in part or "enum" in part
    ]
    if not lists:
        return None
    return [value for value in lists[0] if all(value in others for others in lists[1:])]


def _kinds_of(value: Any) -> tuple[str, ...]:
    """Returns the types of a value; those that it has as JSON text come first."""
    if value is None:
        return ("null",)
    # Before the numbers: to Python, a boolean is an integer.
    if isinstance(value, bool):
        return ("boolean",)
    if isinstance(value, float):
        return ("number", "integer") if value.is_integer() else ("number",)
    names = {str: ("string",), int: ("integer", "number"), dict: ("object",), list: ("array",)}
    return names[type(value)]


def _of_value(value: Any, field: EventField, path: str) -> Iterator[str]:
    kind = _kinds_of(value)[0]
    if kind == "null":
        if not field.nullable:
            yield may_be_null(path)
    elif kind not in JSON_KINDS[field.type]:
        yield _other_kind(kind, field, path)
    elif isinstance(value, str) and field.values:
        yield from texts_not_taken(field, [value], path)
    elif (why := _rejected(value, field)) is not None:
        yield f"{named(path)} may be {value!r:.60}, which is rejected as {why[0]}"


def _rejected(value: Any, field: EventField) -> Rejection | None:
    """Returns why the class rejects an event with a value, as its readers do."""
    schema = EventSchema("event", (replace(field, name="value"),))
    text = json.dumps({"value": value}).encode()
    try:
        event = event_parser(schema)(text)
    except (ValueError, TypeError, RecursionError) as error:
        return rejection(text, schema, error)
    return None if ReadableCheck(schema)(event) else rejection(text, schema)


def _other_kind(kind: str, field: EventField, path: str) -> str:
    article = "an" if kind[0] in "aeiou" else "a"
    expected = " or ".join(JSON_KINDS[field.type])
    return f"{named(path)} may be {article} {kind}, expected {expected}"


def _of_text(branch: _Branch, field: EventField, path: str) -> Iterator[str]:
    where = named(path)
    if field.values:
        yield f"{where} may be any text, and is one of {len(field.values)}"
    elif field.type in _FORMATS:
        key, expected, words = _FORMATS[field.type]
        if all(part.get(key) != expected for part in branch):
            yield f"{where} may be a text that is no {words}: its schema has no {key} {expected!r}"
    elif field.type is FieldType.DECIMAL:
        patterns = [part["pattern"] for part in branch if "pattern" in part]
        if not patterns:
            yield f"{where} may be a text that is no number"
        elif DECIMAL_PATTERN not in patterns:
            yield f"{where} may be a text, whose pattern is not compared with numbers"
