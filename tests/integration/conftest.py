"""Fixtures that several modules of integration tests share."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import pytest

OPENERS = ("links.dispatcher.standing", "links.ledger.balances", "queries.emit.run")


@pytest.fixture(params=["true", "false"])
def ansi(spark, request):
    """Spark's functions raise errors, or return null."""
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.unset("spark.sql.ansi.enabled")


@pytest.fixture
def without_call_sites(monkeypatch):
    """Functions of columns do not report their callers to Spark, as in a ``kafka_session``.

    That session sets it with ``dataFrameDebugging``, which Spark reads once in a process.
    """
    monkeypatch.setattr("pyspark.errors.utils.is_debugging_enabled", lambda: False)


@pytest.fixture
def session(spark, without_call_sites, monkeypatch):
    """What runs in this process takes a session of the Spark of the tests, not a Spark of its own.

    Queries of one session have different names; instances that run side by side have the same.
    """
    for module in OPENERS:
        name = f"headrace.{module}.kafka_session"
        monkeypatch.setattr(name, lambda *_: nullcontext(spark.newSession()))
    monkeypatch.setattr(sys, "path", list(sys.path))  # projects put their folders there
