"""No test is left out in silence."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = [
    "@pytest.mark.skip\ndef test_it(): pass",
    "@pytest.mark.xfail\ndef test_it(): assert False",
    "@pytest.fixture\ndef server(): pytest.skip('no server')\ndef test_it(server): pass",
    "pytest.importorskip('no_such_module')\ndef test_it(): pass",
    "@pytest.mark.parametrize('case', [])\ndef test_it(case): pass",
]


def test_what_is_skipped_has_failed(tmp_path):
    for number, text in enumerate(LEFT_OUT):
        (tmp_path / f"test_{number}.py").write_text(f"import pytest\n{text}\n")
    plugins = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "tests.skips")
    options = ("--continue-on-collection-errors", *plugins)
    config = ("-c", ROOT / "pyproject.toml", f"--rootdir={tmp_path}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *config, tmp_path],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTEST_ADDOPTS": ""},
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "1 failed, 4 errors in" in done.stdout
