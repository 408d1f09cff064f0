"""What must hold for a declared mirror before anything starts."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.links.copying.rules import copy_faults, copy_type_faults
from headrace.links.mirror.declaration import Mirror
from headrace.model.fault import Fault
from headrace.settings import Settings


def mirror_type_faults(mirror: Mirror) -> Iterator[Fault]:
    """Yields which parts of a mirror are not what the model says."""
    return copy_type_faults(mirror, "mirror", "source")


def mirror_faults(mirror: Mirror, settings: Settings) -> Iterator[Fault]:
    """Yields what is wrong with one mirror by itself."""
    if mirror.source == settings.site:
        yield Fault(
            f"mirror {mirror.name!r}: source {mirror.source!r} is the project's own site",
            "name another one; a mirror copies to its own",
        )
    elif mirror.source not in settings.sites:
        known = ", ".join(settings.sites) or "none"
        yield Fault(
            f"mirror {mirror.name!r}: there is no site {mirror.source!r}; declared: {known}",
            f"add [sites.{mirror.source}.kafka] to headrace.toml",
        )
    yield from copy_faults(mirror, "mirror")
