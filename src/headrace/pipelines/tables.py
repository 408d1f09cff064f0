"""Tables of a project's lake, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.errors import NotDeclaredError
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.sinks import sink_context
from headrace.project.loaded import LoadedProject
from headrace.runtime.extras import require_extra
from headrace.sinks.api import Readable

if TYPE_CHECKING:
    import pyarrow as pa


def read_project_table(
    project: LoadedProject, table: str, columns: Sequence[str] | None = None
) -> pa.Table:
    """Returns the rows of a table that a pipeline of the project writes, in no order.

    Raises:
        ExtraMissingError: if pyarrow is missing, which the extra ``spark`` installs.
        NotDeclaredError: if no pipeline writes such a table.
        SinkError: if the table is not there yet, or the lake can't be read.
        ServerStartError: if the lake is on the embedded HDFS, which is down.
    """
    require_extra("spark")
    sinks = {
        sink.target: (pipeline, sink)
        for pipeline in project.declared(Pipeline).values()
        for sink in pipeline.sinks
        if isinstance(sink, Readable)
    }
    if table not in sinks:
        raise NotDeclaredError("table", table, ", ".join(sorted(sinks)))
    pipeline, sink = sinks[table]
    return sink.read(sink_context(project.settings, pipeline, sink), columns)
