from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.pipelines.source.decode.decoder import Decoded


class RawDecoder:
    """Decodes format :class:`~headrace.model.Raw`: values as they are, in one column ``value``."""

    def __init__(self) -> None:
        self.arrow_schema = pa.schema([pa.field("value", pa.binary())])

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Makes every record a row."""
        return Decoded(pa.table([pa.array(values, pa.binary())], schema=self.arrow_schema), {})
