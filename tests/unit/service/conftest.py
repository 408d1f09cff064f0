"""Statuses are written and read in the moment of the samples, however slow the host is."""

from __future__ import annotations

import time

import pytest
from tests.unit.service.samples import NOW_MS


@pytest.fixture(autouse=True)
def moment(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: NOW_MS / 1000)
    monkeypatch.setattr(time, "time_ns", lambda: NOW_MS * 1_000_000)
