"""The words of code, messages and pages: what a test can hold of "Words" in CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

# What not to write in docstrings, comments, messages and pages, and what instead.
_INSTEAD = {
    "somebody|(?<!`)nobody|whoever|everybody": "a user, an operator, a client, no other process",
    "likewise|the contrary|in earnest": "what is equal, what is opposite, in production",
    "Error: no answer": "if the broker does not respond within 15 seconds",
    "(?:the|its|their) begin": "start, beginning: begin is a verb",
    "mends?|mended|mending": "correct, repair, update",
    "homeless|poison|hearsay|way out|excuse[ds]?|last words": "the term that Kafka or Spark has",
    "one a (?:partition|topic|record|batch|request|event|row|line|file|host|column|delay|retry)": (
        "one per partition"
    ),
    "told so": "the client received 503",
    "anew|made again|Made again": "again, recreated, starts over",
}
_BANNED = {re.compile(rf"\b(?:{words})\b"): instead for words, instead in _INSTEAD.items()}
_INSTEAD_ON_PAGES = {
    "(?:go|goes|going|went) on": "continue",
    "(?:is|are|be|was|stays?) away": "unreachable, stopped",
    "tells?|told": "say, report, show",
    "(?:is|are) to be": "must be",
    "begun": "started",
}
_BANNED_ON_PAGES = {
    re.compile(rf"\b(?:{words})\b"): instead for words, instead in _INSTEAD_ON_PAGES.items()
}
# Decisions and changes keep their words; figures are those of metrics.py.
_OLD_WORDS = re.compile(r"docs/decisions/|docs/README\.md|CHANGELOG\.md|docs/reference/metrics\.md")
_NOT_NOUNS = {"one", "each", "found", "wanted", "told", "asked", "given", "there"}
_LIMIT = re.compile(r"_*(?:MOST|LONGEST|LARGEST|LEAST|SHORTEST|SMALLEST)(?:_[A-Z_]+)?")
# "Of its partition." is no sentence; "On one machine, nothing listens." is one.
_FRAGMENT = re.compile(
    r"(?:Of|As|Its|From|Where|Those|These|Such|Up to|The same|And|Or|But|Also)\b"
    r"|(?:Until|With|Without|At|By|After|Before|In|On|For|To|Between|Behind|Beside|Per)\b[^,]*\Z"
)
_GENERATED = re.compile(r"^<!-- (\S+): begin -->$.*?^<!-- \1: end -->$", re.MULTILINE | re.DOTALL)
_LINE = 160
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"#+ *(.*)")  # or the rest of a text with a "#", whose words count as well
_PUBLIC_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

Offence = tuple[str, str]


@pytest.fixture(scope="session")
def programs(root: Path) -> dict[str, str]:
    """Text of the Python files of the package and the examples, by path from the root."""
    files = [*(root / "src").rglob("*.py"), *(root / "examples").rglob("*.py")]
    kept = (file for file in files if ".headrace" not in file.parts)
    return {str(file.relative_to(root)): file.read_text(encoding="utf-8") for file in kept}


def test_words_are_plain(programs: dict[str, str], pages: dict[str, str]) -> None:
    offences = [
        *(f"{file}: {offence}" for file, text in programs.items() for offence in _of_program(text)),
        *(
            f"{page}: {offence}"
            for page, text in pages.items()
            for offence in _banned(_FENCED.sub("", text))
        ),
        *(f"{file}: {offence}" for file, offence in _ambiguous(programs)),
    ]
    assert not offences, "\n".join(["write it differently:", *sorted(offences)])


def test_pages_have_the_words_of_the_field(pages: dict[str, str]) -> None:
    offences = [
        f"{page}: {offence}"
        for page, text in pages.items()
        if not _OLD_WORDS.match(page)
        for offence in _banned(_GENERATED.sub("", _FENCED.sub("", text)), _BANNED_ON_PAGES)
    ]
    assert not offences, "\n".join(["write it differently:", *sorted(offences)])


def test_lines_of_pages_are_short(pages: dict[str, str]) -> None:
    long = [
        f"{page}: {line}"
        for page, text in pages.items()
        for line in _GENERATED.sub("", _FENCED.sub("", text)).splitlines()
        if len(line) > _LINE and not line.lstrip().startswith("|")
    ]
    assert long == []


@pytest.mark.parametrize(
    ("program", "offence"),
    [
        ("for one in range(3): pass", "name 'one'"),
        ("paths = sorted(paths, key=lambda each: each.name)", "name 'each'"),
        ("found = [token async for token in tokens]", "name 'found'"),
        ("def reset(given: int) -> None: ...", "name 'given'"),
        ("_LONGEST_WAIT = 5", "name '_LONGEST_WAIT' (MAX_, MIN_)"),
        ("def of():\n    '''Of its partition.'''", "docstring of 'of' is no sentence"),
        (
            "def on():\n    '''On a thread.\n\n    First, last.'''",
            "docstring of 'on' is no sentence",
        ),
        ("raise ValueError('nobody answers')", "'nobody'"),
        ("wait()  # one a partition", "'one a partition'"),
        ("read()  # anew", "'anew'"),
        ("there = read()", "name 'there'"),
    ],
)
def test_an_offence_is_noticed(program: str, offence: str) -> None:
    assert [line.partition(":")[0] for line in _of_program(program)] == [offence]


def test_a_sentence_is_no_fragment() -> None:
    assert not list(_of_program("def on():\n    '''On one machine, nothing listens.'''"))
    assert not list(_of_program("def of():\n    '''Offsets of a group. Of no other.'''"))


def _of_program(text: str) -> Iterator[str]:
    nodes = list(ast.walk(ast.parse(text)))
    yield from _banned("\n".join([*_COMMENT.findall(text), *_strings(nodes)]))
    for node in nodes:
        if isinstance(node, _DEFINITIONS) and _is_fragment(ast.get_docstring(node) or ""):
            yield f"docstring of {node.name!r} is no sentence"
        for name in _bound(node):
            if name in _NOT_NOUNS:
                yield f"name {name!r}"
            elif _LIMIT.fullmatch(name):
                yield f"name {name!r} (MAX_, MIN_)"


def _strings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Docstrings and messages: texts of several words."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def _banned(text: str, banned: Mapping[re.Pattern[str], str] = _BANNED) -> Iterator[str]:
    in_one_line = " ".join(text.split())
    for pattern, instead in banned.items():
        for match in pattern.finditer(in_one_line):
            yield f"{match[0]!r}: {instead}"


def _is_fragment(docstring: str) -> bool:
    first_sentence = re.split(r"(?<=[.:;])\s", docstring, maxsplit=1)[0]
    return bool(_FRAGMENT.match(first_sentence))


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a node binds: variables, parameters, functions and classes."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, _DEFINITIONS):
        yield node.name


def _ambiguous(programs: Mapping[str, str]) -> Iterator[Offence]:
    """Files and names of public classes that are defined in several modules of the package."""
    files = defaultdict(list)
    for file, text in programs.items():
        if file.startswith("src/") and "/template/" not in file:
            for name in _PUBLIC_CLASS.findall(text):
                files[name].append(file)
    for name, modules in files.items():
        if len(modules) > 1:
            for file in modules:
                yield file, f"class {name!r} is public in {len(modules)} modules"
