"""What the documentation shows of tasks can be written under ``mypy --strict``."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FORMS = Path(__file__).with_name("typed_tasks.py")
WRONG = """
from headrace import Topic, WorkerRecord, worker

@worker(topic=Topic("t"), subpartition=64)
async def typo(record: WorkerRecord) -> None: ...

@worker(topic=Topic("t"), commit_every=5)
async def wrong(record: WorkerRecord) -> None: ...

@worker(topic=Topic("t"))
async def takes_bytes(value: bytes) -> None: ...

takes_bytes("text")
"""


def mypy(file):
    """Checks a file as ``make lint``, whose cache it uses, checks headrace: strictly."""
    command = [sys.executable, "-m", "mypy", "--strict", str(file)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_documented_form_of_a_task_is_well_typed():
    found = mypy(FORMS)
    assert found.returncode == 0, found.stdout


def test_options_of_a_worker_that_are_wrong_are_seen(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    found = mypy(file)
    assert 'Unexpected keyword argument "subpartition"' in found.stdout
    assert "commit_every" in found.stdout
    assert 'incompatible type "str"; expected "bytes"' in found.stdout
