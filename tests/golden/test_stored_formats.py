"""What an earlier headrace stored is read as it was meant; what is written now is as it was."""

from __future__ import annotations

import pytest
from tests.golden import checkpoints, positions, records
from tests.golden.files import kept_samples, stored_names, written
from tests.golden.formats import Format

_FORMATS = (*positions.FORMATS, *records.FORMATS, *checkpoints.FORMATS)


@pytest.mark.parametrize("format_", _FORMATS, ids=lambda format_: format_.name)
def test_every_sample_that_was_ever_written_is_restored(format_: Format) -> None:
    for sample in kept_samples(format_.name, written(format_.write(format_.value))):
        assert format_.read(sample) == format_.value


def test_there_is_no_other_sample() -> None:
    assert stored_names() == {format_.name for format_ in _FORMATS}
