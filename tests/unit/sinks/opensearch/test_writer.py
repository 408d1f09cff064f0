"""The tasks' half of an open index, without a server."""

import pyarrow as pa
import pytest

from headrace.errors import SinkError
from headrace.sinks.opensearch.client import ClusterNodes
from headrace.sinks.opensearch.documents import DocumentSpec
from headrace.sinks.opensearch.writer import DocumentWriters


def test_a_task_without_rows_reads_no_certificates():
    rows = pa.table({"id": [1]})
    spec = DocumentSpec("clicks", None, None, ("id",), None)
    nodes = ClusterNodes(("https://127.0.0.1:1",), ca_file="/nowhere")
    writers = DocumentWriters(nodes, spec, rows.schema)
    assert writers("a" * 32).close() == []
    writers("a" * 32).abort()
    with pytest.raises(SinkError, match="ca_file /nowhere"):
        writers("a" * 32).write(rows)
