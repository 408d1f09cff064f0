"""Requests to a cluster of OpenSearch or Elasticsearch, over connections that are kept."""

from __future__ import annotations

import base64
import random
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec

from headrace.errors import SinkError, SinkUnavailableError
from headrace.model.fault import Fault
from headrace.runtime.extras import require_extra
from headrace.settings import Secret
from headrace.sinks.opensearch.answers import ACKNOWLEDGED
from headrace.sinks.opensearch.signing import AwsSigner

if TYPE_CHECKING:
    import urllib3

NAME = "OpenSearch"
URL = "url"
EXISTS = b"resource_already_exists_exception"
_CONNECT_SECONDS, _READ_SECONDS = 10.0, 60.0
# No row is at fault: a right is missing, or a proxy answers in place of the server.
_RETRYABLE = frozenset({401, 403, 408, 429})
_NOT_DONE, _NOT_FOUND, _SERVER_ERROR = 300, 404, 500
# In an error of the cluster, and where it has no such document.
_OF_CLUSTER = (b'_exception"', b'"found"')
_AWS = ("aws_access_key_id", "aws_secret_access_key")
_IN_HEADERS = ("api_key", "aws_region", "aws_service", "aws_access_key_id", "aws_session_token")
KNOWN_SETTINGS = frozenset(
    {URL, "user", "password", "api_key", "ca_file", "aws_region", "aws_service", *_AWS}
    | {"aws_session_token"}
)
_T = TypeVar("_T")


@dataclass(frozen=True)
class ClusterNodes:
    """The nodes of a cluster, and the credentials for them; picklable.

    Attributes:
        urls: of its nodes, or of a proxy in front of them.
        authorization: the header; None: there is none.
        signer: signs each request, for Amazon; None: nothing is signed.
        ca_file: certificates that are trusted in place of the system's.
    """

    urls: tuple[str, ...]
    authorization: Secret | None = None
    signer: AwsSigner | None = None
    ca_file: str | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Secret]) -> ClusterNodes:
        """Returns what ``[sinks.opensearch]`` of headrace.toml says."""
        values = {name: value.reveal() for name, value in settings.items()}
        authorization = None
        if "api_key" in values:
            authorization = Secret(f"ApiKey {values['api_key']}")
        elif "user" in values:
            login = f"{values['user']}:{values.get('password', '')}".encode()
            authorization = Secret(f"Basic {base64.b64encode(login).decode()}")
        return cls(_urls(values[URL]), authorization, _signer(settings), values.get("ca_file"))


def settings_faults(settings: Mapping[str, Secret]) -> Iterator[Fault]:
    """Yields what is wrong with ``[sinks.opensearch]``; no message shows a value."""
    where = "[sinks.opensearch] of headrace.toml"
    for name in sorted(settings.keys() - KNOWN_SETTINGS):
        yield Fault(
            f"{where} has an unknown key {name!r}", f"one of {', '.join(sorted(KNOWN_SETTINGS))}"
        )
    urls = _urls(settings[URL].reveal())
    if not urls or not all(map(_is_url, urls)):
        remedy = 'url = "https://search.example.com:9200", several with commas between them'
        message = f"{where}: url is not one of http:// or https:// without a user and a query"
        yield Fault(message, remedy)
    for name in _IN_HEADERS:
        if name in settings and not _is_plain(settings[name].reveal()):
            message = f"{where}: {name} has a line end, or a character that no header has"
            yield Fault(message, "printable ASCII characters")
    ways = [way for way in ("user", "api_key", "aws_region") if way in settings]
    if len(ways) > 1:
        yield Fault(f"{where} has {' and '.join(ways)}", "credentials of one kind")
    if "aws_region" in settings and not settings.keys() >= {*_AWS}:
        yield Fault(f"{where}: aws_region needs {' and '.join(_AWS)}")


def _urls(text: str) -> tuple[str, ...]:
    return tuple(url.strip().rstrip("/") for url in text.split(",") if url.strip())


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_address = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    is_secret = any(mark in url for mark in "@?#")
    return parts.scheme in ("http", "https") and is_address and not is_secret and _is_plain(url)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _signer(settings: Mapping[str, Secret]) -> AwsSigner | None:
    if "aws_region" not in settings:
        return None
    service = settings.get("aws_service", Secret("es")).reveal()
    key_id, secret = (settings[name] for name in _AWS)
    token = settings.get("aws_session_token")
    return AwsSigner(settings["aws_region"].reveal(), service, key_id.reveal(), secret, token)


@dataclass(frozen=True)
class ServerAnswer:
    """What the cluster answers.

    Attributes:
        status: of HTTP.
        body: JSON, of a server; a proxy in front of it may answer otherwise.
    """

    status: int
    body: bytes

    @property
    def reason(self) -> str:
        """The sentence of the server, with the status and the first cause."""
        try:
            error = msgspec.json.decode(self.body)["error"]
            text = str(error)
            if isinstance(error, dict):
                text = f"{error['type']}: {error['reason']}"
                while "caused_by" in error:
                    error = error["caused_by"]
                cause = error.get("reason")
                text += f": {cause}" if cause and cause not in text else ""
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            text = self.body[:200].decode(errors="replace")
        return f"{self.status} {text}".strip()

    def check(self) -> None:
        """Does nothing if the request was carried out.

        Raises:
            SinkError: if the cluster refuses it.
            SinkUnavailableError: if it may be carried out after some time or by someone's action,
                or the answer is that of a proxy, which says nothing about the cluster.
        """
        if self.status in _RETRYABLE or self.status >= _SERVER_ERROR:
            raise SinkUnavailableError(NAME, self.reason)
        if self.status >= _NOT_DONE:
            if not any(mark in self.body for mark in _OF_CLUSTER):
                raise self._foreign()
            raise SinkError(NAME, self.reason)

    def is_missing(self) -> bool:
        """Returns whether the cluster says that there is no such thing.

        Raises:
            SinkUnavailableError: if a 404 is that of a proxy.
        """
        if self.status != _NOT_FOUND:
            return False
        if not any(mark in self.body for mark in _OF_CLUSTER):
            raise self._foreign()
        return True

    def check_acknowledged(self) -> None:
        """Does nothing if something was put.

        Raises:
            SinkError: as :meth:`decoded`.
            SinkUnavailableError: if some nodes have not got it yet.
        """
        if not self.decoded(ACKNOWLEDGED).acknowledged:
            raise SinkUnavailableError(NAME, f"{self.reason}: not all nodes have got it yet")

    def decoded(self, decoder: msgspec.json.Decoder[_T]) -> _T:
        """Returns the body; the decoder knows what an answer of a cluster has in it.

        Raises:
            SinkError: as :meth:`check`.
            SinkUnavailableError: if it is another one than of a cluster, such as a page to log in.
        """
        self.check()
        try:
            return decoder.decode(self.body)
        except (ValueError, RecursionError):
            raise self._foreign() from None

    def _foreign(self) -> SinkUnavailableError:
        return SinkUnavailableError(NAME, f"{self.reason}: this is no answer of a cluster")


class Client:
    """Asks one of the nodes, and another one from then on where it does not answer.

    Each client starts at a random node. Any thread may ask.
    """

    def __init__(self, cluster: ClusterNodes) -> None:
        require_extra("opensearch")
        import urllib3

        self._cluster = cluster
        # Tasks load all nodes, and not the first one.
        self._urls = random.sample(cluster.urls, len(cluster.urls))
        timeout = urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS)
        self._pool: urllib3.PoolManager = urllib3.PoolManager(
            timeout=timeout, retries=False, maxsize=4, ssl_context=_trust(cluster.ca_file)
        )

    def ask(self, method: str, path: str, body: bytes = b"", kind: str = "json") -> ServerAnswer:
        """Returns the answer to a request, whatever its status is.

        Args:
            method: of the request.
            path: with its query, percent-encoded.
            body: what is sent.
            kind: of the body: ``json`` or ``x-ndjson``.

        Raises:
            SinkUnavailableError: if no node answers; it is not known whether one has got it.
            SinkError: if a setting can't be sent; no message shows its value.
        """
        import urllib3

        errors = []
        for url in tuple(self._urls):
            try:
                return self._asked(method, f"{url}/{path}", body, kind)
            except (urllib3.exceptions.HTTPError, OSError) as error:
                errors.append(f"{url}: {error}")
                # Others are asked first from now on, by every thread.
                self._urls.sort(key=url.__eq__)
            except ValueError:
                reason = "a value of [sinks.opensearch] can't be sent; `headrace check` names it"
                raise SinkError(NAME, reason) from None
        raise SinkUnavailableError(NAME, "; ".join(errors))

    def _asked(self, method: str, url: str, body: bytes, kind: str) -> ServerAnswer:
        headers = {"content-type": f"application/{kind}"} if body else {}
        if self._cluster.authorization is not None:
            headers["authorization"] = self._cluster.authorization.reveal()
        if self._cluster.signer is not None:
            at = datetime.now(UTC)
            headers = self._cluster.signer.headers(method, url, body, at, headers)
        response = self._pool.request(
            method, url, body=body or None, headers=headers, redirect=False
        )
        return ServerAnswer(response.status, response.data)

    def close(self) -> None:
        """Closes the connections."""
        self._pool.clear()


def _trust(ca_file: str | None) -> ssl.SSLContext:
    """Returns the trusted certificates.

    Raises:
        SinkError: if the file can't be read.
    """
    try:
        return _trust_of(ca_file, None if ca_file is None else Path(ca_file).stat().st_mtime_ns)
    except OSError as error:
        raise SinkError(NAME, f"ca_file {ca_file}: {error}") from error


@lru_cache(maxsize=8)
def _trust_of(ca_file: str | None, changed_ns: int | None) -> ssl.SSLContext:  # noqa: ARG001
    # Reading them takes 25 ms, and each task has its client.
    return ssl.create_default_context(cafile=ca_file)
