"""The partition of Kafka's client is built in one module, so that there is one way to build it."""

import ast
from pathlib import Path

import headrace
from headrace.kafka.client import partitions

SOURCE = Path(headrace.__file__).parent
NAME = "confluent_kafka.TopicPartition"


def builds_it(node):
    if isinstance(node, ast.ImportFrom):
        return any(f"{node.module}.{alias.name}" == NAME for alias in node.names)
    return isinstance(node, ast.Call) and ast.unparse(node.func) == NAME


def test_no_other_module_builds_the_partition_of_the_client():
    paths = {
        path
        for path in SOURCE.rglob("*.py")
        if NAME.rpartition(".")[2] in path.read_text()
        and any(map(builds_it, ast.walk(ast.parse(path.read_text()))))
    }
    assert paths == {Path(partitions.__file__)}
