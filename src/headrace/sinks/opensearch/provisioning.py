"""The index template and the indices of a sink: what differs from the rows, and making it fit.

The template is ``headrace-NAME``. Of one that is there, patterns and fields are replaced; what an
operator has added to it (shards, replicas, aliases, component templates) stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from headrace.errors import TableMismatchError
from headrace.sinks.opensearch.client import Client
from headrace.sinks.opensearch.index_name import IndexBy
from headrace.sinks.opensearch.mapping import Properties, missing_fields, paths, unfit_fields

_NOT_FOUND = 404
_PRIORITY = 200


@dataclass(frozen=True)
class Change:
    """What is put, and a clause that says so.

    Attributes:
        detail: the end of a sentence about the target.
        path: of the request.
        body: of the request.
    """

    detail: str
    path: str
    body: Any


@dataclass(frozen=True)
class Target:
    """The indices of a sink.

    Attributes:
        index: name of the index, or what stands before the time in the names of several.
        by: by what time they are divided; None: there is one.
        properties: the fields that rows have.
    """

    index: str
    by: IndexBy | None
    properties: Properties

    @property
    def patterns(self) -> list[str]:
        """The index, or patterns of the names of several."""
        return [self.index] if self.by is None else self.by.patterns(self.index)

    def changes(self, client: Client) -> list[Change]:
        """Returns what differs from the rows.

        Raises:
            TableMismatchError: if something differs that no change makes fit.
            SinkError: if the cluster can't be asked.
        """
        mappings = self._mappings(client)
        unfit = [
            f"{clause} (index {name})"
            for name, there in mappings.items()
            for clause in unfit_fields(self.properties, there)
        ]
        if unfit:
            more = f", and {len(unfit) - 1} more" if len(unfit) > 1 else ""
            remedy = "write to another index, or reindex this one into one of that name"
            raise TableMismatchError(self.index, f"{unfit[0]}{more}: {remedy}")
        return [*self._template_changes(client), *self._index_changes(mappings)]

    def apply(self, client: Client) -> list[str]:
        """Makes the changes, and returns their details.

        Raises:
            TableMismatchError: as :meth:`changes`; nothing is changed then.
            SinkError: if the cluster refuses one.
        """
        changes = self.changes(client)
        for change in changes:
            client.ask("PUT", change.path, msgspec.json.encode(change.body)).json()
        return [change.detail for change in changes]

    def _mappings(self, client: Client) -> dict[str, Properties]:
        """Returns the fields of each index that is there.

        Raises:
            TableMismatchError: if the name is that of an alias or a data stream.
        """
        names = self.index if self.by is None else f"{self.index}-*"
        answer = client.ask("GET", f"{quote(names, safe='*')}/_mapping")
        if answer.status == _NOT_FOUND:
            return {}
        there = {
            name: index["mappings"].get("properties", {}) for name, index in answer.json().items()
        }
        if self.by is not None:
            return {
                name: there[name] for name in sorted(there) if self.by.is_name(name, self.index)
            }
        if self.index not in there:
            reason = (
                f"it is an alias or a data stream, of {', '.join(sorted(there)[:3])}: an id is "
                "unique within one index alone, so a batch that is repeated after a rollover would "
                "add its rows again. Name an index, with by=IndexBy.DAY for one of each day"
            )
            raise TableMismatchError(self.index, reason)
        return there

    def _template_changes(self, client: Client) -> Iterator[Change]:
        name = f"headrace-{self.index}"
        path = f"_index_template/{quote(name, safe='')}"
        answer = client.ask("GET", path)
        mappings = {"dynamic": "strict", "properties": self.properties}
        if answer.status == _NOT_FOUND:
            template = {"priority": _PRIORITY, "template": {"mappings": mappings}}
            yield Change(f"gets index template {name}", path, self._with_pattern(template))
            return
        [known] = answer.json()["index_templates"]
        template = known["index_template"]
        there = template.get("template", {}).get("mappings", {}).get("properties", {})
        missing, unfit = (
            missing_fields(self.properties, there),
            [*unfit_fields(self.properties, there)],
        )
        if not (missing or unfit) and template["index_patterns"] == self.patterns:
            return
        inner = {**template.get("template", {}), "mappings": mappings}
        what = ", ".join(paths(missing)) or "its patterns and fields"
        body = self._with_pattern({**template, "template": inner})
        yield Change(f"gets {what} in index template {name}", path, body)

    def _with_pattern(self, template: dict[str, Any]) -> dict[str, Any]:
        return {**template, "index_patterns": self.patterns}

    def _index_changes(self, mappings: dict[str, Properties]) -> Iterator[Change]:
        if self.by is None and not mappings:
            yield Change("is created", quote(self.index, safe=""), {})
        for name, there in mappings.items():
            if missing := missing_fields(self.properties, there):
                path = f"{quote(name, safe='')}/_mapping"
                detail = f"gets {', '.join(paths(missing))} in index {name}"
                yield Change(detail, path, {"properties": missing})
