"""What is put before the first row, where the cluster does not say what it has."""

import json
import re
from contextlib import closing

import pytest
from tests.unit.sinks.opensearch.stand_in import FOREIGN, cluster

from headrace.errors import SinkUnavailableError, TableMismatchError
from headrace.sinks.opensearch.client import Client
from headrace.sinks.opensearch.index_name import IndexBy
from headrace.sinks.opensearch.provisioning import Target

ABSENT = (404, {"error": {"type": "resource_not_found_exception", "reason": "none"}})
NO_TEMPLATES = (200, {"index_templates": []})
ACKNOWLEDGED = (200, {"acknowledged": True})
FIELDS = {"id": {"type": "long"}}


def absent(path):
    return NO_TEMPLATES if path == "/_index_template" else ABSENT


@pytest.mark.parametrize("answer", [(401, b""), (429, b""), (503, b""), *FOREIGN])
@pytest.mark.parametrize(
    ("target", "asked"),
    [
        (Target("clicks", None, FIELDS), "/clicks/_mapping"),
        (Target("clicks", None, FIELDS), "/_index_template"),
        (Target("clicks", IndexBy.DAY, FIELDS), "/clicks-*/_mapping"),
        (Target("clicks", None, FIELDS, is_data_stream=True), "/_data_stream/clicks"),
        (Target("clicks", None, FIELDS, is_data_stream=True), "/clicks/_settings/index.uuid"),
    ],
)
def test_nothing_is_put_where_it_is_not_known_what_exists(target, asked, answer):
    def answers(_, path, __):
        return answer if path == asked else absent(path)

    with cluster(answers) as (nodes, requests), closing(Client(nodes)) as client:
        with pytest.raises(SinkUnavailableError, match=f"OpenSearch'.: {answer[0]}"):
            target.apply(client)
        assert asked in [path for _, path, _ in requests]
        assert {method for method, *_ in requests} == {"GET"}


@pytest.mark.parametrize("answer", FOREIGN)
def test_what_a_proxy_answers_puts_nothing(answer):
    def answers(method, path, _):
        return answer if method == "PUT" else absent(path)

    refused = pytest.raises(SinkUnavailableError, match="this is no answer of a cluster")
    with cluster(answers) as (nodes, _), closing(Client(nodes)) as client, refused:
        Target("clicks", None, FIELDS).apply(client)


def test_an_index_that_keeps_a_data_stream_from_its_name_is_named():
    reason = "index [.ds-clicks-000001/a] already exists"
    exists = {"error": {"type": "resource_already_exists_exception", "reason": reason}}

    def answers(method, path, _):
        if method == "PUT":
            return (400, exists) if path == "/_data_stream/clicks" else ACKNOWLEDGED
        return absent(path)

    refused = pytest.raises(TableMismatchError, match=re.escape(f"{reason}: delete that index"))
    with cluster(answers) as (nodes, _), closing(Client(nodes)) as client, refused:
        Target("clicks", None, FIELDS, is_data_stream=True).apply(client)


@pytest.mark.parametrize(
    ("priority", "expected"), [(None, 206), (100, 206), (206, 207), (500, 501)]
)
def test_a_template_counts_before_all_others_that_match_its_indices(priority, expected):
    theirs = {"index_patterns": ["c*"]} | ({} if priority is None else {"priority": priority})
    others = {"theirs": theirs, "of-others": {"index_patterns": ["d*"], "priority": 900}}
    named = [{"name": name, "index_template": known} for name, known in others.items()]

    def answers(method, path, _):
        if path == "/_index_template":
            return 200, {"index_templates": named}
        return ACKNOWLEDGED if method == "PUT" else ABSENT

    with cluster(answers) as (nodes, requests), closing(Client(nodes)) as client:
        for target in (Target("clicks", None, FIELDS), Target("clicks", IndexBy.DAY, FIELDS)):
            target.apply(client)
        bodies = [
            json.loads(body) for _, path, body in requests if path.endswith("headrace-clicks")
        ]
    assert [body["priority"] for body in bodies] == [expected] * 2
