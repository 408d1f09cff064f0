"""What a class says of its fields beside their annotations.

Events are read by the names of annotations, and what is absent is null. Where the library that made
a class would read another name, or fill in a default, events are not what the class says: such a
field is refused, since its column would be null in silence.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Mapping
from types import MemberDescriptorType
from typing import Any

_ANY_NAME = "a TypedDict takes any name: TypedDict('{event}', {{{name!r}: ...}})"
# As Python writes the `__v` of a class Doc. Names of classes that begin otherwise are looked up.
_MANGLED = re.compile(r"_[A-Z][A-Za-z0-9]*(__\w*[^\W_]_?)")
# The parser takes no other names of fields.
_NOT_IN_NAMES = re.compile(r'["\\\x00-\x1f\ud800-\udfff]')
_PYDANTIC = ("__pydantic_core_schema__", "__get_validators__")  # of its versions 2 and 1
_NO_DEFAULT = object()


def is_field(hint: object) -> bool:
    """Returns whether an annotation is that of a field, and not of the class or its constructor."""
    if typing.get_origin(hint) is typing.Annotated:
        return is_field(typing.get_args(hint)[0])
    is_of_class = typing.ClassVar in (hint, typing.get_origin(hint))
    return not is_of_class and hint is not dataclasses.KW_ONLY


def class_fault(event: type) -> str:
    """Returns why a class can't be an event class, and the remedy; empty if it can."""
    if any(hasattr(event, mark) for mark in _PYDANTIC):
        return "is of pydantic: aliases, defaults and validators are not followed; use a dataclass"
    return ""


def written_name(event: type, annotation: str) -> str:
    """Returns the name of a field in the source: ``__v`` of ``_Doc__v``, which Python makes of it.

    Args:
        event: the class.
        annotation: the name of one of its annotations.
    """
    for owner in event.__mro__:
        prefix = f"_{owner.__name__.lstrip('_')}__"
        if annotation.startswith(prefix) and not annotation.endswith("__"):
            return annotation[len(prefix) - 2 :]
    mangled = _MANGLED.fullmatch(annotation)
    return mangled[1] if mangled else annotation


def field_fault(event: type, annotation: str, *, nullable: bool) -> str:
    """Returns why events can't be read by a field of a class, and the remedy; empty if they can.

    Args:
        event: the class.
        annotation: the name of one of its annotations.
        nullable: whether the annotation allows null.
    """
    name = written_name(event, annotation)
    if name != annotation:
        remedy = _ANY_NAME.format(event=event.__name__, name=name)
        return f"has the name {annotation!r} in Python, which no event has; {remedy}"
    if not name or _NOT_IN_NAMES.search(name):
        return (
            "has an empty name, or one with a quote, a backslash, a control character or half of a "
            "surrogate pair; declare the object that it is in as dict[str, T], which takes any key"
        )
    json_names = _json_names(event)
    if json_names is None:
        return _default_fault(event, annotation, nullable=nullable)
    if annotation not in json_names:
        return (
            f"is no parameter of {event.__name__}, a dataclass, struct or tuple; make the class "
            "that annotates it one, too"
        )
    if (json_name := json_names[annotation]) != annotation:
        remedy = _ANY_NAME.format(event=event.__name__, name=json_name)
        return f"has the alias {json_name!r}, which is not followed; call it so, or {remedy}"
    return _default_fault(event, annotation, nullable=nullable)


def _default_fault(event: type, name: str, *, nullable: bool) -> str:
    if name in getattr(event, "__optional_keys__", ()) and not nullable:
        return "may be absent in a TypedDict; declare `| None`, which allows absence"
    default = _default(event, name)
    if default is _NO_DEFAULT or (default is None and nullable):
        return ""
    return (
        f"has the default {default!r}, which pipelines do not fill in; leave the default out, "
        "and declare `| None` if events may lack the field"
    )


def _json_names(event: Any) -> Mapping[str, str] | None:
    """Returns by annotation the names by which the library of a class reads its fields."""
    if hasattr(event, "__struct_fields__"):
        return dict(zip(event.__struct_fields__, event.__struct_encode_fields__, strict=True))
    if dataclasses.is_dataclass(event):
        return {field.name: field.name for field in dataclasses.fields(event)}
    if hasattr(event, "__attrs_attrs__"):
        # The alias of `_token` is `token` where none is declared.
        return {
            field.name: field.name if field.alias == field.name.lstrip("_") else field.alias
            for field in event.__attrs_attrs__
        }
    return {name: name for name in event._fields} if _is_named_tuple(event) else None


def _default(event: Any, name: str) -> object:
    """Returns what a class makes a field with where none is given; ``_NO_DEFAULT`` if nothing."""
    if hasattr(event, "__struct_fields__"):
        from msgspec import NODEFAULT, structs

        struct = next(field for field in structs.fields(event) if field.name == name)
        return _first_default((struct.default, struct.default_factory), NODEFAULT)
    if dataclasses.is_dataclass(event):
        field = event.__dataclass_fields__[name]
        return _first_default((field.default, field.default_factory), dataclasses.MISSING)
    if hasattr(event, "__attrs_attrs__"):
        from attr import NOTHING

        attribute = next(field for field in event.__attrs_attrs__ if field.name == name)
        return _first_default((attribute.default,), NOTHING)
    if _is_named_tuple(event):
        return event._field_defaults.get(name, _NO_DEFAULT)
    return _class_value(event, name)


def _class_value(event: type, name: str) -> object:
    for owner in event.__mro__:
        if name in vars(owner):
            value = vars(owner)[name]
            return _NO_DEFAULT if isinstance(value, MemberDescriptorType) else value
        if name in inspect.get_annotations(owner):  # what follows is another thing of this name
            break
    return _NO_DEFAULT


def _is_named_tuple(event: type) -> bool:
    return issubclass(event, tuple) and hasattr(event, "_fields")


def _first_default(candidates: tuple[object, ...], missing: object) -> object:
    return next((value for value in candidates if value is not missing), _NO_DEFAULT)
