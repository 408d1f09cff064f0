"""The local time of commands, which the project's functions see."""

import os
import subprocess
import sys

import pytest
from tests.unit.queries.registry.flow import write_project

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


PROGRAM = """
import time
from headrace import Project

print(time.tzname[0])
project = Project.open()
print(project.topics["clicks"].event.zone, time.tzname[0])
"""
MODULE = """
import time
from headrace import Topic

class Click:
    user: str

Click.zone = time.tzname[0]
clicks = Topic("clicks", event=Click)
"""


def test_a_program_keeps_its_local_time_while_it_opens_a_project(tmp_path):
    write_project(tmp_path, MODULE)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | {"TZ": "XYZ-5:30"},
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.split() == ["XYZ"] * 3
