"""The index template and the indices of a sink: what differs from the rows, and making it fit.

The template is ``headrace-NAME``. One that is there gets the patterns, and the fields that it
lacks; those of other pipelines that write to the index, and what an operator has added (shards,
replicas, aliases, component templates), stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from headrace.errors import TableMismatchError
from headrace.sinks.opensearch.client import EXISTS, Client
from headrace.sinks.opensearch.index_name import IndexBy
from headrace.sinks.opensearch.mapping import (
    Properties,
    keeps_documents,
    merged_fields,
    missing_fields,
    paths,
    unfit_fields,
)

_NOT_FOUND, _FORBIDDEN = 404, 403
_BLOCKED = b"cluster_block_exception"
# Of two templates whose patterns both match a name, that of the longer one counts.
_MIN_PRIORITY = 200


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
        index_by: by what time they are divided; None: there is one.
        properties: the fields that rows have.
    """

    index: str
    index_by: IndexBy | None
    properties: Properties

    @property
    def patterns(self) -> list[str]:
        """The index, or patterns of the names of several."""
        return [self.index] if self.index_by is None else self.index_by.patterns(self.index)

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
            for clause in self._unfit(there)
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
        made: list[str] = []
        for change in self.changes(client):
            answer = client.ask("PUT", change.path, msgspec.json.encode(change.body))
            if EXISTS in answer.body:
                # Another start has created it meanwhile, of rows that may have other fields.
                return [*made, *self.apply(client)]
            is_blocked = answer.status == _FORBIDDEN and _BLOCKED in answer.body
            if self.index_by is not None and is_blocked:
                # An index of times long ago, into which no row may ever go: rows would wait.
                continue
            answer.check()
            made.append(change.detail)
        return made

    def _unfit(self, mappings: Mapping[str, Any]) -> Iterator[str]:
        if not keeps_documents(mappings):
            yield "it keeps no documents as they are sent, by its _source"
        yield from unfit_fields(self.properties, mappings.get("properties", {}))

    def _mappings(self, client: Client) -> dict[str, dict[str, Any]]:
        """Returns the mappings of each index that is there.

        Raises:
            TableMismatchError: if the name is that of an alias or a data stream.
        """
        names = self.index if self.index_by is None else f"{self.index}-*"
        answer = client.ask("GET", f"{quote(names, safe='*')}/_mapping")
        if answer.status == _NOT_FOUND:
            return {}
        there = {name: index["mappings"] for name, index in answer.json().items()}
        if self.index_by is not None:
            is_name = self.index_by.is_name
            return {name: there[name] for name in sorted(there) if is_name(name, self.index)}
        if self.index not in there:
            reason = (
                f"it is an alias or a data stream, of {', '.join(sorted(there)[:3])}: an id is "
                "unique within one index alone, so a batch that is repeated after a rollover would "
                'add its rows again. Name an index, with index_by="day" for one of each day'
            )
            raise TableMismatchError(self.index, reason)
        return there

    def _template_changes(self, client: Client) -> Iterator[Change]:
        name = f"headrace-{self.index}"
        path = f"_index_template/{quote(name, safe='')}"
        answer = client.ask("GET", path)
        if answer.status == _NOT_FOUND:
            mappings = {"dynamic": "strict", "properties": self.properties}
            priority = _MIN_PRIORITY + len(self.index)
            template = {"priority": priority, "template": {"mappings": mappings}}
            yield Change(f"gets index template {name}", path, self._with_pattern(template))
            return
        [known] = answer.json()["index_templates"]
        template = known["index_template"]
        inner = template.get("template", {})
        mappings = inner.get("mappings", {})
        there = mappings.get("properties", {})
        fields = merged_fields(self.properties, there)
        if fields == there and template["index_patterns"] == self.patterns:
            return
        mappings = {**mappings, "dynamic": "strict", "properties": fields}
        what = ", ".join(paths(missing_fields(self.properties, there)))
        body = self._with_pattern({**template, "template": {**inner, "mappings": mappings}})
        detail = f"gets {what or 'its patterns and fields'} in index template {name}"
        yield Change(detail, path, body)

    def _with_pattern(self, template: dict[str, Any]) -> dict[str, Any]:
        return {**template, "index_patterns": self.patterns}

    def _index_changes(self, mappings: Mapping[str, Mapping[str, Any]]) -> Iterator[Change]:
        if self.index_by is None and not mappings:
            yield Change("is created", quote(self.index, safe=""), {})
        for name, there in mappings.items():
            if missing := missing_fields(self.properties, there.get("properties", {})):
                path = f"{quote(name, safe='')}/_mapping"
                detail = f"gets {', '.join(paths(missing))} in index {name}"
                yield Change(detail, path, {"properties": missing})
