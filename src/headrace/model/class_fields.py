"""What a class says of its fields beside their annotations.

Events are read by the names of annotations, and what is absent is null. Where the library that made
a class would read another name, fill in a default, or take other values, events are not what the
class says: such a class or field is refused, since its columns would hold something else in
silence.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import typing
from collections.abc import Iterable, Mapping
from types import MemberDescriptorType
from typing import Any

_ANY_NAME = "a TypedDict takes any name: TypedDict('{event}', {{{name!r}: ...}})"
# As Python writes the `__v` of a class Doc. Names of classes that begin otherwise are looked up.
_MANGLED = re.compile(r"_[A-Z][A-Za-z0-9]*(__\w*[^\W_]_?)")
# The parser takes no other names of fields.
_NOT_IN_NAMES = re.compile(r'["\\\x00-\x1f\ud800-\udfff]')
_PYDANTIC = ("__pydantic_core_schema__", "__get_validators__")  # of its versions 2 and 1
_NO_DEFAULT = object()
# Of msgspec's Meta; the rest of it says something for people alone.
_CONSTRAINTS = (
    "gt",
    "ge",
    "lt",
    "le",
    "multiple_of",
    "pattern",
    "min_length",
    "max_length",
    "tz",
)


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
    return _struct_fault(event) or _attrs_fault(event) or _instance_fault(event)


def enum_fault(hint: object) -> str:
    """Returns why a column can't hold the texts of an enum, and the remedy; empty if it can."""
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        for member in hint:
            text, value = str.__str__(member), member.value
            if value != text:
                return (
                    f"has a member of the text {text!r} whose value is {value!r}, and is read by "
                    "values; leave `_value_` out"
                )
    return ""


def constraint_fault(extras: Iterable[object]) -> str:
    """Returns why values of an annotation with ``extras`` would be taken that its class rejects.

    The text has the remedy. It is empty if there are none.
    """
    from msgspec import Meta

    for extra in extras:
        for name in _CONSTRAINTS if isinstance(extra, Meta) else ():
            if getattr(extra, name) is not None:
                return (
                    f"has the constraint {name!r} of msgspec.Meta, which is not checked; leave it "
                    "out, and take such events out by `filter_rows`"
                )
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
    return _hook_fault(event, annotation) or _default_fault(event, annotation, nullable=nullable)


def _struct_fault(event: type) -> str:
    config = getattr(event, "__struct_config__", None)
    if config is None:
        return ""
    if config.array_like:
        return "reads arrays, by `array_like`, and events are objects; leave it out"
    if config.tag is not None:
        kind = f"Literal[{config.tag!r}]" if isinstance(config.tag, str) else "int"
        return (
            f"has the tag {config.tag!r}, which is not looked at; leave it out, and declare the "
            f"field `{config.tag_field}: {kind}`"
        )
    if config.forbid_unknown_fields:
        return "has `forbid_unknown_fields`, and such fields are ignored; leave it out"
    return ""


def _attrs_fault(event: type) -> str:
    for hook in ("__attrs_pre_init__", "__attrs_post_init__"):
        if hasattr(event, hook):
            return f"has {hook}, which is not called; do that in a step, or use a dataclass"
    return ""


def _instance_fault(event: type) -> str:
    """Returns why a worker could make no instance; no code of the class is called to find out."""
    if typing.is_typeddict(event):
        return ""
    names = _constructed_from(event)
    try:
        if names is None or dataclasses.is_dataclass(event):
            object.__new__(event)
        if names is not None:
            inspect.signature(event).bind(**dict.fromkeys(names))
    except (TypeError, ValueError) as error:
        return (
            f"has no instances that a worker can make: {error}; declare a dataclass with the "
            "`__init__` that it gets, without abstract methods and bases such as dict"
        )
    return ""


def _constructed_from(event: Any) -> list[str] | None:
    """Returns the fields that a worker passes to the constructor; ``None`` if it calls none."""
    if dataclasses.is_dataclass(event):
        return [field.name for field in dataclasses.fields(event) if field.init]
    if hasattr(event, "__struct_fields__"):
        return list(event.__struct_fields__)
    return list(event._fields) if _is_named_tuple(event) else None


def _hook_fault(event: type, name: str) -> str:
    attributes = getattr(event, "__attrs_attrs__", ())
    attribute = next((field for field in attributes if field.name == name), None)
    for hook in ("converter", "validator"):
        if getattr(attribute, hook, None) is not None:
            return f"has a {hook}, which is not called; leave it out, and do that in a step"
    return ""


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
        fields = dataclasses.fields(event)
        return {field.name: field.metadata.get("alias", field.name) for field in fields}
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
