"""Checks standing queries against the topics of a project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from headrace.errors import QueryTextError
from headrace.model.event import EventSchema
from headrace.project.loaded import LoadedProject
from headrace.queries.language import check_query, parse_query, print_query, result_types
from headrace.queries.language.functions import ValueType
from headrace.queries.language.tree import Query
from headrace.queries.language.words import QueryText, quoted_text

_LOSS_OF_WHOLE_QUERY = (
    "LOSS OF SIGNAL is of the whole query: it says nothing of one group while others have events. "
    "To get results of each, register a query for each."
)


@dataclass(frozen=True)
class CheckedQuery:
    """A query that fits the events of its topic.

    Attributes:
        query: tree of the query.
        columns: types of the columns of its results by name, those of facets first.
    """

    query: Query
    columns: Mapping[str, ValueType]

    @property
    def notes(self) -> tuple[str, ...]:
        """Returns notes on what a reader may not expect of the query, as sentences."""
        if self.query.loss_after and self.query.facets:
            return (_LOSS_OF_WHOLE_QUERY,)
        return ()


def checked_query(project: LoadedProject, text: str, *, is_new: bool = False) -> CheckedQuery:
    """Returns the query of a text.

    Args:
        project: the project that declares the query's topic.
        text: text of the query.
        is_new: whether the text was not registered before, see :func:`check_query`.

    Raises:
        QueryTextError: if the text is no query, or does not fit the topic that it names.
    """
    query = parse_query(text)
    schema = _schema(project, query, text)
    # Users of other SQL write texts in double quotes, which are names here: the error says so.
    try:
        check_query(query, schema, text, is_new=is_new)
    except QueryTextError as error:
        name = QueryText(text).quoted_name(error.line, error.column)
        if name is None:
            raise
        reason = f"{error.reason}; if a text is meant, write {quoted_text(name)}"
        raise QueryTextError(error.line, error.column, reason) from error
    # Instances parse the printer's form, which may be too large although the text is not.
    try:
        parse_query(print_query(query))
    except QueryTextError as error:
        reason = f"with all its brackets, as it is stored, the query is too large: {error.reason}"
        raise QueryText(text).error(query.position, reason) from error
    return CheckedQuery(query, result_types(query, schema))


def _schema(project: LoadedProject, query: Query, text: str) -> EventSchema:
    topic = project.topics.get(query.topic)
    if topic is None:
        close = get_close_matches(query.topic, project.topics, n=1)
        known = ", ".join(sorted(project.topics)) or "none"
        meant = f"did you mean {close[0]!r}?" if close else f"declared are {known}"
        raise _error(query, text, f"no topic {query.topic!r} is declared; {meant}")
    if topic.envelope is not None:
        reason = (
            f"the records of topic {query.topic!r} are envelopes of events; ask the topic of "
            "single events that a pipeline makes of them"
        )
        raise _error(query, text, reason)
    if topic.schema is None:
        reason = f"topic {query.topic!r} has no event class: a query needs the types of its fields"
        raise _error(query, text, reason)
    return topic.schema


def _error(query: Query, text: str, reason: str) -> QueryTextError:
    return QueryText(text).error(query.clauses["FROM"], reason)
