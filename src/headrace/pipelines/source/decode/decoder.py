"""The contract of a decoder. Importing this module imports no native library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.events.wire_format import framed
from headrace.kafka.client.headers import headers_of
from headrace.model import Registered

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from headrace.events import Rejection
    from headrace.kafka.read.range_reader import Record
    from headrace.model import Format


@dataclass(frozen=True, slots=True)
class Decoded:
    """A chunk of records after decoding: each is a row or is rejected, never both.

    Attributes:
        rows: the accepted records in their order, with exactly the decoder's ``arrow_schema``.
        rejected: by the index of a record in the chunk, ascending: its reason code and a sentence.
    """

    rows: pa.Table
    rejected: dict[int, Rejection]

    def rejected_at(self, indices: Sequence[int] | NDArray[np.int64]) -> dict[int, Rejection]:
        """Returns the rejections by other indices of the same records, such as in more of them."""
        return {int(indices[index]): why for index, why in self.rejected.items()}


def record_values(records: Iterable[Record], record_format: Format) -> list[bytes | None]:
    """Returns what a decoder of the format takes: values, with the ids that stand in headers."""
    if not isinstance(record_format, Registered):
        return [record.value() for record in records]
    return [framed(record.value(), headers_of(record) or ()) for record in records]


def decode_others(
    decoder: Decoder, values: Sequence[bytes | None], rejected: Mapping[int, Rejection]
) -> Decoded:
    """Decodes those records of a chunk that are not rejected already, by their index.

    Args:
        decoder: of the others.
        values: of all records.
        rejected: the reasons, which the result has, too.
    """
    if not rejected:
        return decoder.decode(values)
    indices = [index for index in range(len(values)) if index not in rejected]
    decoded = decoder.decode([values[index] for index in indices])
    by_index = {**rejected, **decoded.rejected_at(indices)}
    return Decoded(decoded.rows, dict(sorted(by_index.items())))


class Decoder(Protocol):
    """Turns the record values of one format into columns.

    A decoder is made in the read task and called there once for every chunk of records, by one
    thread. It knows nothing of the topic's bounds or partitions: those are checked in its rows, by
    :class:`~headrace.pipelines.source.decode.checks.RowChecks`.

    Attributes:
        arrow_schema: the columns of ``rows``, all nullable.
    """

    arrow_schema: pa.Schema

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decodes a chunk of record values; ``None`` is a tombstone.

        It never raises because of what a record holds, and what it says about a record does not
        depend on the records around it: a batch that is repeated after a crash is cut elsewhere.
        """
        ...
