"""What errors of the Storage Write API mean, and what becomes of streams after any answer."""

import pytest
from google.api_core import exceptions
from google.cloud.bigquery_storage_v1.types import BatchCommitWriteStreamsResponse, WriteStream

from headrace.errors import SinkError, SinkUnavailableError
from headrace.sinks.bigquery import connection
from headrace.sinks.bigquery.connection import TableAddress, translated_errors
from headrace.sinks.bigquery.streams import StreamsOutcome, StreamsRefusedError, commit_streams

NOW = {"seconds": 1_700_000_000}
COMMITTED, PENDING = WriteStream(commit_time=NOW), WriteStream()
GONE = exceptions.NotFound("Requested entity was not found")


@pytest.mark.parametrize(
    ("kind", "passes"),
    [
        (exceptions.ServiceUnavailable, True),
        (exceptions.ResourceExhausted, True),
        (exceptions.DeadlineExceeded, True),
        (exceptions.InternalServerError, True),
        (exceptions.Unknown, True),
        (exceptions.Aborted, True),
        (exceptions.Cancelled, True),
        (exceptions.PermissionDenied, True),
        (exceptions.Unauthenticated, True),
        (exceptions.InvalidArgument, False),
        (exceptions.NotFound, False),
        (exceptions.FailedPrecondition, False),
        (exceptions.OutOfRange, False),
    ],
)
def test_what_may_pass_is_waited_for(kind, passes):
    with pytest.raises(SinkError, match="overloaded") as caught, translated_errors():
        raise kind("overloaded")
    assert isinstance(caught.value, SinkUnavailableError) == passes


class Answers:
    """Answers calls of the Storage Write API."""

    def __init__(self, commit, *states):
        self._commit, self._states = commit, list(states)

    def call(self, method, **fields):
        answer = self._commit if method == "batch_commit_write_streams" else self._states.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


REFUSED = BatchCommitWriteStreamsResponse(stream_errors=[{"error_message": "in a wrong state"}])


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        (Answers(BatchCommitWriteStreamsResponse(commit_time=NOW)), StreamsOutcome.COMMITTED),
        (Answers(REFUSED, COMMITTED), StreamsOutcome.COMMITTED),  # and so is the other one
        (Answers(REFUSED, GONE, COMMITTED), StreamsOutcome.COMMITTED),
        (Answers(REFUSED, GONE, PENDING), StreamsOutcome.GONE),
        (Answers(GONE, GONE, GONE), StreamsOutcome.GONE),
        (
            Answers(exceptions.FailedPrecondition("done"), PENDING, COMMITTED),
            StreamsOutcome.COMMITTED,
        ),
    ],
)
def test_streams_are_looked_at_where_the_answer_does_not_say_it(answers, outcome):
    """Up to the first that is committed."""
    assert commit_streams(answers, TableAddress("p", "d", "t"), ["a", "b"]) is outcome


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (Answers(REFUSED, PENDING, PENDING), StreamsRefusedError),
        (Answers(REFUSED, exceptions.FailedPrecondition("odd")), SinkError),
        (Answers(exceptions.ServiceUnavailable("later")), SinkUnavailableError),
        (Answers(REFUSED, exceptions.ServiceUnavailable("later")), SinkUnavailableError),
    ],
)
def test_an_unknown_outcome_is_no_outcome(answers, kind, monkeypatch):
    monkeypatch.setattr(connection, "COMMIT_WAIT_SECONDS", 0.0)
    with pytest.raises(SinkError) as caught:
        commit_streams(answers, TableAddress("p", "d", "t"), ["a", "b"])
    assert type(caught.value) is kind
