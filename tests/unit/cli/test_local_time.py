"""The local time of commands, which the project's functions see."""

import os
import subprocess
import sys

import pytest

ZONES = ["America/New_York", "XYZ-5:30", ":Europe/Warsaw"]

COMMAND_AND_CHILD = """
import multiprocessing, sys, time
from headrace.cli import main

def zone():
    print(time.strftime("%Z %z", time.localtime(0)))

if __name__ == "__main__":
    zone()
    try:
        main(["version", "--json"])
    except SystemExit:
        pass
    zone()
    child = multiprocessing.get_context("spawn").Process(target=zone)
    child.start()
    child.join()
"""


@pytest.mark.parametrize("zone", ZONES)
def test_local_time_of_a_command_and_of_its_processes_is_utc(zone, tmp_path):
    script = tmp_path / "command.py"
    script.write_text(COMMAND_AND_CHILD)
    done = subprocess.run(
        [sys.executable, script],
        env=os.environ | {"TZ": zone},
        capture_output=True,
        check=True,
        text=True,
    )
    before, _version, *after = done.stdout.splitlines()
    assert before != "UTC +0000"
    assert after == ["UTC +0000"] * 2
