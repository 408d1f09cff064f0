"""The ``headrace`` command in the process of a test, where the process is not the point."""

import json
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.runtime.logs import log_to


def output(*words: object, code: int = 0) -> str:
    """What a command prints; its log is no longer written afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        done = CliRunner().invoke(main, [*map(str, words)])
        log_to(None, stderr=False)
    assert done.exit_code == code, done.output
    return done.stdout


def answer(*words: object, code: int = 0) -> Any:
    """What a command answers in JSON: its last line."""
    return json.loads(output(*words, "--json", code=code).splitlines()[-1])
