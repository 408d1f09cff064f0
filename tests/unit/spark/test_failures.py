import json
import traceback
import zipfile
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    PySparkRuntimeError,
    PySparkTypeError,
)

from headrace.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    CheckpointLostError,
    DeadLetterLimitError,
    HeadraceError,
    RecordRejectedError,
    RegistryUnreachableError,
    SchemaRejectedError,
    SinkError,
    SinkUnavailableError,
    StepError,
    TopicMissingError,
)
from headrace.service.restart import FailureKind
from headrace.spark.failures import (
    cause,
    headline,
    kind_of,
    used_twice,
)
from headrace.spark.remote_errors import RemoteError, original_error, raising_remote_errors


@pytest.mark.parametrize(
    "error",
    [
        TopicMissingError("clicks"),
        AuthorizationError("READ", "topic clicks", "User:ads"),
        BrokerUnreachableError("b:9092", 'it said "no"\nand left'),
        RegistryUnreachableError("http://registry", "timed out"),
        CheckpointLostError("p", "/lake", "évidence", in_table=False),
        DeadLetterLimitError("p", "11 of 20 bad"),
    ],
)
def test_an_error_of_another_process_keeps_its_class_and_its_facts(error):
    with pytest.raises(RemoteError) as raised, raising_remote_errors():
        raise error
    printed = "".join(traceback.format_exception(raised.value))
    crossed = cause(None, RuntimeError(f"job aborted\n{printed}\tat org.apache.spark.Task"))
    assert type(crossed) is type(error)
    assert vars(crossed) == vars(error)
    assert str(crossed) == str(error)


def test_an_error_that_is_no_value_keeps_its_message():
    with pytest.raises(RemoteError) as raised, raising_remote_errors():
        raise HeadraceError("as it says")
    crossed = original_error(str(raised.value))
    assert (type(crossed), str(crossed)) == (HeadraceError, "as it says")


def test_a_foreign_error_passes_as_it_is():
    with pytest.raises(ValueError, match="boom"), raising_remote_errors():
        raise ValueError("boom")
    assert original_error("java.lang.OutOfMemoryError: heap") is None


def test_the_reason_of_a_failure_is_one_sentence_and_the_error_behind_it():
    text = "Query terminated with exception: job aborted\n=== Streaming Query ===\nValueError: boom"
    found = headline(RuntimeError(text))
    assert found == "Query terminated with exception: job aborted (ValueError: boom)"


def test_a_silent_error_is_named_by_its_type():
    assert headline(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_sparks_refusal_of_a_second_driver_is_recognised():
    text = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs"
    assert used_twice(text)
    assert not used_twice("[UNSUPPORTED] something else")


def streaming(message):
    """What the driver gets of a query that ended with ``message``."""
    return RuntimeError(
        "[STREAM_FAILED] Query [id = 37f5a4b6, runId = 8a1d] terminated with exception: "
        f"{message} SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: p [id = 37f5a4b6]"
    )


def aborted(message):
    """What the driver gets of a task that failed with ``message``."""
    return streaming(
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent "
        f"failure: Lost task 0.0 in stage 3.0 (TID 6) (127.0.0.1 executor driver): {message}\n"
        "\tat org.apache.spark.scheduler.Task.run(Task.scala:147)\n\nDriver stacktrace:"
    )


def in_python(raised, file="/usr/lib/python3.11/site-packages/geo/client.py"):
    """What a task gets of a function that raised ``raised`` in a library."""
    return (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "/work/flow.py", line 12, in country\n    return geo.country(ip)\n'
        f'  File "{file}", line 7, in country\n    return answer["x"]\n'
        f"           ~~~~~~^^^^^\n{raised}\n\n"
        "\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException"
    )


def socket_not_opened(why):
    errors = f"[\"tried to connect to ('127.0.0.1', 33749), but an error occurred: {why}\"]"
    return PySparkRuntimeError(
        errorClass="CANNOT_OPEN_SOCKET", messageParameters={"errors": errors}
    )


@pytest.mark.parametrize(
    "error",
    [
        socket_not_opened("timed out"),
        socket_not_opened("[Errno 111] Connection refused"),  # Spark has waited for long enough
        StepError("totals", f"PySparkRuntimeError: {socket_not_opened('timed out')}", "flow.py:3"),
        streaming(str(socket_not_opened("timed out"))),
        streaming("Python worker failed to connect back."),
        aborted(
            "org.apache.spark.SparkException: Python worker failed to connect back.\n"
            "\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker\n"
            "Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python "
            "worker to connect back after 10000 ms"
        ),
        aborted("java.net.SocketTimeoutException: Accept timed out"),
        aborted(
            "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: "
            "Executor heartbeat timed out after 128032 ms"
        ),
        streaming(
            "[STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT_FAILURE] Streaming Runner "
            "initialization failed. Socket connection timeout. Cause: Accept timed out"
        ),
    ],
)
def test_a_machine_without_time_for_a_process_of_spark_is_busy(error):
    assert kind_of(error) is FailureKind.BUSY


@pytest.mark.parametrize(
    "error",
    [
        TopicMissingError("clicks"),
        AuthorizationError("READ", "topic clicks", "User:ads"),
        DeadLetterLimitError("p", "11 of 20 bad"),
        StepError("country", "KeyError: 'ip'", "flow.py:12"),
        RecordRejectedError("topic p.dead", "it is too large"),
        SchemaRejectedError("http://registry", "clicks-value", "a field has no default"),
        SinkError(
            "lake", "the commit failed: Schema error: Invalid data type for Delta Lake: Null"
        ),
        AnalysisException("[UNRESOLVED_COLUMN.WITH_SUGGESTION] no column `x`. SQLSTATE: 42703"),
        PySparkTypeError("[NOT_COLUMN] Argument `col` should be a Column, got int."),
        TypeError("unsupported operand type(s) for +: 'int' and 'str'"),
        aborted(
            "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. "
            "Use `try_divide` to tolerate divisor being 0. SQLSTATE: 22012"
        ),
        aborted("org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] SQLSTATE: P0001"),
        aborted("java.lang.ClassCastException: class java.lang.Long cannot be cast to class"),
        aborted(in_python("TypeError: 'NoneType' object is not subscriptable")),
        aborted(in_python("ValueError: time data '1' does not match", "/usr/lib/python3.11/a.py")),
        aborted(in_python("pyarrow.lib.ArrowTypeError: Expected bytes, got a 'int' object")),
        aborted(in_python("pyspark.errors.base.PySparkTypeError: [ARROW_TYPE_MISMATCH]")),
        streaming("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext"),
    ],
)
def test_what_the_next_start_would_meet_again_is_permanent(error):
    assert kind_of(error) is FailureKind.PERMANENT


@pytest.mark.parametrize(
    "error",
    [
        BrokerUnreachableError("b:9092", "timed out"),
        RegistryUnreachableError("http://registry", "timed out"),
        SinkUnavailableError("PostgreSQL", "refused"),
    ],
)
def test_a_server_that_does_not_answer_is_unavailable(error):
    assert kind_of(error) is FailureKind.UNAVAILABLE


@pytest.mark.parametrize(
    "error",
    [
        OSError("disk full"),
        SinkError("lake", "another driver has recorded other positions of its pipeline meanwhile"),
        streaming("[CONCURRENT_QUERY] Another instance of this query SQLSTATE: 0A000"),
        aborted(
            "java.lang.IllegalStateException: [KAFKA_DATA_LOSS.START_OFFSET_RESET] Some data may "
            "have been lost because they are not available in Kafka any more. SQLSTATE: 22000"
        ),
        aborted("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"),
        aborted("java.lang.OutOfMemoryError: Java heap space"),
        aborted(in_python("httpx.ConnectTimeout: timed out")),
        aborted(in_python("ConnectionResetError: [Errno 104] Connection reset by peer")),
        # What was raised last counts, not what it was raised for.
        aborted(
            in_python("KeyError: 'x'")
            + "\nDuring handling of the above exception, another exception occurred:\n\n"
            + in_python("redis.exceptions.ConnectionError: Connection refused")
        ),
        # What a server answered with, while it could not answer.
        json.JSONDecodeError("Expecting value", "<html>", 0),
        aborted(in_python("json.decoder.JSONDecodeError: Expecting value: line 1 column 1")),
        aborted(in_python("requests.exceptions.JSONDecodeError: Expecting value: line 1 column 1")),
        aborted(in_python("UnicodeDecodeError: 'utf-8' codec can't decode byte 0x8b")),
        streaming("java.lang.IllegalArgumentException: java.net.UnknownHostException: namenode"),
        IllegalArgumentException("java.net.UnknownHostException: namenode"),
        aborted("org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE] x SQLSTATE: 58030"),
    ],
)
def test_anything_else_may_pass(error):
    assert kind_of(error) is FailureKind.TRANSIENT


def spark_conditions():
    """The errors that this version of Spark knows: name, SQLSTATE."""
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("spark-common-utils_*.jar")
    with zipfile.ZipFile(jar) as files:
        conditions = json.loads(files.read("error/error-conditions.json"))
    return {name: each["sqlState"] for name, each in conditions.items() if "sqlState" in each}


def test_each_error_of_spark_is_judged_by_its_sqlstate():
    conditions = spark_conditions()
    permanent = {
        name
        for name, state in conditions.items()
        if kind_of(streaming(f"[{name}] text. SQLSTATE: {state}")) is FailureKind.PERMANENT
    }
    assert {name[:2] for name in map(conditions.get, permanent)} == {
        *("0A", "21", "22", "23", "42", "P0")
    }
    assert {"DATATYPE_MISMATCH", "CAST_INVALID_INPUT", "UNRESOLVED_COLUMN"} <= permanent
    assert permanent.isdisjoint({"CONCURRENT_QUERY", "CANNOT_LOAD_STATE_STORE", "FAILED_READ_FILE"})
