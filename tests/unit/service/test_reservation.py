"""What a service needs for itself on its host."""

import os
import resource
import subprocess
import sys

import pytest

from headrace.errors import ServerStartError, ServiceRunningError
from headrace.service.reservation import allow_connections, only_service, running_service
from headrace.settings import IngestSettings

HOLDER = """
import sys
from pathlib import Path
from headrace.service.reservation import only_service

with only_service(Path(sys.argv[1]), "http://host:1"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_service_is_refused_by_the_process_id_of_the_first(tmp_path):
    command = [sys.executable, "-c", HOLDER, tmp_path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(ServiceRunningError) as caught, only_service(tmp_path, "http://host:2"):
            pass
        assert caught.value.pid == str(first.pid)
        assert running_service(tmp_path) == (first.pid, "http://host:1")
        first.kill()
        first.wait()
        with only_service(tmp_path, "http://host:2"):
            assert running_service(tmp_path) == (os.getpid(), "http://host:2")


def test_a_folder_is_free_again_once_its_service_has_ended(tmp_path):
    for _ in "ab":
        with only_service(tmp_path / "state", "http://host:2"):
            pass


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((1024, 1_000_000), (4352, 1_000_000)),
        ((1024, resource.RLIM_INFINITY), (4352, resource.RLIM_INFINITY)),
        ((5000, 5000), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_as_many_files_are_allowed_as_connections_need(monkeypatch, limits, expected):
    changed = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, to: changed.append(to))
    allow_connections(IngestSettings())
    assert changed == ([expected] if expected else [])


def test_a_start_with_too_few_files_is_refused(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    with pytest.raises(ServerStartError, match=r"4096 files.*ingest.max_connections = 4096"):
        allow_connections(IngestSettings())
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    allow_connections(IngestSettings(workers=2))
