"""The index template and the indices of a sink: what differs from the rows, and making it fit.

The template is ``headrace-NAME``. One that exists gets the patterns and ``dynamic: strict`` in
place of its own, and the fields that it lacks; those of other pipelines that write to the index,
and what an operator has added (shards, replicas, aliases, component templates), stay. Its priority
is above that of others that match: a cluster takes one template alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote

import msgspec

from headrace.errors import SinkError, TableMismatchError
from headrace.sinks.opensearch.answers import (
    DATA_STREAMS,
    MAPPINGS,
    SETTINGS,
    TEMPLATES,
)
from headrace.sinks.opensearch.client import EXISTS, NAME, Client
from headrace.sinks.opensearch.index_name import IndexBy
from headrace.sinks.opensearch.mapping import (
    Properties,
    keeps_documents,
    merged_fields,
    missing_fields,
    paths,
    unfit_fields,
)

_FORBIDDEN = 403
_BLOCKED = b"cluster_block_exception"
_STRICT = "strict"
# Of templates whose patterns match a name, the one with the highest priority counts alone: of two
# pipelines that of the longer name.
_MIN_PRIORITY = 200


@dataclass(frozen=True)
class Change:
    """What is put, and a clause that says so.

    Attributes:
        detail: the end of a sentence about the target.
        path: of the request.
        body: of the request; None: it has none.
    """

    detail: str
    path: str
    body: Mapping[str, Any] | None


@dataclass(frozen=True)
class Target:
    """The indices of a sink.

    Attributes:
        index: name of the index or of the data stream, or what precedes the time in the names
            of several.
        index_by: by what time they are divided; None: there is one.
        properties: the fields that rows have.
        is_data_stream: whether the indices are those of a data stream.
    """

    index: str
    index_by: IndexBy | None
    properties: Properties
    is_data_stream: bool = False

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
            for name, existing in mappings.items()
            for clause in self._unfit(existing)
        ]
        if unfit:
            more = f", and {len(unfit) - 1} more" if len(unfit) > 1 else ""
            remedy = "write to another index, or reindex this one into one of that name"
            raise TableMismatchError(self.index, f"{unfit[0]}{more}: {remedy}")
        return [*self._template_changes(client), *self._index_changes(mappings)]

    def apply(self, client: Client) -> list[str]:
        """Makes the changes, and returns their details.

        Raises:
            TableMismatchError: as :meth:`changes`; nothing is changed then. Or if an index has the
                name of the first one of a data stream that does not exist.
            SinkError: if the cluster refuses one.
        """
        made: list[str] = []
        changes = self.changes(client)
        while changes:
            change = changes.pop(0)
            body = b"" if change.body is None else msgspec.json.encode(change.body)
            answer = client.ask("PUT", change.path, body)
            if EXISTS in answer.body:
                # Another start has created it meanwhile, of rows that may have other fields.
                changes = self.changes(client)
                if change in changes:
                    reason = "delete that index, or write to another name"
                    raise TableMismatchError(self.index, f"{answer.reason}: {reason}")
                continue
            is_blocked = answer.status == _FORBIDDEN and _BLOCKED in answer.body
            if self.index_by is not None and is_blocked:
                # An index of times long ago, into which no row may ever go: rows would wait.
                continue
            answer.check_acknowledged()
            made.append(change.detail)
        return made

    def _unfit(self, mappings: Mapping[str, Any]) -> Iterator[str]:
        if not keeps_documents(mappings):
            yield "it keeps no documents as they are sent, by its _source"
        yield from unfit_fields(self.properties, mappings.get("properties", {}))

    def _mappings(self, client: Client) -> dict[str, dict[str, Any]]:
        """Returns the mappings of each index; of a data stream only of the one that it writes to.

        Raises:
            TableMismatchError: if the name is that of something else.
        """
        if self.is_data_stream:
            write_index = self._write_index(client)
            return {} if write_index is None else _mappings_of(client, write_index)
        if self.index_by is not None:
            is_name = self.index_by.is_name
            existing = _mappings_of(client, f"{self.index}-*")
            return {name: existing[name] for name in sorted(existing) if is_name(name, self.index)}
        existing = _mappings_of(client, self.index)
        if existing and self.index not in existing:
            reason = (
                f"it is an alias or a data stream, of {', '.join(sorted(existing)[:3])}: an id is "
                "unique within one index alone, so a batch that is repeated after a rollover would "
                'add its rows again. Name an index, with index_by="day" for one of each day; '
                "data_stream=True writes to a data stream, at least once"
            )
            raise TableMismatchError(self.index, reason)
        return existing

    def _write_index(self, client: Client) -> str | None:
        """Returns the index that the data stream writes to; None: there is no data stream.

        Raises:
            TableMismatchError: if the name is that of an index or an alias.
        """
        answer = client.ask("GET", f"_data_stream/{quote(self.index, safe='')}")
        streams = [] if answer.is_missing() else answer.decoded(DATA_STREAMS).data_streams
        if streams:
            return streams[0].indices[-1].index_name
        if _indices(client, self.index):
            reason = "it is an index or an alias, and no data stream: write to another name"
            raise TableMismatchError(self.index, f"{reason}, or leave data_stream out")
        return None

    def _template_changes(self, client: Client) -> Iterator[Change]:
        name, templates = _template_name(self.index), _templates(client)
        path = f"_index_template/{quote(name, safe='')}"
        existing = templates.pop(name, None)
        template = self._template(existing or {}, self._min_priority(templates))
        if existing is None:
            yield Change(f"gets index template {name}", path, template)
            return
        if template == existing:
            return
        known = _mappings(existing)
        parts = list(paths(missing_fields(self.properties, known.get("properties", {}))))
        parts += [] if known.get("dynamic") == _STRICT else [f"dynamic: {_STRICT}"]
        priority = template["priority"]
        parts += [] if existing.get("priority") == priority else [f"priority {priority}"]
        what = ", ".join(parts) or "its patterns and fields"
        yield Change(f"gets {what} in index template {name}", path, template)

    def _min_priority(self, others: Mapping[str, dict[str, Any]]) -> int:
        """Returns one above those of the templates that match the index, or that of now, too."""
        name = self.index
        if self.index_by is not None:
            name = f"{name}-{datetime.now(UTC):{self.index_by.time_format}}"
        matching = [template for template in others.values() if _matches(template, name)]
        return max((template.get("priority", 0) + 1 for template in matching), default=0)

    def _template(self, existing: Mapping[str, Any], min_priority: int) -> dict[str, Any]:
        """Returns a template with what the rows need: the rest of an existing one stays."""
        inner, known = existing.get("template", {}), _mappings(existing)
        fields = merged_fields(self.properties, known.get("properties", {}))
        mappings = {**known, "dynamic": _STRICT, "properties": fields}
        priority = existing.get("priority", _MIN_PRIORITY + len(self.index))
        template = {
            **existing,
            "priority": max(priority, min_priority),
            "index_patterns": self.patterns,
            "template": {**inner, "mappings": mappings},
        }
        if self.is_data_stream:
            template.setdefault("data_stream", {})
        else:
            template.pop("data_stream", None)
        return template

    def _index_changes(self, mappings: Mapping[str, Mapping[str, Any]]) -> Iterator[Change]:
        if self.index_by is None and not mappings:
            path = quote(self.index, safe="")
            if self.is_data_stream:
                yield Change("is created as a data stream", f"_data_stream/{path}", None)
            else:
                yield Change("is created", path, {})
        for name, existing in mappings.items():
            if missing := missing_fields(self.properties, existing.get("properties", {})):
                path = f"{quote(name, safe='')}/_mapping"
                detail = f"gets {', '.join(paths(missing))} in index {name}"
                yield Change(detail, path, {"properties": missing})


def check_template(client: Client, index: str, names: set[str]) -> None:
    """Does nothing if a bulk creates indices from their template, or they exist.

    Args:
        client: asks the cluster.
        index: as in :class:`Target`.
        names: of the indices, or of the data stream; one at least.

    Raises:
        SinkError: if an index does not exist, and the template does not either, has patterns of
            other names, or another one counts: the server would guess the fields.
        SinkUnavailableError: if the cluster does not say whether they exist.
    """
    existing = _indices(client, index if index in names else f"{index}-*")
    # Those of a data stream have other names.
    missing = set() if existing and index in names else names - existing
    own, templates = _template_name(index), _templates(client) if missing else {}
    for name in sorted(missing):
        if own not in templates:
            reason = f"index template {own} was deleted; the next start puts it"
            raise SinkError(f"{NAME}, index {name}", reason)
        template = templates[own]
        if not _matches(template, name):
            reason = (
                f"index template {own} is for {template['index_patterns'][0]}: another pipeline "
                f"with another index_by writes to {index!r}. Let one of the two write to another "
                "name, or stop the old copy; the next start puts the patterns of its pipeline"
            )
            raise SinkError(f"{NAME}, index {name}", reason)
        priority = template.get("priority", 0)
        for other, known in templates.items():
            if known.get("priority", 0) > priority and _matches(known, name):
                reason = (
                    f"index template {other} counts for it, and not {own}, whose priority is "
                    f"{priority}: give {own} one above {known['priority']}. A start does, where "
                    f"{other} is for indices of today, too"
                )
                raise SinkError(f"{NAME}, index {name}", reason)


def _templates(client: Client) -> dict[str, dict[str, Any]]:
    """Returns the index templates of the cluster, by name."""
    templates = client.ask("GET", "_index_template").decoded(TEMPLATES).index_templates
    return {template.name: template.index_template for template in templates}


def _matches(template: Mapping[str, Any], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in template["index_patterns"])


def _indices(client: Client, name: str) -> set[str]:
    """Returns the indices that have a name or pattern, or that its alias or data stream has."""
    answer = client.ask("GET", f"{quote(name, safe='*')}/_settings/index.uuid")
    return set() if answer.is_missing() else {*answer.decoded(SETTINGS).keys()}


def _mappings_of(client: Client, name: str) -> dict[str, dict[str, Any]]:
    answer = client.ask("GET", f"{quote(name, safe='*')}/_mapping")
    if answer.is_missing():
        return {}
    known = answer.decoded(MAPPINGS)
    return {index: values.mappings for index, values in known.items()}


def _template_name(index: str) -> str:
    return f"headrace-{index}"


def _mappings(template: Mapping[str, Any]) -> Mapping[str, Any]:
    mappings: Mapping[str, Any] = template.get("template", {}).get("mappings", {})
    return mappings
