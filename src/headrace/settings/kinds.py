"""The kinds of declarations: a new one is a line here.

``project/kinds.py`` imports them from their folders. Here, below them, are only names, since a
table of ``headrace.toml`` is read before any declaration is.
"""

from collections.abc import Mapping

FOLDERS: Mapping[str, str] = {
    "topics": "topics",
    "pipelines": "pipelines",
    "workers": "workers",
    "mirrors": "links.mirror",
    "mergers": "links.merger",
    "dispatchers": "links.dispatcher",
    "standing_queries": "queries",
}
"""Their folders, by the names that ``headrace.toml`` and JSON have for their declarations.

They are in the order in which they are checked and shown.
"""


def kinds_below(folder: str) -> list[str]:
    """Returns the folders of kinds below another, such as ``mirror`` below ``links``."""
    paths = FOLDERS.values()
    return [path.rpartition(".")[2] for path in paths if path.startswith(f"{folder}.")]
