"""msgspec crashes where several threads are the first to decode a class: decoders come before."""

import re
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "src"
RACE = """
import sys, threading
sys.setswitchinterval(1e-6)
import msgspec
from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.batch.manifest import COLUMNS, REPORT, Manifest
from headrace.pipelines.source.report import RangeReport

report = RangeReport(OffsetRange(TopicPartition("t", 0), 0, 1), 1, 1, 1, 1, ())
row = dict.fromkeys(COLUMNS) | {REPORT: msgspec.json.encode(report).decode()}
start = threading.Barrier(8)

def read():
    start.wait()
    assert Manifest.of([row]).reports == (report,)

threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_pipelines_that_begin_together_can_read_their_first_manifests_together():
    codes = [subprocess.run([sys.executable, "-c", RACE], check=False).returncode for _ in range(8)]
    assert codes == [0] * 8


def test_no_class_is_decoded_without_a_decoder():
    """Each is the first one in some process."""
    decoding = re.compile(r"(json|msgpack)\.decode\([^()]*type=(?!(msgspec\.)?Raw\b)")
    found = [str(file) for file in SOURCES.rglob("*.py") if decoding.search(file.read_text())]
    assert not found
