"""One encoder for all that commands return."""

from __future__ import annotations

import enum
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from pathlib import Path

import pytest

from headrace.cli.encoding import encoded


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    path: Path
    lag: timedelta


@dataclass(frozen=True)
class Outer:
    inner: Inner
    key: bytes
    value: bytes
    rate: Fraction
    colours: tuple[Colour, ...]


class Shown:
    def to_json(self):
        return {"seen": Colour.RED}


def test_a_value_becomes_an_object_of_its_fields():
    value = Outer(
        Inner(Path("/x"), timedelta(minutes=1)), b"k", b"\xff", Fraction(1, 2), (Colour.RED,)
    )
    assert encoded(value) == {
        "inner": {"path": "/x", "lag_seconds": 60.0},
        "key": "k",
        "value_base64": "/w==",
        "rate": 0.5,
        "colours": ["red"],
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Fraction(4, 2), 2),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "2026-01-01T00:00:00Z"),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
        ({1: None}, {"1": None}),
        ([Shown(), True], [{"seen": "red"}, True]),
        (timedelta(seconds=1.5), 1.5),
    ],
)
def test_other_values_have_a_form_in_json(value, expected):
    assert encoded(value) == expected


def test_what_has_no_form_in_json_is_an_error():
    with pytest.raises(TypeError, match="object has no form in JSON"):
        encoded(object())


def test_a_reader_that_has_gone_ends_the_process_without_a_complaint():
    reader, writer = os.pipe()
    os.close(reader)
    program = "import sys; from headrace.cli.encoding import print_json; print_json({}, sys.stdout)"
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
