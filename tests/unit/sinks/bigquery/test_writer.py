"""What a task does after each answer to an append."""

import json
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import grpc
import pyarrow as pa
import pytest
from google.cloud.bigquery_storage_v1.types import (
    AppendRowsRequest,
    AppendRowsResponse,
    FinalizeWriteStreamRequest,
    FinalizeWriteStreamResponse,
    StorageError,
    WriteStream,
)
from google.rpc.status_pb2 import Status
from grpc_status.rpc_status import to_status

from headrace.sinks.bigquery.columns import TableColumn
from headrace.sinks.bigquery.connection import TableAddress
from headrace.sinks.bigquery.conversion import RowForm
from headrace.sinks.bigquery.writer import StreamWriter

PATH = "projects/p/datasets/d/tables/zdarzeń"
ENDS_THE_CALL = "ends the call"
QUOTA = "Exceeds quota of append throughput bytes, retry later"


class WriteApi:
    """One stream; ``plans`` are codes and messages, of the next appends.

    A code of gRPC ends the call; a number or a ``Status`` is one in an answer, unless the message
    is that it ends the call, too.
    """

    def __init__(self, *plans):
        self.plans, self.rows, self.parameters = deque(plans), 0, []
        options = [("grpc.max_receive_message_length", -1)]
        self._server = grpc.server(ThreadPoolExecutor(2), options=options)
        self._server.add_generic_rpc_handlers((self,))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.address = TableAddress("p", "d", "zdarzeń", "http://h", f"http://127.0.0.1:{port}")

    def close(self):
        self._server.stop(None).wait()

    def service(self, details):
        method = details.method.rpartition("/")[2]
        if method == "AppendRows":
            self.parameters += [
                value for name, value in details.invocation_metadata if "params" in name
            ]
            return grpc.stream_stream_rpc_method_handler(self._append)
        answer = self._created if method == "CreateWriteStream" else self._finalized
        return grpc.unary_unary_rpc_method_handler(answer)

    def _created(self, request, context):
        return WriteStream.serialize(WriteStream(name=f"{PATH}/streams/s"))

    def _finalized(self, request, context):
        answer = FinalizeWriteStreamResponse(row_count=self.rows)
        return FinalizeWriteStreamResponse.serialize(answer)

    def _append(self, requests, context):
        for request in requests:
            code, message = self.plans.popleft() if self.plans else (0, "")
            if isinstance(code, grpc.StatusCode):
                context.abort(code, message)
            error = code if isinstance(code, Status) else Status(code=code, message=message)
            if message == ENDS_THE_CALL:
                context.abort_with_status(to_status(error))
            if not error.code:
                parsed = AppendRowsRequest.deserialize(request)
                self.rows += len(_texts(parsed.arrow_rows.rows.serialized_record_batch))
            answer = AppendRowsResponse(error=error)
            yield AppendRowsResponse.serialize(answer)


def _unknown_columns():
    """The error of rows with a column that the table has, and its streams do not know yet."""
    code = StorageError.StorageErrorCode.SCHEMA_MISMATCH_EXTRA_FIELDS
    status = Status(code=3, message="Input schema has more fields than BigQuery schema")
    status.details.add().Pack(StorageError.pb(StorageError(code=code)))
    return status


SCHEMA = pa.schema([("name", pa.string())])


def _texts(batch):
    return pa.ipc.read_record_batch(pa.py_buffer(batch), SCHEMA)["name"].to_pylist()


class ForgetfulApi(WriteApi):
    """Streams with offsets. A request that is too large ends its call, whose answers are lost."""

    def __init__(self, *, limit):
        super().__init__()
        self._limit, self.streams = limit, []

    def _created(self, request, context):
        self.streams.append([])
        name = f"{PATH}/streams/{len(self.streams) - 1}"
        return WriteStream.serialize(WriteStream(name=name))

    def _finalized(self, request, context):
        name = FinalizeWriteStreamRequest.deserialize(request).name
        answer = FinalizeWriteStreamResponse(row_count=len(self.streams[_number(name)]))
        return FinalizeWriteStreamResponse.serialize(answer)

    def _append(self, requests, context):
        answers, stream = [], None
        for request in requests:
            if len(request) > self._limit:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The request is too large")
            parsed = AppendRowsRequest.deserialize(request)
            if stream is None:
                stream = self.streams[_number(parsed.write_stream)]
            code = (parsed.offset < len(stream) and 6) or (parsed.offset > len(stream) and 11)
            stream += [] if code else _texts(parsed.arrow_rows.rows.serialized_record_batch)
            answers.append(AppendRowsResponse(error={"code": int(code)}))
        yield from map(AppendRowsResponse.serialize, answers)


def _number(path):
    return int(path.rpartition("/")[2])


def written(*texts, plans=(), server=None):
    """What is rejected of rows, and the pieces."""
    server = server or WriteApi(*plans)
    try:
        form = RowForm({"name": TableColumn("name", "STRING")}, {})
        writer = StreamWriter(server.address, form, "t")
        rejected = [row.reason for row in writer.write(pa.table([list(texts)], schema=SCHEMA))]
        return rejected, writer.close(), server
    finally:
        server.close()


@pytest.mark.parametrize(
    "plan",
    [
        (grpc.StatusCode.FAILED_PRECONDITION, "the connection was idle"),
        (grpc.StatusCode.ABORTED, "the server restarts"),
        (grpc.StatusCode.CANCELLED, ""),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, QUOTA),
        (9, "the connection was idle"),
        (1, "cancelled"),
        (8, QUOTA),
        (_unknown_columns(), ""),
        (_unknown_columns(), ENDS_THE_CALL),
    ],
)
def test_an_append_that_may_be_taken_later_is_sent_again(plan):
    rejected, [piece], _ = written("x" * 9_600_000, plans=[plan])
    assert (rejected, piece) == ([], '{"stream":"s","rows":1}')


@pytest.mark.parametrize(
    "plan",
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9600 vs. 4194)"),
        (grpc.StatusCode.INVALID_ARGUMENT, "The request is too large"),
        (3, "The size of the request exceeds 9437184 bytes"),
    ],
)
def test_a_row_that_the_server_says_is_too_large_is_rejected(plan):
    assert written("x" * 9_600_000, plans=[plan])[:2] == (["row-too-large"], [])


def test_of_a_call_that_loses_its_answers_the_row_that_ended_it_is_rejected_alone():
    """The first row is large, too, and is appended before the call ends."""
    server = ForgetfulApi(limit=5_000_000)
    texts = ["a" * 3_000_000, "b" * 6_000_000, "c", "d" * 7_000_000, "e"]
    rejected, pieces, _ = written(*texts, server=server)
    assert rejected == ["row-too-large"] * 2
    taken = [_number(json.loads(piece)["stream"]) for piece in pieces]
    assert [text[0] for number in taken for text in server.streams[number]] == ["a", "c", "e"]


def test_a_row_of_more_than_a_request_may_have_is_not_sent():
    rejected, [piece], _ = written("x" * 10_600_000, "y")
    assert (rejected, piece) == (["row-too-large"], '{"stream":"s","rows":1}')


def test_names_of_tables_beyond_ascii_are_quoted_in_headers():
    _, _, server = written("y")
    quoted = "projects/p/datasets/d/tables/zdarze%C5%84/streams/s"
    assert f"write_stream={quoted}" in server.parameters
