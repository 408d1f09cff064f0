"""The interface of a book of what was counted, and its balance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from headrace.ledger.sums import Fate
from headrace.ledger.windows import Imbalance, WindowBalance, WindowState


class NotCountedError(Exception):
    """Raised if something can't be counted; the message says why, as a sentence."""


class BookLine(NamedTuple):
    """What must balance by itself: a window, or a topic.

    Its figures are in the order of the columns of its book; ``None``: not known, or not counted.
    """

    name: str
    state: WindowState
    figures: Sequence[int | None]
    differences: Sequence[Imbalance]
    unknown: str


class Remark(NamedTuple):
    """What a book says beside its lines; ``kind`` is a state, what it is about, or empty."""

    kind: str
    text: str
    hop: str = ""


class Book(Protocol):
    """What was counted of one thing; :mod:`headrace.ledger` is the contract.

    Attributes:
        section: the member of the JSON of ``reconcile`` that holds such books.
        heading: of what it is, as a format of the book. Books with one heading follow one another,
            and have the same columns.
        unknown: why something is not known; without columns: why nothing was counted.
    """

    section: ClassVar[str]
    heading: ClassVar[str]
    unknown: str

    def columns(self) -> Sequence[str]:
        """Returns the titles of the figures of lines; without any, there are no lines."""

    def lines(self) -> Iterable[BookLine]:
        """Returns what must balance, in order."""

    def extras(self) -> Iterable[Remark]:
        """Returns what it says beside its lines."""
        return ()


@dataclass(frozen=True)
class Totals:
    """The sums of all lines of books with one title.

    Attributes:
        section: of the books in the JSON of ``reconcile``.
        title: of the books.
        lines: how many there are.
        figures: the sum of each column; None: it is not known of some line.
    """

    section: str
    title: str
    lines: int
    figures: Mapping[str, int | None]


class WindowBook(Book):
    """A book whose lines are windows, the oldest first.

    Attributes:
        untimed: name of the line of what has no time.
        tables: titles of counted rows, each with its field of a window.
        window_seconds: length of the windows.
        windows: those that are lines.
    """

    untimed: ClassVar[str]
    tables: ClassVar[Mapping[str, str]]
    window_seconds: int
    windows: tuple[WindowBalance, ...]

    def columns(self) -> list[str]:
        """Returns the fates that any window has, and the tables whose rows were counted."""
        windows, tables = self.windows, self.tables.items()
        fates = dict.fromkeys(fate for window in windows for fate in window.fates)
        rows = (
            title for title, name in tables if any(getattr(w, name) is not None for w in windows)
        )
        return ["read", *fates, *rows]

    def lines(self) -> Iterator[BookLine]:
        """Yields a line for each window."""
        tables, columns = self.tables, self.columns()[1:]
        for window in self.windows:
            start, fates, differences = window.start, window.fates, window.differences
            name = self.untimed if start is None else f"{start:%Y-%m-%d %H:%M:%S} UTC"
            figures = (
                getattr(window, tables[title]) if title in tables else fates.get(Fate(title), 0)
                for title in columns
            )
            unknown = "" if differences else window.unknown
            yield BookLine(name, window.state, (window.read, *figures), differences, unknown)


@dataclass(frozen=True)
class Balance:
    """The result of a book: its lines, its remarks, and whether they balance."""

    book: Book
    title: str
    lines: tuple[BookLine, ...]
    extras: tuple[Remark, ...]

    @classmethod
    def of(cls, book: Book) -> Balance:
        """Returns the balance of a book."""
        return cls(book, book.heading.format(book), (*book.lines(),), (*book.extras(),))

    @property
    def is_unbalanced(self) -> bool:
        """Returns whether any line or remark is unbalanced."""
        return WindowState.UNBALANCED in self._states

    @property
    def is_unknown(self) -> bool:
        """Returns whether something was not counted, so that the lines prove nothing."""
        return bool(self.book.unknown) or WindowState.UNKNOWN in self._states

    @property
    def _states(self) -> set[str]:
        return {line.state for line in self.lines} | {remark.kind for remark in self.extras}


def totals_of(balances: Sequence[Balance]) -> Totals | None:
    """Returns the totals of balances with one title; None: they have no lines."""
    book, lines = balances[0].book, [line for balance in balances for line in balance.lines]
    if not lines:
        return None
    sums = (
        None if None in figures else sum(filter(None, figures))
        for figures in zip(*(line.figures for line in lines), strict=True)
    )
    figures = dict(zip(book.columns(), sums, strict=True))
    return Totals(book.section, balances[0].title, len(lines), figures)
