"""Books that were compared, whatever they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from headrace.ledger.balance import Balance, Book, Totals, totals_of

_SECTIONS = ("pipelines", "links", "queries", "matched_events")


@dataclass(frozen=True)
class Reconciliation:
    """The books that were compared.

    Attributes:
        books: of pipelines, then of links, then of standing queries, each with those of its
            matched events if there was a recount.
    """

    books: tuple[Book, ...]

    @cached_property
    def balances(self) -> tuple[Balance, ...]:
        """Returns the balance of each book."""
        return tuple(map(Balance.of, self.books))

    @property
    def is_unbalanced(self) -> bool:
        """Returns whether any book is unbalanced."""
        return any(balance.is_unbalanced for balance in self.balances)

    @property
    def is_unknown(self) -> bool:
        """Returns whether something was not counted, so that the books prove nothing."""
        return any(balance.is_unknown for balance in self.balances)

    @property
    def by_title(self) -> tuple[tuple[Balance, ...], ...]:
        """Returns the balances with one title together, as they follow one another."""
        groups = groupby(self.balances, key=lambda balance: balance.title)
        return tuple(tuple(balances) for _, balances in groups)

    def to_json(self) -> dict[str, Sequence[Book | Totals]]:
        """Returns the books by section, the first four also without any, and the totals."""
        sections: dict[str, list[Book]] = {name: [] for name in _SECTIONS}
        for book in self.books:
            sections.setdefault(book.section, []).append(book)
        totals = [total for group in self.by_title if (total := totals_of(group)) is not None]
        return {**sections, "totals": totals}
