"""Metrics over HTTP."""

import urllib.error
import urllib.request

import pytest

from headrace.runtime.prometheus import CONTENT_TYPE, MetricsServer


def test_metrics_are_served_over_http():
    server = MetricsServer("127.0.0.1", 0)
    try:
        server.publish("a_total 1\n")
        address = f"http://127.0.0.1:{server.port}"
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            assert answer.read().decode() == "a_total 1\n"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/else")
        refused.value.close()
        assert refused.value.code == 404
    finally:
        server.close()
