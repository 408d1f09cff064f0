"""The tests on the page about testing a worker pass, as a user would run them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_PAGE = "docs/testing.md"
_WORKER = re.compile(r'"""(\w+\.py): ')
_FILE = re.compile(r'"""(test_\w+\.py): ')


def test_the_tests_of_the_page_pass(blocks: Callable[[str], list], tmp_path: Path) -> None:
    workers = [block.text for block in blocks("python") if block.page == "docs/workers.md"]
    for text in workers:
        if named := _WORKER.match(text):
            (tmp_path / named[1]).write_text(text)
    shown = [block.text for block in blocks("python") if block.page == _PAGE]
    for text in shown:
        (tmp_path / _FILE.match(text)[1]).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=."]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    tests = sum(text.count("\ndef test_") for text in shown)
    assert f"{tests} passed" in ended.stdout
