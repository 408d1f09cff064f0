"""A backend of standing queries in memory."""

import json

from headrace.errors import QueryIdTakenError, QueryMissingError, QueryTextError
from headrace.ingest.queries.backend import KnownQuery, Registration, ResultList, ResultPage


class MemoryBackend:
    """Takes texts such as ``FROM occurrences``; remembers calls, and fails if it is to."""

    def __init__(self):
        self.known, self.calls, self.error = {}, [], None
        self.pages, self.begin = [], None

    def topic(self, text):
        if not text.startswith("FROM "):
            raise QueryTextError(1, 1, "a query begins with FROM")
        return text.removeprefix("FROM ").split()[0]

    def register(self, registry, text, query_id, ttl):
        self._called("register", registry, text, query_id, ttl)
        query = KnownQuery(self.topic(text), {"id": query_id or "random", "text": text})
        before = self.known.get(query.document["id"])
        if before not in (None, query):
            raise QueryIdTakenError(query_id, 3)
        self.known[query.document["id"]] = query
        return Registration(query, before is None)

    def update(self, registry, query_id, text, ttl):
        self._called("update", registry, query_id, text, ttl)
        return self.known[query_id]

    def cancel(self, registry, query_id):
        self._called("cancel", registry, query_id)
        del self.known[query_id]

    def queries(self, registry):
        self._called("queries", registry)
        return list(self.known.values())

    def query(self, registry, query_id):
        if query_id not in self.known:
            raise QueryMissingError(query_id, registry or "", "did you mean 'secret'?")
        return self.known[query_id]

    def results(self, registry, query, limit):
        self._called("results", registry, limit)
        results = [json.dumps({"n": number}).encode() for number in range(3)]
        return ResultList(results[:limit], is_cut=limit < len(results))

    def cursor(self, registry, query, begin):
        self._called("cursor", registry)
        return PagesCursor(self.pages, begin)

    def _called(self, *call):
        self.calls.append(call)
        if self.error is not None:
            raise self.error


class PagesCursor:
    """A cursor that reads these pages; one may be an error. Then there is nothing more."""

    def __init__(self, pages, begin=0):
        self.pages, self.begin = list(pages), begin
        self.position = begin if isinstance(begin, int) else 0

    def read(self):
        if not self.pages:
            return ResultPage((), self.position, is_end=True)
        page = self.pages.pop(0)
        if isinstance(page, Exception):
            raise page
        self.position = page.position
        return page
