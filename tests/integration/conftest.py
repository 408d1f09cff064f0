"""Fixtures that several modules of integration tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["true", "false"])
def ansi(spark, request):
    """Spark's functions raise errors, or return null."""
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.unset("spark.sql.ansi.enabled")
