"""What Spark passes on of a Python function that failed in a task."""

from __future__ import annotations

import pytest
from tests.contracts.names import FOLDERS

from headrace.errors import StepError
from headrace.spark.failures import cause
from headrace.spark.tracebacks import raised_in_step

WORKER = '  File "/opt/venv/lib/python3.11/site-packages/pyspark/worker.py", line 9, in main\n'
USERS = '  File "/work/flow.py", line 12, in rate\n    return a // b\n           ~~^^~~\n'
LIBRARY = '  File "/opt/venv/lib/python3.11/site-packages/requests/api.py", line 3, in get\n'
JSON = '  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode\n'
BEGIN = "[PYTHON_EXCEPTION] thrown in a worker\nTraceback (most recent call last):\n"


def test_an_error_in_the_projects_code_is_named_with_function_type_and_line():
    text = f"{BEGIN}{WORKER}{USERS}ZeroDivisionError: division by zero\n\n\tat org.apache.Spark"
    error = raised_in_step(text)
    assert error is not None
    assert (error.step, error.problem, error.at) == (
        "rate",
        "ZeroDivisionError: division by zero",
        "/work/flow.py:12",
    )


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_line_of_an_error_is_in_a_folder_of_any_name(folder):
    users = USERS.replace("/work/", f"/{folder}/")
    error = raised_in_step(f"{BEGIN}{WORKER}{users}ZeroDivisionError: division by zero\n")
    assert error is not None
    assert error.at == f"/{folder}/flow.py:12"


def test_an_error_without_a_message_is_its_type():
    error = raised_in_step(f"{BEGIN}{USERS}flow.NoRateError\n")
    assert error is not None
    assert error.problem == "flow.NoRateError"


@pytest.mark.parametrize("deepest", [LIBRARY, JSON, WORKER])
def test_what_a_library_raised_may_pass(deepest):
    assert raised_in_step(f"{BEGIN}{USERS}{deepest}ConnectionError: away\n") is None


@pytest.mark.parametrize("text", ["java.lang.OutOfMemoryError: heap", BEGIN, ""])
def test_text_without_a_line_of_the_project_is_no_step(text):
    assert raised_in_step(text) is None


def test_the_cause_is_found_in_whichever_error_tells_it():
    told = RuntimeError(f"{BEGIN}{USERS}ZeroDivisionError: division by zero\n")
    untold = RuntimeError("job aborted")
    assert isinstance(cause(untold, told), StepError)
    assert cause(untold, RuntimeError("too")) is untold
    assert cause(None, None) is None
