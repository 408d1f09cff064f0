"""Which errors reject a row, which fail a batch, and which are worth trying again."""

import psycopg
import pytest
from psycopg import errors

from headrace.sinks.postgres.sqlstates import Cause, cause_of, is_of_row, may_be_of_row


def of_trigger(state):
    """An error that a trigger raised with a state of its own."""
    return type("OfTrigger", (psycopg.DatabaseError,), {"sqlstate": state})()


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (psycopg.OperationalError("the connection is lost"), Cause.TRANSIENT),
        (psycopg.InterfaceError("the connection is closed"), Cause.TRANSIENT),
        (psycopg.DataError("no SQLSTATE"), Cause.STATEMENT),
        (errors.SerializationFailure(), Cause.TRANSIENT),
        (errors.AdminShutdown(), Cause.TRANSIENT),
        (errors.ReadOnlySqlTransaction(), Cause.TRANSIENT),
        (errors.LockNotAvailable(), Cause.TRANSIENT),
        (errors.StringDataRightTruncation(), Cause.ROW),
        (errors.UniqueViolation(), Cause.ROW),
        (errors.RaiseException(), Cause.ROW),
        (errors.ProgramLimitExceeded(), Cause.ROW),
        (of_trigger("UE001"), Cause.ROW),
        (of_trigger("0B001"), Cause.ROW_OR_STATEMENT),
        (errors.InFailedSqlTransaction(), Cause.STATEMENT),
        (errors.InvalidPassword(), Cause.STATEMENT),
        (errors.InternalError_(), Cause.STATEMENT),
        (errors.InsufficientPrivilege(), Cause.ROW_OR_STATEMENT),
        (errors.UndefinedTable(), Cause.ROW_OR_STATEMENT),
        (errors.ObjectNotInPrerequisiteState(), Cause.ROW_OR_STATEMENT),
    ],
)
def test_an_error_has_one_cause(error, cause):
    assert cause_of(error) is cause


@pytest.mark.parametrize(
    ("error", "fails_without_rows", "is_rejected"),
    [
        (errors.UniqueViolation(), True, True),
        (errors.InsufficientPrivilege(), False, True),
        (errors.InsufficientPrivilege(), True, False),
        (errors.AdminShutdown(), False, False),
        (errors.InternalError_(), False, False),
    ],
)
def test_a_row_is_rejected_where_the_statement_alone_succeeds(
    error, fails_without_rows, is_rejected
):
    assert is_of_row(error, lambda: fails_without_rows) is is_rejected
    assert may_be_of_row(error) or not is_rejected
