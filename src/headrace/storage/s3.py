"""Objects in buckets of S3, or of any server with its API, by URI: ``s3://bucket/key``.

The client is obstore, which is the ``object_store`` of Rust that delta-rs has too: both take the
same options and find the same credentials, in AWS's environment variables, a web identity, or the
metadata of the machine or container. Objects are read and written whole, so none is ever seen in
part. Requests are repeated for half a minute while the server does not answer.

Every function may raise, besides what it says:

BucketMissingError
    if there is no such bucket.
StorageRegionError
    if the server says that the bucket is in another region.
StorageClockError
    if the server rejects the requests of this machine as too old.
StorageAccessError
    if the server refuses the credentials, or they do not allow the request.
StorageUnavailableError
    if the server does not answer, or answers with an error of its own.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from headrace.errors import (
    BucketMissingError,
    ConditionalWritesError,
    SinkError,
    StorageAccessError,
    StorageClockError,
    StorageRegionError,
    StorageUnavailableError,
)

Options = Mapping[str, str]
ALLOW_HTTP = "allow_http"
RETRIES: dict[str, Any] = {"max_retries": 10}
# Each has taken half a minute of requests: after five, the server does not serve this client.
_MAX_LOST_ANSWERS = 5
_PROBE = "_headrace/probe"
_CODE = re.compile(r"<Code>(\w+)</Code>")
# S3 answers temporary credentials that have expired with 400, so the code says more.
_REFUSALS = frozenset(
    {
        "AccessDenied",
        "AllAccessDisabled",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
_OTHER_REGION = frozenset(
    {
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "PermanentRedirect",
        "TemporaryRedirect",
    }
)
_NO_TARGET = "redirect without LOCATION"  # the client's text; S3 names no address to go to
# Another write of the object is under way, says the server: nothing is written, nor need anything
# be there. The client takes it for an object that is there.
_IN_CONFLICT = "<Code>ConditionalRequestConflict</Code>"
# Without an answer of the server: no credentials, or a machine's service of them is unreachable.
_REFUSED = re.compile(r"40[13] (Forbidden|Unauthorized)|credential|metadata")
_ADDRESS = re.compile(r"\b(https?|s3)://\S+")


def is_s3(uri: str) -> bool:
    """Whether ``uri`` names an object or a prefix in a bucket."""
    return uri.startswith("s3://")


def read(uri: str, options: Options) -> bytes:
    """Returns the content of an object.

    Raises:
        FileNotFoundError: if there is none.
    """
    import obstore

    with _errors_named(uri):
        return bytes(obstore.get(_bucket(uri, options), _key(uri)).bytes())


def write(uri: str, content: bytes | memoryview, options: Options) -> None:
    """Writes or replaces an object; a large one in several requests."""
    import obstore

    with _errors_named(uri):
        obstore.put(_bucket(uri, options), _key(uri), content)


def write_new(uri: str, content: bytes, options: Options) -> None:
    """Writes an object that is not there yet; of several writers one succeeds.

    A request whose answer is lost may have been carried out, and one that met another write may
    be sent again: the object is read then, and written again only where there is none.

    Raises:
        FileExistsError: if there is an object, of this call too when the server repeated it.
    """
    for _ in range(_MAX_LOST_ANSWERS):
        try:
            _create(uri, content, options)
        except StorageUnavailableError as error:
            lost = error
        else:
            return
        try:
            present = read(uri, options)
        except FileNotFoundError:
            continue
        if present != content:
            raise FileExistsError(uri)
        return
    raise lost


def _create(uri: str, content: bytes, options: Options) -> None:
    import obstore

    with _errors_named(uri):
        # In one request: an upload in parts has no such condition at every server.
        obstore.put(_bucket(uri, options), _key(uri), content, mode="create", use_multipart=False)


def names(uri: str, options: Options, *, before: datetime | None = None) -> list[str]:
    """Returns the keys below ``uri``, relative to it and sorted.

    Args:
        uri: a bucket or a prefix in one.
        options: of the storage.
        before: of objects that were last written before it; None: of all.
    """
    import obstore

    prefix = _key(uri)
    with _errors_named(uri):
        pages = obstore.list(_bucket(uri, options), prefix or None)
        return sorted(
            entry["path"][len(prefix) :].lstrip("/")
            for page in pages
            for entry in page
            if before is None or entry["last_modified"] < before
        )


def exists(uri: str, options: Options) -> bool:
    """Whether there is an object at ``uri``, or one below it."""
    import obstore
    from obstore.exceptions import BaseError

    with _errors_named(uri):
        try:
            obstore.head(_bucket(uri, options), _key(uri))
        except FileNotFoundError:
            return bool(names(uri, options))
        except BaseError:
            # An answer to HEAD has no body, which would name the error: that to a list has one.
            names(uri, options)
            raise
        return True


def delete(uri: str, below: Iterable[str], options: Options) -> None:
    """Deletes the objects ``below``, keys relative to ``uri``; missing ones are no error."""
    import obstore

    prefix = _key(uri)
    keys = [f"{prefix}/{name}" if prefix else name for name in below]
    with _errors_named(uri):
        if keys:
            obstore.delete(_bucket(uri, options), keys)


def delete_below(uri: str, options: Options) -> None:
    """Deletes the object at ``uri`` and everything below it."""
    parent, _, name = uri.rstrip("/").rpartition("/")
    delete(parent, [name], options)
    delete(uri, names(uri, options), options)


def require_conditional_writes(uri: str, options: Options) -> None:
    """Checks that the server refuses to create an object below ``uri`` that is there already.

    Delta commits rest on it: without it two writers both succeed, and one's rows are lost.

    Raises:
        ConditionalWritesError: if the server overwrites it, or does not know the condition.
    """
    name = f"{_PROBE}-{uuid4().hex}"
    probe = f"{uri}/{name}"
    try:
        _create(probe, b"first", options)
        _create(probe, b"second", options)
    except FileExistsError:
        return
    finally:
        delete(uri, [name], options)
    raise ConditionalWritesError(uri, "it overwrites an object in spite of `If-None-Match: *`")


def _bucket(uri: str, options: Options) -> Any:
    return _client(os.getpid(), urlsplit(uri).netloc, tuple(sorted(options.items())))


@functools.cache
def _client(
    pid: int,  # noqa: ARG001  its threads are in the process that made it, not in forked children
    bucket: str,
    options: tuple[tuple[str, str], ...],
) -> Any:
    from obstore.store import S3Store

    config = dict(options)
    client = {ALLOW_HTTP: True} if config.pop(ALLOW_HTTP, "") == "true" else None
    return S3Store(bucket, config=config, client_options=client, retry_config=RETRIES)


def _key(uri: str) -> str:
    # Not urlsplit's path: a key may hold `?` and `#`.
    return uri.removeprefix("s3://").partition("/")[2].rstrip("/")


@contextmanager
def _errors_named(uri: str) -> Iterator[None]:
    """Raises errors of the client by our names, or as FileNotFoundError and FileExistsError."""
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        yield
    except FileNotFoundError as error:
        _raise_if_bucket_missing(uri, error)
        raise FileNotFoundError(uri) from None
    except AlreadyExistsError as error:
        if _IN_CONFLICT in str(error):
            raise StorageUnavailableError(uri, "another write of it is under way") from None
        raise FileExistsError(uri) from None
    except BaseError as error:
        _raise_if_bucket_missing(uri, error)
        raise _named(uri, error) from None


def _raise_if_bucket_missing(uri: str, error: Exception) -> None:
    if "<Code>NoSuchBucket</Code>" in str(error):
        raise BucketMissingError(uri, f"there is no bucket {urlsplit(uri).netloc}") from None


def _named(uri: str, error: Exception) -> SinkError:
    # The client's text repeats the request as it was signed, with the id of the access key.
    text = str(error).partition("Debug source")[0]
    code = _CODE.search(text)
    reason = code[1] if code else text.strip().splitlines()[0]
    if reason == "NotImplemented" or "501 Not Implemented" in text:
        return ConditionalWritesError(uri, "it answers NotImplemented")
    if reason in _OTHER_REGION or _NO_TARGET in text:
        return StorageRegionError(uri, reason)
    if reason == "RequestTimeTooSkewed":
        return StorageClockError(uri, reason)
    # An address holds names of the user, which may be these words.
    if reason in _REFUSALS or (code is None and _REFUSED.search(_ADDRESS.sub("", text))):
        return StorageAccessError(uri, reason)
    return StorageUnavailableError(uri, reason)
