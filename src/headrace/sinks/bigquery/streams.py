"""Whether the streams of a batch are committed: the one place where that is decided.

``BatchCommitWriteStreams`` commits all of a group or none, and a stream once. So the
last caller learns what holds for ever, also where another process was first: committed, or streams
that have expired and can't be committed any more.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from headrace.errors import SinkError, SinkUnavailableError
from headrace.sinks.bigquery import connection
from headrace.sinks.bigquery.connection import (
    NAME,
    Streams,
    TableAddress,
    retry_for,
    translated_errors,
)

_GONE = "gone"


class StreamsOutcome(enum.Enum):
    """What became of the streams of a group. GONE: they are not committed, and never will be."""

    COMMITTED = enum.auto()
    GONE = enum.auto()


class StreamsRefusedError(SinkError):
    """BigQuery knows the streams of a group, has committed none of them, and does not now."""


def commit_streams(streams: Streams, address: TableAddress, names: Sequence[str]) -> StreamsOutcome:
    """Commits finalized streams, unless they are committed already.

    Args:
        streams: the Storage Write API.
        address: of their table.
        names: of the streams, without the table.

    Raises:
        SinkUnavailableError: if it is not known whether they are committed.
        StreamsRefusedError: if BigQuery does not commit them now, and may later.
        SinkError: if it refuses to say what became of them.
    """
    paths = [f"{address.path}/streams/{name}" for name in names]
    wait_seconds = connection.COMMIT_WAIT_SECONDS
    return retry_for(lambda: _committed(streams, address, paths), wait_seconds)


def _committed(streams: Streams, address: TableAddress, paths: Sequence[str]) -> StreamsOutcome:
    request = {"parent": address.path, "write_streams": paths}
    try:
        with translated_errors():
            answer = streams.call("batch_commit_write_streams", **request)
    except SinkUnavailableError:
        raise
    except SinkError as error:
        reason = error.reason
    else:
        if "commit_time" in answer:
            return StreamsOutcome.COMMITTED
        # Errors of streams say too little: one that is committed is ALREADY_COMMITTED or in an
        # INVALID_STATE, and so is one that was never finalized.
        reason = "; ".join(error.error_message for error in answer.stream_errors)
    is_gone = False
    for path in paths:
        state = _state(streams, path)
        if state is True:
            return StreamsOutcome.COMMITTED  # all of them, or none
        is_gone |= state == _GONE
    if is_gone:
        return StreamsOutcome.GONE
    reason = f"table {address.label} does not take the streams of a batch: {reason}"
    raise StreamsRefusedError(NAME, reason)


def _state(streams: Streams, path: str) -> bool | str:
    """Returns whether a stream is committed, or ``_GONE``."""
    from google.api_core.exceptions import InvalidArgument, NotFound

    try:
        with translated_errors():
            return "commit_time" in streams.call("get_write_stream", name=path)
    except SinkError as error:
        # The name is one that BigQuery gave: if it is not valid, there is no such stream.
        if isinstance(error.__cause__, InvalidArgument | NotFound):
            return _GONE
        raise
