"""A proxy in front of the Storage Write API: it loses answers, cuts connections, refuses rows.

It forwards bytes. What it does to a call is planned by method, one plan a call, in their order.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pyarrow as pa
from google.cloud.bigquery_storage_v1.types import (
    AppendRowsRequest,
    AppendRowsResponse,
    FinalizeWriteStreamRequest,
    RowError,
)

CREATE, APPEND, FINALIZE = "CreateWriteStream", "AppendRows", "FinalizeWriteStream"
COMMIT, GET = "BatchCommitWriteStreams", "GetWriteStream"
LOSE_REQUEST, LOSE_ANSWER = "lose request", "lose answer"
_INVALID_ARGUMENT = 3


class BigQueryProxy:
    """``plan(COMMIT, LOSE_ANSWER)``: the next commit is done, and its answer does not arrive.

    ``calls`` has the methods of all calls, ``streams`` the names of streams that were finalized.

    Args:
        port: of the server.
        choose: the plan of a call of a method, where none is made.
        turn: entered for each call with one answer: the stand-in commits a stream twice if two ask
            for it at the same moment.
        refuses: says of the values of a row whether BigQuery refuses it; an append with such a row
            takes none.
    """

    def __init__(
        self,
        port: int,
        refuses: Callable[[dict], bool] = lambda _: False,
        choose: Callable[[str], str] = lambda _: "",
        turn: contextlib.AbstractContextManager[object] | None = None,
    ) -> None:
        self._refuses, self._choose = refuses, choose
        self._turn = turn or contextlib.nullcontext()
        self._plans: dict[str, deque[str]] = defaultdict(deque)
        self.calls: list[str] = []
        self.streams: list[str] = []
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._server = grpc.server(ThreadPoolExecutor(16))
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def plan(self, method: str, *plans: str) -> None:
        self._plans[method].extend(plans)

    def close(self) -> None:
        self._server.stop(None).wait()
        self._channel.close()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """What gRPC asks for each call."""
        method = details.method.rpartition("/")[2]
        if method == APPEND:
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: self._append(details.method, requests, context)
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._call(details.method, request, context)
        )

    def _plan_of(self, path: str) -> str:
        method = path.rpartition("/")[2]
        self.calls.append(method)
        return self._plans[method].popleft() if self._plans[method] else self._choose(method)

    def _call(self, path: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        plan = self._plan_of(path)
        if path.endswith(FINALIZE):
            parsed = FinalizeWriteStreamRequest.deserialize(request)
            self.streams.append(parsed.name.rpartition("/")[2])
        if plan != LOSE_REQUEST:
            with self._turn, _errors_of(context):
                answer: bytes = self._channel.unary_unary(path)(request)
        if plan:
            context.abort(grpc.StatusCode.UNAVAILABLE, plan)
        return answer

    def _append(
        self, path: str, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        plan = self._plan_of(path)
        if plan == LOSE_REQUEST:
            context.abort(grpc.StatusCode.UNAVAILABLE, plan)
        schema = None
        refused: deque[AppendRowsResponse | None] = deque()

        def taken() -> Iterator[bytes]:
            nonlocal schema
            for request in requests:
                parsed = AppendRowsRequest.deserialize(request)
                if parsed.arrow_rows.writer_schema.serialized_schema != b"":
                    serialized = parsed.arrow_rows.writer_schema.serialized_schema
                    schema = pa.ipc.read_schema(pa.py_buffer(serialized))
                errors = self._row_errors(parsed, schema)
                refused.append(errors)
                if errors is not None:
                    # What is behind it has offsets beyond the end of the stream.
                    return
                yield request

        with _errors_of(context):
            for answer in self._channel.stream_stream(path)(taken()):
                if plan == LOSE_ANSWER:
                    context.abort(grpc.StatusCode.UNAVAILABLE, plan)
                yield answer
        if refused and refused[-1] is not None:
            yield AppendRowsResponse.serialize(refused[-1])

    def _row_errors(self, request: AppendRowsRequest, schema: pa.Schema) -> object:
        serialized = request.arrow_rows.rows.serialized_record_batch
        rows = pa.ipc.read_record_batch(pa.py_buffer(serialized), schema).to_pylist()
        errors = [
            RowError(index=index, code=RowError.RowErrorCode.FIELDS_ERROR, message="too odd")
            for index, row in enumerate(rows)
            if self._refuses(row)
        ]
        if not errors:
            return None
        error = {"code": _INVALID_ARGUMENT, "message": "Errors found while processing rows"}
        return AppendRowsResponse(error=error, row_errors=errors)


@contextlib.contextmanager
def _errors_of(context: grpc.ServicerContext) -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        context.abort(error.code(), error.details())
