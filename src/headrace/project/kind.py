"""A kind of declarations: what a project, its checks and its commands know of it.

Each folder that has declarations of its own says in its ``kind.py`` what they are. What concerns
all declarations loops over these values, so that a new kind changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from headrace.errors import Problem
from headrace.model import Topic
from headrace.model.declared import DeclaredValue
from headrace.model.fault import Fault
from headrace.model.name import NAME, NAME_ROLE
from headrace.settings import Settings

if TYPE_CHECKING:
    from headrace.service.status import ServiceStatus

Value = TypeVar("Value", bound=DeclaredValue)


@dataclass(frozen=True)
class Declaration(Generic[Value]):
    """What a module declares, and where."""

    kind: Kind[Value]
    value: Value
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.kind.label} {self.value.name!r}"

    @property
    def place(self) -> str:
        """Returns where it is, for messages."""
        return f"{self.file}:{self.line}"


DeclarationFault: TypeAlias = tuple[Declaration[Any], Fault]
Declarations: TypeAlias = Sequence[Declaration[Any]]


def declared(declarations: Declarations, type_: type[Value]) -> Iterator[Declaration[Value]]:
    """Yields the declarations of a type."""
    return (declaration for declaration in declarations if isinstance(declaration.value, type_))


def _none(*_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True, kw_only=True)
class StatusKind:
    """Statuses of what runs for declarations of a kind.

    Attributes:
        name: in the JSON of ``headrace status``.
        type: of the statuses, which names their folder.
        view: the module whose ``summary`` shows them on a screen.
        read: returns the last ones, given the names that are declared, if they are known; by
            default those in the folder.
    """

    name: str
    type: type[ServiceStatus]
    view: str
    read: Callable[[Settings, Collection[str] | None], Sequence[ServiceStatus]] | None = None


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[Value]):
    """What all declarations of a kind share. None of it connects or imports Spark.

    Only ``type_faults`` and ``name`` are called for every value. A value with parts of wrong types
    is reported, and left out of everything else, which relies on the types.

    Attributes:
        type: of the values.
        label: what messages call a value: ``mirror``.
        plural: what JSON calls the values: ``mirrors``.
        shown: what `check` calls a number of them; by default ``mirror(s)``.
        hint: which commands are for a value, for users who name it in other commands.
        type_faults: which parts of a value are not what the model says.
        faults: what else is wrong with a value by itself.
        faults_between: what is wrong between values of the kind and any others, given all of the
            project. Names and consumer groups are compared for all kinds.
        shared_faults: what is wrong between values of several kinds. A function that kinds share is
            called once.
        settings_faults: settings of ``headrace.toml`` that fit no declaration.
        warnings: what is valid, and does not do what is expected.
        consumer_group: of what reads topics as a group. Such kinds share one set of names, so that
            a log line or a metric names one reader. ``None``: it has names of its own.
        reads: the declared topics whose records it reads in order.
        looks_up: the declared topics of which it keeps the newest record of each key.
        writes: the declared topics that it writes, each with a verb: ``copies to``.
        is_sole_writer: whether `produce` is refused for the topics that it writes: they may have no
            record of others. Rules of the kind itself refuse declarations that write them.
        run_command: the command that runs a value by its name, for users who call `run` where no
            pipeline is declared. Empty: it is not named there.
        query_backend: makes what loads the values in each process of the HTTP service, which then
            answers for them. The result is picklable. ``None``: HTTP does not serve the kind.
        reports_times: whether its instances report how far the sources of their copies are.
        takes_times: whether its instances read that of the topics that they read.
        dead_lettered: the topics whose records may become dead letters.
        keeps: topics of its own that `apply` makes: they have a partition for each of the topic
            that it reads, and what belongs to that.
        statuses: of what runs for the declarations.
    """

    type: type[Value]
    label: str
    plural: str
    hint: str
    type_faults: Callable[[Value], Iterable[Fault]]
    faults: Callable[[Value, Settings], Iterable[Fault]]
    faults_between: Callable[[Declarations, Settings], Iterable[DeclarationFault]] = _none
    shared_faults: Callable[[Declarations, Settings], Iterable[DeclarationFault]] = _none
    settings_faults: Callable[[Declarations, Settings], Iterable[Problem]] = _none
    warnings: Callable[[Value], Iterable[Fault]] = _none
    consumer_group: Callable[[Value], str] | None = None
    reads: Callable[[Value], Iterable[Topic]] = _none
    looks_up: Callable[[Value], Iterable[Topic]] = _none
    writes: Callable[[Value], Iterable[tuple[str, Topic]]] = _none
    is_sole_writer: bool = False
    run_command: str = ""
    query_backend: Callable[[Settings], Callable[[], Any]] | None = None
    reports_times: bool = False
    takes_times: bool = False
    dead_lettered: Callable[[Value], Iterable[Topic]] = _none
    keeps: Callable[[Value], Iterable[Topic]] = _none
    statuses: Callable[[], Sequence[StatusKind]] = _none
    shown: str = ""

    def own_faults(self, value: Value, settings: Settings) -> list[Fault]:
        """Returns what is wrong with a value by itself; wrong types hide the rest."""
        if wrong := list(self.type_faults(value)):
            return wrong
        faults = list(self.faults(value, settings))
        if self.consumer_group is not None and not NAME.fullmatch(value.name):
            faults.insert(0, Fault(f"{value.name!r} is not a {self.label} name", NAME_ROLE))
        return faults
