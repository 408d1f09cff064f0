"""Standing queries as rules, for systems that do not know headrace's language.

A rule is a list of conditions on fields, all of which a matching event meets. As JSON:
``{"id": "query-7", "conditions": [{"field": "advertiser", "operator": "in", "values": ["a"]}]}``.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec

from headrace.queries.language import parse_query
from headrace.queries.language.tree import And, Comparison, Expression, In, Literal, Path
from headrace.queries.registry.record import RegisteredQuery

Value: TypeAlias = str | int | float | bool
_EVENT_TIME = "event_time"


class Condition(msgspec.Struct, frozen=True):
    """A condition on a field of the event.

    Attributes:
        field: its name.
        operator: of headrace's language, such as ``>=``, or ``in``.
        values: one, or those of the list; times in milliseconds since 1970, as events have them.
    """

    field: str
    operator: str
    values: tuple[Value, ...]


class Rule(msgspec.Struct, frozen=True):
    """A rule: an event that meets all conditions matches."""

    id: str
    conditions: tuple[Condition, ...]


_RULE = msgspec.json.Decoder(Rule)


def rule_of(query: RegisteredQuery) -> Rule:
    """Returns the condition of a query as a rule.

    Raises:
        TypeError: if it is more than comparisons of fields with constants, joined by AND.
    """
    where = parse_query(query.text).where
    operands = where.operands if isinstance(where, And) else (where,)
    return Rule(query.id, tuple(map(_condition, operands)))


def encode_rule(rule: Rule) -> bytes:
    """Returns a rule as JSON."""
    return msgspec.json.encode(rule)


def decode_rule(value: bytes) -> Rule:
    """Returns the rule that this JSON is."""
    return _RULE.decode(value)


def _condition(expression: Expression | None) -> Condition:
    match expression:
        case In(Path((field,)), literals):
            return Condition(field, "in", tuple(_value(field, each) for each in literals))
        case Comparison(operator, Path((field,)), Literal() as literal):
            return Condition(field, operator, (_value(field, literal),))
    raise TypeError(f"no condition of a rule: {expression}")


def _value(field: str, literal: Literal) -> Value:
    if field == _EVENT_TIME and isinstance(literal.value, str):
        return round(datetime.fromisoformat(literal.value).timestamp() * 1000)
    return literal.value
