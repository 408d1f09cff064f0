"""Queries print as they always did: registered texts and the keys of shapes are made of that."""

import json

from tests.golden.files import FILES, golden

from headrace.queries.language import parse_query, print_query

_FILE = "queries/printed.json"


def test_queries_print_as_they_did() -> None:
    texts = json.loads((FILES / _FILE).read_text(encoding="utf-8"))
    printed = {text: print_query(parse_query(text)) for text in texts}
    golden(_FILE, json.dumps(printed, indent=2, ensure_ascii=False))
