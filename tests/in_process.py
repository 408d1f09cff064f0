"""The ``headrace`` command in the process of a test, where the process is not the point."""

import json
import sys
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli import main


def invoke(*words: object, code: int = 0) -> Result:
    """Runs a command; returns click's result, with what it prints on both streams."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        done = CliRunner().invoke(main, [*map(str, words)])
    assert done.exit_code == code, done.output
    return done


def output(*words: object, code: int = 0) -> str:
    """What a command prints on standard output."""
    return invoke(*words, code=code).stdout


def answer(*words: object, code: int = 0) -> Any:
    """What a command answers in JSON: its last line."""
    return json.loads(output(*words, "--json", code=code).splitlines()[-1])
