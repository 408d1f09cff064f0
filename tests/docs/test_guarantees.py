"""Each promise of docs/guarantees.md names the tests that hold it, in guarantees.toml."""

from __future__ import annotations

import pytest
from tests.docs.guarantee_map import (
    MAP,
    PAGE,
    Sentence,
    Tier,
    read_map,
    sentences,
    tier,
)

WITHOUT_PROMISE = {"advice", "limit", "others"}
"""What a sentence says that promises nothing: what to do, what is not promised, or what Kafka and
Spark do."""
MOST_WITHOUT_PROMISE = 0.15


@pytest.fixture(scope="module")
def page() -> list[Sentence]:
    return list(sentences(PAGE.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def promises() -> dict[str, list[str]]:
    """Tests by the sections and labels of sentences that promise something."""
    return {
        f"{section}: {label}": tests
        for section, labels in read_map().items()
        for label, tests in labels.items()
        if isinstance(tests, list)
    }


def test_the_map_has_each_sentence_of_the_page_once_in_its_order(page: list[Sentence]) -> None:
    mapped = [(section, label) for section, map_ in read_map().items() for label in map_]
    written = [(sentence.section, sentence.label) for sentence in page]
    new = [f'"{one.label}": {one.text}' for one in page if (one.section, one.label) not in mapped]
    gone = [f'"{label}"' for section, label in mapped if (section, label) not in written]
    lines = [f"Read the tests of what is new and correct {MAP.name}.", *new, "Gone:", *gone]
    assert not new + gone, "\n".join(lines)
    assert mapped == written


def test_each_test_of_the_map_is_there(promises: dict[str, list[str]]) -> None:
    assert not {
        label: missing
        for label, tests in promises.items()
        if (missing := [test for test in tests if tier(test) is None])
    }


def test_no_promise_stands_on_drills_alone(promises: dict[str, list[str]]) -> None:
    """A drill meets some moments of a crash; a test that is none proves each point of it."""
    assert not [
        label
        for label, tests in promises.items()
        if Tier.TEST not in {tier(test) for test in tests}
    ]


def test_few_sentences_promise_nothing(
    page: list[Sentence], promises: dict[str, list[str]]
) -> None:
    kinds = {
        kind for labels in read_map().values() for kind in labels.values() if isinstance(kind, str)
    }
    assert kinds == WITHOUT_PROMISE
    assert len(page) - len(promises) <= MOST_WITHOUT_PROMISE * len(page)


SOURCE = "unit/pipelines/source/test_source_contract.py"
SINK = "unit/sinks/lake/test_sink.py"
DUCKDB = "unit/queries/test_against_duckdb.py"
PAGE_OF_ALL_KINDS = """\
# Title

What stands before the first section is left out.

## First

A sentence
in two lines. `code` begins the next one, e.g. here.

- **A title.** It is part of the [first](other.md#place) sentence.
  Another one?

| what | then |
|---|---|
| this | `that` |

### Second

| part | order | crash |
|---|---|---|
| a | b | c |

| part | order | delivery | crash |
|---|---|---|---|
| a | b | - | d |
"""


def test_sentences_rows_and_cells_are_told_apart() -> None:
    assert [(one.section, one.text) for one in sentences(PAGE_OF_ALL_KINDS)] == [
        ("First", "A sentence in two lines."),
        ("First", "code begins the next one, e.g. here."),
        ("First", "A title: It is part of the first sentence."),
        ("First", "Another one?"),
        ("First", "this | that"),
        ("Second", "a | b | c"),
        ("Second", "a | order | b"),
        ("Second", "a | crash | d"),
    ]


def test_a_label_changes_with_any_word() -> None:
    begin = "A long sentence that is not shown as a whole where it is mapped, "
    one, other = (next(sentences(f"## S\n\n{begin}{end}.\n")) for end in ("ever", "never"))
    assert one.opening == other.opening == "A long sentence that is not shown as a whole where it…"
    assert one.label != other.label


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("docs/test_guarantees.py::test_a_label_changes_with_any_word", Tier.TEST),
        ("docs/test_guarantees.py::test_that_is_not_there", None),
        ("docs/test_guarantees.py::page", None),
        ("docs/test_that_is_not_there.py::test_it", None),
        ("docs/test_guarantees.py", None),
        # Inherited from tests/contracts, and from headrace.testing.
        (f"{SOURCE}::TestMemory::test_a_missing_topic_is_refused", Tier.TEST),
        (f"{SINK}::TestUniqueLake::test_many_writes_of_a_task_are_one", Tier.TEST),
        (f"{SOURCE}::TestMemory::test_that_is_not_there", None),
        (f"{SOURCE}::TestMemory", None),
        ("unit/workers/test_model.py::TestMachine", Tier.TEST),
        (f"{DUCKDB}::test_results_and_late_events_are_those_of_duckdb", Tier.DRILL),
    ],
)
def test_tests_are_found_with_the_tier_of_their_markers(test: str, expected: Tier | None) -> None:
    assert tier(test) is expected


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ("", Tier.TEST),
        ("pytestmark = pytest.mark.drill", Tier.DRILL),
        ("pytestmark = [pytest.mark.timeout(9), pytest.mark.drill(always=True)]", Tier.SHORT_DRILL),
        ("@pytest.mark.drill(always=True)", Tier.SHORT_DRILL),
        ("@pytest.mark.timeout(9)\n@pytest.mark.drill", Tier.DRILL),
        ("@pytest.mark.drills", Tier.TEST),
        ('@drills("killed", "frozen")', Tier.DRILL),
        ('@drills("killed", "frozen", always="killed")', Tier.SHORT_DRILL),
    ],
)
def test_a_drill_is_known_by_the_marks_of_its_function_or_file(tmp_path, marks, expected) -> None:
    file = tmp_path / "test_marks.py"
    file.write_text(f"import pytest\n\n{marks}\ndef test_it(): ...\n")
    assert tier(f"{file}::test_it") is expected
