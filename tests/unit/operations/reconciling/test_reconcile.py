"""`reconcile` where the project's own brokers do not respond."""

import pytest
from tests.in_process import invoke

from headrace.kafka.client import admin_requests

PROJECT = """
[project]
name = "shop"
modules = ["flow"]

[kafka]
bootstrap_servers = "127.0.0.1:1"
"""
FLOW = """
from headrace import Lake, Pipeline, Topic

class Order:
    id: str

orders = Topic("orders", event=Order)
to_lake = Pipeline("orders-to-lake", orders, Lake("orders"))
also = Pipeline("orders-again", orders, Lake("again"))
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setattr(admin_requests, "REQUEST_TIMEOUT_SECONDS", 0.1)
    (tmp_path / "headrace.toml").write_text(PROJECT)
    (tmp_path / "flow.py").write_text(FLOW)
    return tmp_path


@pytest.mark.parametrize("options", [[], ["orders-again"], ["--json"]])
def test_a_recount_without_brokers_fails_and_names_them(project, options):
    shown = invoke("reconcile", *options, "--recount", "--project", project, code=1).output
    assert "127.0.0.1:1" in shown
    assert "no entries" not in shown


def test_a_plan_without_brokers_says_that_nothing_was_compared(project):
    shown = invoke("plan", "--project", project).output
    assert "127.0.0.1:1" in shown
    assert "Nothing was compared with the brokers" in shown
    assert "create orders" in shown
