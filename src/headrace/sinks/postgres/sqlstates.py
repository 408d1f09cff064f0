"""What the errors of PostgreSQL mean to writers of rows: one table of SQLSTATEs.

The first two characters of a SQLSTATE are its class; a few states differ from their class.

=================================== ======================== =====================================
SQLSTATE                            cause                    what follows
=================================== ======================== =====================================
08, 40, 53, 57, 25006, 55P03        ``TRANSIENT``            trying again may help
22, 23, 44, 54, P0, I to Z but XX   ``ROW``                  the row is rejected, the others go in
25, 26, 28, 2D, 3B, 3D, 58, F0, HV, ``STATEMENT``            no row is written
XX, none
all others                          ``ROW_OR_STATEMENT``     ``ROW``, unless the statement fails
                                                             without rows too
=================================== ======================== =====================================
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sinks.postgres.identifiers import EXACT

if TYPE_CHECKING:
    import psycopg

_MAX_MESSAGE_CHARACTERS = 500


class Cause(enum.Enum):
    """What an error is the fault of.

    TRANSIENT: a lost connection, a conflict with another transaction, a server that stops, a
    standby after a failover, a lock that is not available.
    ROW: its values, a constraint, a limit of an index, or a trigger that raised it.
    STATEMENT: the session, the login, the database or PostgreSQL itself.
    ROW_OR_STATEMENT: a missing right is the statement's, and the row's under row-level security; a
    trigger raises any state.
    """

    TRANSIENT = enum.auto()
    ROW = enum.auto()
    STATEMENT = enum.auto()
    ROW_OR_STATEMENT = enum.auto()


_CAUSES = {
    **dict.fromkeys(("08", "40", "53", "57", "25006", "55P03"), Cause.TRANSIENT),
    **dict.fromkeys(("22", "23", "44", "54", "P0"), Cause.ROW),
    **dict.fromkeys(
        ("", "25", "26", "28", "2D", "3B", "3D", "58", "F0", "HV", "XX"), Cause.STATEMENT
    ),
}
# Standard SQL leaves the classes from I to Z to the database, and PostgreSQL uses P0 and XX of
# them: another one is a state that a trigger made up.
_OF_TRIGGERS = frozenset("IJKLMNOPQRSTUVWXYZ")
_CHARACTER_STATES = frozenset({"22021", "22P05"})
_REASONS = {
    "23502": "missing-value",
    "23503": "foreign-key",
    "23505": "not-unique",
    "23514": "check-violated",
    "42501": "not-permitted",
    "22": "wrong-value",
    "23": "constraint",
    "44": "constraint",
    "54": "row-too-large",
}
_FIRST_BYTE = re.compile(r"0x([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class ServerError:
    """An error as PostgreSQL reports it.

    Attributes:
        state: SQLSTATE; empty for an error of the client.
        text: the message, in the server's language.
        column: where the server knows one, else empty.
        detail: a second sentence, or empty.
        constraint: the constraint that is violated, or empty.
    """

    state: str
    text: str
    column: str = ""
    detail: str = ""
    constraint: str = ""

    @classmethod
    def of(cls, error: psycopg.Error) -> ServerError:
        """Returns what psycopg's error holds."""
        diagnostics = error.diag
        text = diagnostics.message_primary or str(error).strip() or type(error).__name__
        return cls(
            error.sqlstate or "",
            text,
            diagnostics.column_name or "",
            diagnostics.message_detail or "",
            diagnostics.constraint_name or "",
        )

    @property
    def cause(self) -> Cause:
        """Returns what the error is the fault of."""
        default = Cause.ROW if self.state[:1] in _OF_TRIGGERS else Cause.ROW_OR_STATEMENT
        return _CAUSES.get(self.state) or _CAUSES.get(self.state[:2], default)

    @property
    def reason(self) -> str:
        """Returns the stable code for an error of a row."""
        if self._changed_column is not None:
            return "wrong-value"
        if self.state in _CHARACTER_STATES:
            return "nul-character" if self._is_nul() else "unsupported-character"
        return _REASONS.get(self.state) or _REASONS.get(self.state[:2], "rejected-by-trigger")

    @property
    def message(self) -> str:
        """Returns what PostgreSQL says, with the column where it knows one."""
        if self._changed_column is not None:
            return f"column {self._changed_column!r}: its type would round or cut the value"
        is_named = repr(self.column)[1:-1] in self.text
        where = "" if is_named else f"column {self.column!r}: "
        return (where + self.text)[:_MAX_MESSAGE_CHARACTERS]

    @property
    def _changed_column(self) -> str | None:
        """The column that would take the value, and keep another one."""
        is_exact = self.constraint.startswith(EXACT)
        return self.constraint.removeprefix(EXACT).partition("_")[2] if is_exact else None

    def _is_nul(self) -> bool:
        """Whether it is NUL, and no other character that the database's encoding lacks.

        Both have the same states. Messages are translated, the bytes that they quote are not.
        """
        first_byte = _FIRST_BYTE.search(self.text)
        is_nul = first_byte is not None and first_byte[1] == "00"
        return is_nul or "\\u0000" in self.detail  # the latter of JSON


def cause_of(error: psycopg.Error) -> Cause:
    """Returns what an error is the fault of.

    An error without a SQLSTATE is the client's; where the connection is lost, it is transient.
    """
    import psycopg

    if not error.sqlstate and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return Cause.TRANSIENT
    return ServerError.of(error).cause


def may_be_of_row(error: psycopg.Error) -> bool:
    """Whether a statement with several rows may fail for the sake of some of them."""
    return cause_of(error) in {Cause.ROW, Cause.ROW_OR_STATEMENT}


def is_of_row(error: psycopg.Error, fails_without_rows: Callable[[], bool]) -> bool:
    """Whether a statement with one row failed for that row's sake.

    Args:
        error: of the statement.
        fails_without_rows: executes the statement without rows; called where only that shows it.
    """
    cause = cause_of(error)
    return cause is Cause.ROW or (cause is Cause.ROW_OR_STATEMENT and not fails_without_rows())
