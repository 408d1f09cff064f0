"""The two interfaces of BigQuery: REST for tables, gRPC for streams; and its errors as ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from headrace.errors import SinkError, SinkUnavailableError
from headrace.runtime.extras import require_extra
from headrace.runtime.retrying import exponential_backoff, retry

if TYPE_CHECKING:
    from google.api_core.exceptions import GoogleAPICallError
    from google.cloud.bigquery_storage_v1 import BigQueryWriteClient
    from requests import Response

NAME = "BigQuery"
TASK_WAIT_SECONDS, COMMIT_WAIT_SECONDS = 120.0, 20.0
"""How long a task, or a commit, sends again what is not taken now; then its batch fails.

A quota of changes of the commit state is available again after 10 seconds.
"""
REST_ENDPOINT = "https://bigquery.googleapis.com"
_SCOPES = ("https://www.googleapis.com/auth/bigquery",)
_DELAYS_SECONDS = (0.1, 30.0)  # the first one, and the longest
_REST_TIMEOUT_SECONDS = 30.0
_RPC_TIMEOUT_SECONDS = 60.0
# Of all requests of a stream together: the deadline of gRPC is that of the whole call.
_APPEND_TIMEOUT_SECONDS = 600.0
# A connection that was cut without a word is noticed, not waited for.
_CHANNEL_OPTIONS = (("grpc.keepalive_time_ms", 60_000), ("grpc.keepalive_timeout_ms", 20_000))
_NOT_FOUND, _CONFLICT, _PRECONDITION_FAILED = 404, 409, 412
# Rights may be given while the pipeline waits, and take minutes to be known everywhere.
_PASSING = frozenset({401, 403, 408, 429})
_SERVER_FAULT = 500
_TABLE_KIND = "bigquery#table"

T = TypeVar("T")


@dataclass(frozen=True)
class TableAddress:
    """A table, and which servers are asked for it.

    Attributes:
        endpoint: URL of the REST interface.
        storage_endpoint: ``http://host:port`` of a stand-in for the Storage Write API, without
            TLS; empty: Google's.
    """

    project: str
    dataset: str
    table: str
    endpoint: str = REST_ENDPOINT
    storage_endpoint: str = ""

    @property
    def label(self) -> str:
        """Returns its name as SQL has it."""
        return f"{self.project}.{self.dataset}.{self.table}"

    @property
    def bq_name(self) -> str:
        """Returns its name as the command ``bq`` has it."""
        return f"{self.project}:{self.dataset}.{self.table}"

    @property
    def path(self) -> str:
        """Returns its name as both interfaces have it."""
        return f"projects/{self.project}/datasets/{self.dataset}/tables/{self.table}"


class Tables:
    """The REST interface, as far as tables are concerned. A resource is JSON as BigQuery's API has.

    Args:
        address: whose server is asked, with the credentials that Google's libraries find; one
            without TLS is asked without any.

    Raises:
        ExtraMissingError: if the extra ``bigquery`` is not installed.
        SinkUnavailableError: by each method, if the server does not answer, or refuses access, or
            what answers is not BigQuery, but a proxy.
        SinkError: by each method, if it refuses the request.
    """

    now_ms: int
    """The server's time at its last answer, in milliseconds since 1970."""

    def __init__(self, address: TableAddress) -> None:
        require_extra("bigquery")
        from google.auth.transport.requests import AuthorizedSession

        self._base = f"{address.endpoint.rstrip('/')}/bigquery/v2/"
        self._session = AuthorizedSession(_credentials(address.endpoint))

    def get(self, address: TableAddress) -> dict[str, Any] | None:
        """Returns the table; None: there is none."""
        return self._answer("GET", address.path, otherwise=_NOT_FOUND)

    def insert(self, address: TableAddress, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Makes the table, and returns it; None: there is one already.

        Raises:
            SinkError: if there is no such dataset.
        """
        parent = address.path.rpartition("/")[0]
        reference = {
            "projectId": address.project,
            "datasetId": address.dataset,
            "tableId": address.table,
        }
        body = {**body, "tableReference": reference}
        return self._answer("POST", parent, body, otherwise=_CONFLICT)

    def patch(
        self, address: TableAddress, body: Mapping[str, Any], etag: str
    ) -> dict[str, Any] | None:
        """Changes parts of the table, and returns it; None: it is no longer that of ``etag``."""
        headers = {"If-Match": etag}
        return self._answer("PATCH", address.path, body, headers, otherwise=_PRECONDITION_FAILED)

    def close(self) -> None:
        """Closes its connections."""
        self._session.close()

    def _answer(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        otherwise: int,
    ) -> dict[str, Any] | None:
        """Returns the table of an answer; None: it is an error with the status ``otherwise``."""
        from google.auth.exceptions import GoogleAuthError
        from requests import RequestException

        try:
            response: Response = self._session.request(
                method, self._base + path, json=body, headers=headers, timeout=_REST_TIMEOUT_SECONDS
            )
        except (RequestException, GoogleAuthError) as error:
            raise SinkUnavailableError(NAME, str(error)) from error
        if response.status_code in _PASSING or response.status_code >= _SERVER_FAULT:
            raise SinkUnavailableError(NAME, _message(response))
        table, self.now_ms = _table_of(response)
        if response.status_code == otherwise:
            return None
        if not response.ok:
            raise SinkError(NAME, _message(response))
        return table


class Streams:
    """The Storage Write API. Requests and answers are values of Google's client.

    Its own retries are off: they last for 10 minutes to a day, and send appends without a look at
    what was taken.

    Args:
        address: whose server is asked, as by :class:`Tables`.
    """

    def __init__(self, address: TableAddress) -> None:
        require_extra("bigquery")
        import grpc
        from google.cloud.bigquery_storage_v1 import BigQueryWriteClient
        from google.cloud.bigquery_storage_v1.services.big_query_write.transports import (
            BigQueryWriteGrpcTransport,
        )

        if address.storage_endpoint:
            target = address.storage_endpoint.removeprefix("http://")
            channel = grpc.insecure_channel(target, _CHANNEL_OPTIONS)
        else:
            channel = BigQueryWriteGrpcTransport.create_channel(
                credentials=_credentials(address.endpoint), options=_CHANNEL_OPTIONS
            )
        transport = BigQueryWriteGrpcTransport(channel=channel)
        self._client: BigQueryWriteClient = BigQueryWriteClient(transport=transport)

    def call(self, method: str, **fields: Any) -> Any:
        """Calls a method that has one answer, such as ``create_write_stream``.

        Raises:
            GoogleAPICallError: if it fails.
        """
        call = getattr(self._client, method)
        return call(request=fields, retry=None, timeout=_RPC_TIMEOUT_SECONDS)

    def append(self, stream: str, requests: Iterator[Any]) -> Iterator[Any]:
        """Yields an answer for each request, in their order.

        Raises:
            GoogleAPICallError: if the connection ends before.
        """
        return iter(
            self._client.append_rows(
                requests=requests,
                retry=None,
                timeout=_APPEND_TIMEOUT_SECONDS,
                metadata=(("x-goog-request-params", f"write_stream={quote(stream)}"),),
            )
        )

    def close(self) -> None:
        """Closes its connection."""
        self._client.transport.close()


@contextmanager
def translated_errors(*passing: type[GoogleAPICallError]) -> Iterator[None]:
    """Errors of the Storage Write API as ours: :class:`SinkUnavailableError` for what may pass.

    Args:
        passing: kinds that may pass at this call, beside those that may at any call.
    """
    from google.api_core.exceptions import Aborted, Cancelled, GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except GoogleAuthError as error:
        raise SinkUnavailableError(NAME, str(error)) from error
    except GoogleAPICallError as error:
        is_passing = error.code in _PASSING or (error.code or _SERVER_FAULT) >= _SERVER_FAULT
        is_passing |= isinstance(error, (Aborted, Cancelled, *passing))
        # The table has columns that were just added minutes before the Storage Write API knows
        # them.
        is_passing |= lacks_columns(error.details)
        raise (SinkUnavailableError if is_passing else SinkError)(NAME, error.message) from error


def lacks_columns(details: Iterable[Any]) -> bool:
    """Whether the Storage Write API does not know columns or members that were just added.

    Args:
        details: of an error. The API knows them some minutes after the table has them.
    """
    from google.cloud.bigquery_storage_v1.types import StorageError
    from google.protobuf.any_pb2 import Any as AnyMessage

    for detail in details:
        error = StorageError.pb(StorageError())
        if isinstance(detail, AnyMessage) and detail.Unpack(error):
            return bool(error.code == StorageError.StorageErrorCode.SCHEMA_MISMATCH_EXTRA_FIELDS)
    return False


def retry_for(call: Callable[[], T], wait_seconds: float) -> T:
    """Returns what ``call`` returns, which is tried again while BigQuery does not take it.

    Raises:
        SinkUnavailableError: if it does not for so long.
    """
    return retry(call, SinkUnavailableError, exponential_backoff(*_DELAYS_SECONDS), wait_seconds)


def _credentials(endpoint: str) -> Any:
    from google.auth import default
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import GoogleAuthError

    if endpoint.startswith("http://"):
        return AnonymousCredentials()
    try:
        return default(scopes=_SCOPES)[0]
    except GoogleAuthError as error:
        # A key file may be replaced at this moment, and a server of metadata not answer yet.
        raise SinkUnavailableError(NAME, str(error)) from error


def _table_of(response: Response) -> tuple[dict[str, Any], int]:
    """Returns the table, or the error, that BigQuery answers, and its time in milliseconds.

    Raises:
        SinkUnavailableError: if it is the answer of a proxy, which says nothing about the table.
    """
    try:
        body: dict[str, Any] = response.json()
        is_own = (
            body["kind"] == _TABLE_KIND
            if response.ok
            else body["error"]["code"] == response.status_code
        )
        now_ms = int(parsedate_to_datetime(response.headers["Date"]).timestamp() * 1000)
    except (ValueError, KeyError, TypeError):
        is_own = False
    if not is_own:
        reason = f"{_message(response)} {response.text[:200]!r}: this is no answer of BigQuery"
        raise SinkUnavailableError(NAME, reason)
    return body, now_ms


def _message(response: Response) -> str:
    try:
        return f"{response.status_code}: {response.json()['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code}: {response.reason}"
