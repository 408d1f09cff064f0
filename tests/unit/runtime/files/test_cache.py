from __future__ import annotations

from pathlib import Path

import pytest

from headrace.runtime.files.cache import cache_folder


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/home/ada"}, "/home/ada/.cache/headrace"),
        ({"HOME": "/home/ada", "XDG_CACHE_HOME": "/var/tmp/c"}, "/var/tmp/c/headrace"),
        ({"XDG_CACHE_HOME": "/var/tmp/c", "HEADRACE_CACHE": "/srv/jars"}, "/srv/jars"),
        ({"HOME": "/home/ada", "HEADRACE_CACHE": ""}, "/home/ada/.cache/headrace"),
    ],
)
def test_the_cache_is_where_the_environment_says(environ, folder):
    assert cache_folder(environ) == Path(folder)
