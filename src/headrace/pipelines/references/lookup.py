"""The function that looks values up in the tasks of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headrace.pipelines.references.positions import announced
from headrace.pipelines.references.table import ReferenceReader, ReferenceSpec
from headrace.spark.remote_errors import raising_remote_errors

if TYPE_CHECKING:
    import pyarrow as pa

    Lookup = Callable[[Iterator[pa.Array]], Iterator[pa.StructArray]]


def lookup(reader: ReferenceReader, spec: ReferenceSpec) -> Lookup:
    """Returns a function that Spark calls once per task, in a Python worker process.

    It takes binary keys and gives the columns of their records, null where there is none. Without
    a row to look up, it reads nothing of the reference.
    """
    import pyarrow as pa

    def find(batches: Iterator[pa.Array]) -> Iterator[pa.StructArray]:
        table = None
        with raising_remote_errors():
            for keys in batches:
                table = table or reader.table(spec, announced(spec.topic))
                yield table.find(keys)

    # Spark takes the kind of a function from its annotations, and can't resolve texts with `pa`.
    find.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    return find
