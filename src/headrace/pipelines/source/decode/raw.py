from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.pipelines.source.decode.decoder import Decoded, EventTimeBounds


class RawDecoder:
    """Values as they are, in the one column ``value`` (binary).

    No record is bad: a null value (a tombstone) is kept as null, an empty one as empty.
    """

    def __init__(self) -> None:
        self.arrow_schema = pa.schema([pa.field("value", pa.binary())])

    def decode(
        self,
        values: Sequence[bytes | None],
        bounds: EventTimeBounds | None,  # noqa: ARG002  raw bytes have no event time
    ) -> Decoded:
        """Every record becomes a row."""
        return Decoded(pa.table([pa.array(values, pa.binary())], schema=self.arrow_schema), [])
