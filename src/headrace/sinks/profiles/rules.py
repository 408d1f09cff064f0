"""What can't be declared of profiles: by the event class before a start, by the rows at it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Protocol

from headrace.model import FieldType
from headrace.model.fault import Fault, is_a
from headrace.model.name import NAME, NAME_WORDS
from headrace.sinks.profiles.latest import MAX_ENTRIES, Latest, Where

_MIN_TTL, _MAX_TTL = timedelta(seconds=1), timedelta(days=36_500)
_IDS = frozenset({FieldType.STRING, FieldType.LONG})
_TIMES = frozenset({FieldType.TIMESTAMP, FieldType.MILLIS})
_EVERY = frozenset(FieldType)
_VALUES = {str: FieldType.STRING, int: FieldType.LONG, bool: FieldType.BOOLEAN}


class DeclaredProfiles(Protocol):
    """What is declared; ``Profiles``, which imports the rules, describes it."""

    @property
    def store(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def ttl(self) -> timedelta: ...

    @property
    def fields(self) -> tuple[str, ...]: ...

    @property
    def lists(self) -> Mapping[str, Latest]: ...

    @property
    def forget(self) -> Where | bool: ...

    @property
    def event_id(self) -> str | None: ...

    @property
    def event_time(self) -> str | None: ...


class ProfileRules:
    """Finds the faults of a declaration.

    Args:
        sink: the declaration.
        columns: name and type of each column of the rows; None: they are not known.
        event_time: column of the event time, where the declaration names none; None: there is none.
        values: the only texts that a column can hold, where they are known.
    """

    def __init__(
        self,
        sink: DeclaredProfiles,
        columns: Mapping[str, FieldType] | None,
        event_time: str | None,
        values: Mapping[str, Collection[str]],
    ) -> None:
        self._sink, self._columns, self._values = sink, columns, values
        self._event_time = event_time if sink.event_time is None else sink.event_time

    def faults(self) -> Iterator[Fault]:
        """Yields everything wrong."""
        sink = self._sink
        if not is_a(sink.store, str) or not NAME.fullmatch(sink.store):
            yield Fault(f"Profiles.store is {sink.store!r}", NAME_WORDS)
        if not is_a(sink.ttl, timedelta) or not _MIN_TTL <= sink.ttl <= _MAX_TTL:
            remedy = f"a timedelta from a second to {_MAX_TTL.days:,} days"
            yield Fault(f"Profiles.ttl is {sink.ttl!r}", remedy)
        yield from self._column("Profiles.key", sink.key, _IDS)
        if sink.event_id is not None:
            yield from self._column("Profiles.event_id", sink.event_id, _IDS)
        if self._event_time is None:
            message = "Profiles needs an event time, and the topic declares none"
            yield Fault(message, 'Topic(event_time="...") or Profiles(event_time="...")')
        else:
            yield from self._column("Profiles.event_time", self._event_time, _TIMES)
        yield from self._content()

    def _content(self) -> Iterator[Fault]:
        sink = self._sink
        yield from self._columns_of("Profiles.fields", sink.fields)
        for name in sink.fields if is_a(sink.fields, tuple | list) else ():
            if str(name).startswith("@"):
                yield Fault(f"Profiles.fields: {name!r} begins with '@'", "rename it in a step")
        if not is_a(sink.lists, Mapping):
            yield Fault(f"Profiles.lists is {sink.lists!r}", 'lists={"views": Latest(200)}')
        else:
            for name, latest in sink.lists.items():
                yield from self._list(name, latest)
        if not is_a(sink.forget, bool):
            yield from self._where("Profiles.forget", sink.forget)
            if sink.forget == {}:
                yield Fault("Profiles.forget is {}", '{"kind": "forget"}, or True for every row')
        if not (sink.fields or sink.lists or sink.forget):
            yield Fault("Profiles keeps nothing", 'fields=("country",) or lists={...}')

    def _list(self, name: object, latest: object) -> Iterator[Fault]:
        what = f"Profiles.lists[{name!r}]"
        # It is a part of a key in the store.
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
            yield Fault(f"Profiles.lists: {name!r} is no name of a list", "letters, digits and '_'")
        if not isinstance(latest, Latest):
            yield Fault(f"{what} is {latest!r}", "Latest(200)")
            return
        number = latest.max_entries
        if type(number) is not int or not 1 <= number <= MAX_ENTRIES:
            yield Fault(f"{what}.max_entries is {number!r}", f"from 1 to {MAX_ENTRIES:,}")
        yield from self._columns_of(f"{what}.columns", latest.columns)
        yield from self._where(f"{what}.where", latest.where)

    def _where(self, what: str, where: object) -> Iterator[Fault]:
        if not isinstance(where, Mapping):
            yield Fault(f"{what} is {where!r}", '{"kind": "view"}')
            return
        for name, value in where.items():
            kind = _VALUES.get(type(value))
            if kind is None:
                yield Fault(f"{what}: {value!r} is no value", "a text, an integer or a boolean")
            elif isinstance(value, str) and value not in self._values.get(name, {value}):
                known = ", ".join(self._values[name])
                yield Fault(f"{what}: {name!r} is never {value!r}", f"values: {known}")
            else:
                yield from self._column(what, name, {kind})

    def _columns_of(self, what: str, names: object) -> Iterator[Fault]:
        if not isinstance(names, tuple | list):
            yield Fault(f"{what} is {names!r}", f'{what.rpartition(".")[2]}=("country",)')
            return
        for name in names:
            yield from self._column(what, name, _EVERY)

    def _column(self, what: str, name: object, types: Collection[FieldType]) -> Iterator[Fault]:
        columns = self._columns
        if not isinstance(name, str):
            yield Fault(f"{what}: {name!r} is no name of a column", "a text")
        elif columns is not None and name not in columns:
            message = f"{what}: {name!r} is no column of the rows"
            yield Fault(message, f"columns: {', '.join(columns)}")
        elif columns is not None and columns[name] not in types:
            expected = ", ".join(sorted(kind.value for kind in types))
            yield Fault(f"{what}: {name!r} is {columns[name].value}", expected)


def faults_of_two(sink: DeclaredProfiles, other: DeclaredProfiles) -> Iterator[Fault]:
    """Yields a fault for what two declarations say of one store in two ways.

    What is no declaration of a list is a fault of its own, and not compared.
    """
    store = f"store {sink.store!r}"
    if sink.ttl != other.ttl:
        yield Fault(f"{store} has ttl {sink.ttl} here and {other.ttl} there")
    lists, others = _lists(sink), _lists(other)
    for name in sorted(lists.keys() & others.keys()):
        size, other_size = lists[name].max_entries, others[name].max_entries
        if size != other_size:
            message = f"{store} has {size!r} entries in {name!r} here and {other_size!r} there"
            yield Fault(message)
        if (sink.event_id is None) != (other.event_id is None):
            message = f"list {name!r} of {store} has entries by event id, and others without one"
            yield Fault(message, "both with `event_id`, or lists of their own")


def _lists(sink: DeclaredProfiles) -> dict[str, Latest]:
    lists = sink.lists if isinstance(sink.lists, Mapping) else {}
    return {name: latest for name, latest in lists.items() if isinstance(latest, Latest)}
