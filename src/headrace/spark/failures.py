"""What a failure means: its reason in one sentence, and whether another start may help."""

from __future__ import annotations

import re

from headrace.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerUnreachableError,
    DeadLetterLimitError,
    HeadraceError,
    ProfileStoreError,
    RecordRejectedError,
    ReferenceTooLargeError,
    RefusedError,
    RegistryUnreachableError,
    SchemaMismatchError,
    SchemaRejectedError,
    SinkUnavailableError,
    SpreadsUnknownError,
    StepError,
    StorageError,
)
from headrace.service.restart import FailureKind
from headrace.spark.remote_errors import original_error
from headrace.spark.tracebacks import raised_in_step, raised_type

_UNAVAILABLE = (
    BrokerUnreachableError,
    RegistryUnreachableError,
    SinkUnavailableError,
    SpreadsUnknownError,
)
_PERMANENT_ERRORS = (
    RefusedError,
    DeadLetterLimitError,
    AuthenticationError,
    AuthorizationError,
    ReferenceTooLargeError,
    StepError,
    StorageError,
    ProfileStoreError,
    RecordRejectedError,
    SchemaMismatchError,
    SchemaRejectedError,
)
# Spark waits 10 to 15 seconds for a process that it has started, and for a connection of one.
_BUSY = re.compile(
    r"\[CANNOT_OPEN_SOCKET\]"
    r"|\[STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT_FAILURE\]"
    r"|Python worker failed to connect back"
    r"|Timed out while waiting for the Python worker to connect back"
    r"|java\.net\.SocketTimeoutException: Accept timed out"
    r"|Executor heartbeat timed out after"
    r"|org\.apache\.spark\.rpc\.RpcTimeoutException: "
)
# Of what is permanent below, these may pass: the query that runs under the name ends, a start finds
# where partitions continue whose records Kafka has deleted, and a host gets an address again, of
# which Hadoop makes an IllegalArgumentException.
_TRANSIENT = re.compile(
    r"\[(?:CONCURRENT_QUERY|KAFKA_DATA_LOSS)\b|\bjava\.net\.UnknownHostException\b"
)
# By their names, as Spark passes on the text of an error alone, and exactly these: what a library
# makes of one, such as an error of its connection, may pass. So may what it can't decode: a server
# may have answered with a page of an error.
_PERMANENT_TYPES = frozenset(
    {
        *("AttributeError", "ImportError", "IndexError", "KeyError", "ModuleNotFoundError"),
        *("NameError", "NotImplementedError", "OverflowError", "RecursionError", "SyntaxError"),
        *("TypeError", "UnboundLocalError", "UnicodeEncodeError"),
        *("ValueError", "ZeroDivisionError"),
        *("InvalidOperation", "PicklingError"),
        *("ArrowInvalid", "ArrowKeyError", "ArrowNotImplementedError", "ArrowTypeError"),
        *("AnalysisException", "ParseException", "IllegalArgumentException"),
        *("PySparkAttributeError", "PySparkImportError", "PySparkNotImplementedError"),
        *("PySparkPicklingError", "PySparkTypeError", "PySparkValueError"),
        "Py4JNetworkError",  # the JVM of the session has ended
    }
)
_PERMANENT = re.compile(
    r"\bSchema error: "  # of delta-rs
    r"|Cannot call methods on a stopped SparkContext"
    r"|\bjava\.(?:lang\.(?:ArithmeticException|ClassCastException|ClassNotFoundException"
    r"|NoClassDefFoundError|NoSuchMethodError|NumberFormatException|UnsupportedOperationException)"
    r"|io\.NotSerializableException|time\.DateTimeException)\b"
    # Classes of SQLSTATEs, which Spark's errors name: what Spark can't do, wrong values, violated
    # constraints, what is not valid by itself, and what the user's own `raise_error` raised.
    r"|\bSQLSTATE: (?:0A|2[123]|42|P0)\w{3}\b"
)


def kind_of(error: BaseException) -> FailureKind:
    """Returns what another start would meet after ``error``.

    Args:
        error: as :func:`cause` returns it. Of an error that came through Spark only the text is
            left, and that says it.
    """
    text = str(error)
    if _BUSY.search(text):
        return FailureKind.BUSY
    if isinstance(error, _UNAVAILABLE):
        return FailureKind.UNAVAILABLE
    if isinstance(error, _PERMANENT_ERRORS):
        return FailureKind.PERMANENT
    if _TRANSIENT.search(text):
        return FailureKind.TRANSIENT
    is_permanent = _PERMANENT.search(text) or (
        not isinstance(error, HeadraceError)
        and not _PERMANENT_TYPES.isdisjoint((type(error).__name__, raised_type(text)))
    )
    return FailureKind.PERMANENT if is_permanent else FailureKind.TRANSIENT


def cause(*errors: Exception | None) -> Exception | None:
    """What is behind errors that came through Spark: an error of ours, or of a step, or the first.

    Args:
        errors: of one failure, those that know more first.
    """
    raised = [error for error in errors if error is not None]
    # An error that did not cross Spark has its facts; of others only the text is left.
    for error in raised:
        if isinstance(error, HeadraceError):
            return error
    for text in map(str, raised):
        for original in (original_error(text), raised_in_step(text)):
            if original is not None:
                return original
    return next(iter(raised), None)


def used_twice(text: str) -> bool:
    """Whether Spark's offset log says that another driver plans batches of this checkpoint."""
    return "CONCURRENT_STREAM_LOG_UPDATE" in text


def headline(error: BaseException) -> str:
    """The sentence that says what went wrong; Spark's errors continue with plans and traces."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    headline = lines[0] if lines else type(error).__name__
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return f"{headline} ({raised[-1]})" if raised and raised[-1] not in headline else headline
