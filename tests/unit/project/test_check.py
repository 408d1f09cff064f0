"""What a project declares, and every problem with it, by file and line."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from tests.in_process import invoke

from headrace import Pipeline
from headrace.errors import ProjectError
from headrace.model import Avro
from headrace.project.check import load_project
from headrace.project.loaded import LoadedProject
from headrace.settings import load_settings

HEAD = """\
from datetime import UTC, datetime, timedelta
from headrace import *
from headrace.model import *

class Click:
    id: str
    at: datetime
    price: float
    campaign: str | None

TICK = timedelta(milliseconds=1)
clicks = Topic("clicks", event=Click, key="id", event_time="at", retention=timedelta(days=7))
"""


@pytest.fixture
def write(tmp_path: Path):
    """Write a project of one module and load it."""

    def load(
        body: str, *, head: str = HEAD, modules: str = '["flow"]', more: str = ""
    ) -> LoadedProject:
        (tmp_path / "headrace.toml").write_text(
            f'[project]\nname = "ads"\nmodules = {modules}\n{more}', encoding="utf-8"
        )
        (tmp_path / "flow.py").write_text(head + dedent(body), encoding="utf-8")
        return load_project(load_settings(tmp_path, {}))

    return load


@pytest.fixture
def problems(write):
    """(line, message) of every problem of a project; line 1 is the first after HEAD."""

    def find(body: str, **options) -> list[tuple[int, str]]:
        with pytest.raises(ProjectError) as raised:
            write(body, **options)
        before = options.get("head", HEAD).count("\n")
        return [(one.line - before, str(one)) for one in raised.value.problems]

    return find


def test_module_level_values_are_declared_also_in_lists(write):
    project = write("""\
        a = Pipeline("a", source=clicks, sink=Lake("a"))
        rest = [Pipeline("b", source=clicks, sink=Lake("b")), (Topic("raw"),)]
        """)
    assert list(project.topics) == ["clicks", "raw"]
    assert list(project.declared(Pipeline)) == ["a", "b"]
    assert list(project.dead_lettered) == ["clicks"]


def test_module_level_values_are_declared_also_in_dicts(write):
    project = write("""\
        by_name = {name: Pipeline(name, source=clicks, sink=Lake(name)) for name in ("a", "b")}
        everything = globals()
        """)
    assert list(project.declared(Pipeline)) == ["a", "b"]


UNNAMED = """\
Pipeline("a", source=clicks, sink=Lake("a"))
for name in "bc":
    again = Pipeline(name, source=clicks, sink=Lake(name))

def more():
    Topic("made")
    @worker(topic=clicks)
    async def look(click): ...

more()

class Flows:
    held = StandingQueries("held")
"""


def test_what_a_module_makes_and_does_not_name_is_reported_and_never_ignored(problems):
    found = problems(UNNAMED)
    assert [
        (line, text.partition(" is assigned")[0].rpartition(": ")[2]) for line, text in found
    ] == [
        (1, "Pipeline 'a'"),
        (3, "Pipeline 'b'"),
        (6, "Topic 'made'"),
        (7, "FunctionWorker 'look'"),
        (13, "StandingQueries 'held'"),
    ]
    assert "name it, such as mine = Pipeline(...)" in found[0][1]


def test_one_that_a_variable_has_does_not_hide_another_one_of_its_name(problems):
    body = """\
        from dataclasses import replace
        a = Pipeline("x", source=clicks, sink=Lake("a"))
        Pipeline("x", source=clicks, sink=Lake("b"))
        replace(a, sink=Lake("c"))
        for name in "de":
            again = replace(a, name="again", sink=Lake(name))
        """
    assert [line for line, _ in problems(body)] == [3, 4, 6]


def test_what_only_a_module_has_that_the_project_does_not_name_is_reported(tmp_path, problems):
    more = """\
        from dataclasses import replace
        from headrace import Lake, Pipeline, Topic
        class Event: id: str
        t = Topic("t", event=Event)
        a = Pipeline("a", source=t, sink=Lake("a"))
        b = replace(Pipeline("b", source=t, sink=Lake("b")), steps=[print])
        """
    (tmp_path / "more.py").write_text(dedent(more))
    [(_, text)] = problems("from more import b, t")
    assert "more.py:5: Pipeline 'a' is in module 'more', which project.modules of headr" in text
    assert "add 'more' there, or import the Pipeline" in text


def test_what_other_modules_and_packages_make_is_theirs(tmp_path, write):
    (tmp_path / "words.py").write_text(
        'from headrace import Topic\nraw = Topic("raw")\nother = Topic("other")\n'
    )
    packages = tmp_path / ".venv" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "shared_by_all.py").write_text('from headrace import Topic\nTopic("lost")\n')
    project = write(
        f"""\
        import sys
        sys.path.append({str(packages)!r})
        import shared_by_all
        from words import raw
        """
    )
    assert list(project.topics) == ["clicks", "raw"]


def test_a_topic_imported_from_another_module_is_declared_once(tmp_path, write):
    (tmp_path / "words.py").write_text('from headrace import Topic\nraw = Topic("raw")\n')
    project = write("from words import raw\nagain = raw\n", modules='["flow", "words"]')
    assert list(project.topics) == ["clicks", "raw"]


def test_packages_of_an_environment_in_the_projects_folder_are_not_read(
    tmp_path, write, monkeypatch
):
    packages = tmp_path / ".venv" / "lib"
    packages.mkdir(parents=True)
    (packages / "installed.py").write_text('from headrace import Topic\nraw = Topic("raw")\n')
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    parsed, parse = [], ast.parse

    def recorded(source, *arguments, **options):
        parsed.append(source)
        return parse(source, *arguments, **options)

    monkeypatch.setattr(ast, "parse", recorded)
    project = write("from installed import raw\n")
    assert list(project.topics) == ["clicks", "raw"]
    assert parsed == [(tmp_path / "flow.py").read_text()]


REFERENCE = """\
t = Topic("t", event=Click, compaction=True, config={"min.compaction.lag.ms": "1"})
look_up = enrich(t, by="id", columns=["price"], prefix="t_")
a = Pipeline("a", clicks, Lake("a"), steps=[look_up])
"""


def test_a_reference_topic_needs_no_field_that_holds_its_key(write):
    assert write(REFERENCE).topics["t"].is_keyed_elsewhere


def test_rows_are_not_written_without_the_keys_that_compaction_needs(problems):
    [(line, text)] = problems(REFERENCE + 'b = Pipeline("b", clicks, Kafka(t))\n')
    assert line == 4
    assert "Kafka: topic 't' is compacted, and rows have no key for it" in text


BY_ACCOUNT = """
events = Topic("events", event=Click, event_time="at", partitioning=ByAccount(
    timedelta(hours=1), account={}))
b = Pipeline("b", clicks, Kafka(events))
"""


def test_rows_may_have_a_field_for_their_account(write):
    assert "b" in write(BY_ACCOUNT.format("'id'")).declared(Pipeline)


def test_rows_without_an_account_have_no_partition(problems):
    [(_, text)] = problems(BY_ACCOUNT.format("None"))
    assert "is partitioned by account, and rows have none" in text
    assert 'ByAccount(account="FIELD")' in text


def test_all_problems_come_at_once(problems):
    found = problems("""\
        bad = Topic("a b", partitions=0)
        p = Pipeline("p", source=clicks, sink=Lake("../p"))
        """)
    assert [line for line, _ in found] == [1, 1, 2]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('t = Topic("a/b")', "'a/b' is not a topic name"),
        ('t = Topic("x" * 250)', "250 characters"),
        ('t = Topic("__mine")', "begins with '__'"),
        ('t = Topic("t", partitions=0)', "partitions is 0"),
        ('t = Topic("t", partitions=True)', "partitions is True"),
        (
            't = Topic("t", partitions="4")',
            "partitions is '4'; it must be a whole number of at least 1",
        ),
        ('t = Topic("t", retention=3600)', "retention is 3600 (a timedelta above zero"),
        ('t = Topic("t", earliest_event_time=2000)', "2000 is no datetime"),
        ('t = Topic("t", replication=2)', "replication 2 on 1 embedded broker"),
        ('t = Topic("t", retention=timedelta(0))', "retention is"),
        ('t = Topic("t", latest_ahead=-timedelta(1))', "latest_ahead is"),
        ('t = Topic("t", earliest_event_time=datetime(2000, 1, 1))', "has no time zone"),
        ('t = Topic("t", config={"segment.ms": 1})', "both must be text"),
        (
            't = Topic("t", retention=timedelta(1), config={"retention.ms": "1"})',
            "retention and config",
        ),
        ('t = Topic("t", event=Click, compaction=True)', "compaction without a key"),
        ('t = Topic("t", format="json")', "format is 'json'"),
        ('t = Topic("t", format=Json())', "format Json() without an event class"),
        ('t = Topic("t", event=Click, format=Raw())', "format Raw() with an event class"),
        ('t = Topic("t", key="id")', "raw bytes have none"),
        ('t = Topic("t", event=Click, key="ID")', "key 'ID' is not a field of Click"),
        ('t = Topic("t", event=Click, event_time="when")', "'when' is not a field of Click"),
        ('t = Topic("t", event="Click")', "event 'Click'"),
        ('t = Topic("clicks")', "already declared"),
        ('a = Topic("a.b")\nb = Topic("a_b")', "collides with 'a.b'"),
    ],
)
def test_a_topic_that_kafka_or_its_event_would_refuse_is_a_problem(problems, body, message):
    [(line, text)] = problems(body)
    assert message in text
    assert line == body.count("\n") + 1


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ("x: set[str]", "", "has no column type"),
        ("x: list[set[str]]", "", "E.x[]: set[str] has no column type"),
        ("x: dict[int, str]", "", "has keys that are not str"),
        ("x: list[int]", ", key='x'", "is a list and can't be the key"),
        ("x: float", ", key='x'", "is a double and can't be the key"),
        ("x: str", ", event_time='x'", "is a string and can't be the event_time"),
        ("x: datetime | None", ", event_time='x'", "can be null"),
        ("_offset: int", "", "a column of headrace's own"),
        ("_rescued: str", "", "a column of headrace's own"),
        ("_Topic: str", "", "E._Topic is a column of headrace's own, '_topic'"),
        ("_RESCUED: str", "", "a column of headrace's own, '_rescued'"),
        ("_headrace_reason: str", "", "a column of headrace's own, '_headrace_reason'"),
        ("_Headrace: str", "", "a column of headrace's own, '_headrace'"),
        ("X: int; x: int", "", "only in case"),
    ],
)
def test_a_field_that_can_not_be_a_column_is_a_problem_at_its_own_line(
    problems, fields, options, message
):
    body = f"class E:\n    ok: int\n    {fields}\nt = Topic('t', event=E{options})\n"
    [(line, text)] = problems(body)
    assert message in text
    assert line == 3


REGISTRY = '[schema_registry]\nurl = "http://127.0.0.1:8081"\n'
DATABASE = '[sinks.postgres]\nurl = "postgresql://db/stats"\n'
STORES = f'{DATABASE}[sinks.profiles]\nurl = "redis://127.0.0.1:1/0"\n'


@pytest.mark.parametrize(
    ("body", "message", "line"),
    [
        ("class E:\n    x: Any\nt = Topic('t', event=E, format=Avro())", "E.x is Any", 2),
        (
            (
                "class I:\n    x: dict[str, Any]\nclass E:\n    i: list[I]\n"
                "t = Topic('t', event=E, format=Avro())"
            ),
            "E.i[].x[] is Any, which Avro has no type for",
            2,
        ),
        (
            "class E:\n    prix_payé: int\nt = Topic('t', event=E, format=Avro())",
            "E.prix_payé is no name in Avro",
            2,
        ),
        (
            "class Événement:\n    x: int\nt = Topic('t', event=Événement, format=Avro())",
            "'Événement' is no name in Avro",
            3,
        ),
        ("t = Topic('t', format=Avro())", "format Avro() without an event class", 1),
        (
            "class E:\n    x: list[int] | None\nt = Topic('t', event=E, format=Protobuf())",
            "E.x can be null, which is an empty list in Protobuf",
            2,
        ),
        (
            "class E:\n    x: dict[str, int | None]\nt = Topic('t', event=E, format=Protobuf())",
            "E.x may hold null, which no map of Protobuf does",
            2,
        ),
        (
            (
                "class I:\n    x: list[list[int]]\nclass E:\n    i: list[I]\n"
                "t = Topic('t', event=E, format=Protobuf())"
            ),
            "E.i.x may hold lists, which no list of Protobuf does",
            2,
        ),
    ],
)
def test_an_event_that_its_format_can_not_hold_is_a_problem_at_its_own_line(
    problems, body, message, line
):
    head = HEAD.replace("import *\n", "import *\nfrom typing import Any\n", 1)
    [(found, text)] = problems(body + "\n", head=head, more=REGISTRY)
    assert message in text
    assert found == line


def test_an_avro_topic_needs_a_schema_registry(problems, write):
    body = "t = Topic('t', event=Click, format=Avro())\n"
    [(line, text)] = problems(body)
    assert "format Avro() without a schema registry" in text
    assert "[schema_registry]" in text
    assert line == 1
    assert write(body, more=REGISTRY).topics["t"].record_format == Avro()


def test_a_setting_that_a_sink_needs_is_asked_for(problems, write):
    body = "p = Pipeline('p', source=clicks, sink=Postgres('clicks'))\n"
    [(line, text)] = problems(body)
    assert "pipeline 'p': postgres clicks needs the setting 'url'" in text
    assert '[sinks.postgres] url = "..."' in text
    assert line == 1
    assert write(body, more=DATABASE).declared(Pipeline)["p"].sink.target == "clicks"


def test_a_server_that_a_sink_names_is_one_of_the_project(problems, write):
    body = "p = Pipeline('p', source=clicks, sink=Postgres('clicks', server='eu'))\n"
    servers = '[sinks.postgres.{}]\nurl = "postgresql://db/{}"\n'
    [(line, text)] = problems(body, more=servers.format("us", "us"))
    assert "Postgres.server is 'eu', and there is no [sinks.postgres.eu]" in text
    assert "one of us; or " in text
    assert line == 1
    declared = write(body, more=servers.format("eu", "eu")).declared(Pipeline)
    assert declared["p"].sink.label == "postgres clicks at eu"


def test_sources_without_steps_may_differ_in_what_makes_no_other_column(write):
    project = write("""\
        class I:
            at: EpochMillis
        class J:
            at: datetime | None
        class E:
            i: dict[str, I]
        class F:
            i: dict[str, J] | None
        e, f = Topic("e", event=E), Topic("f", event=F)
        p = Pipeline("p", source=[e, f], sink=Lake("t"))
        """)
    assert list(project.declared(Pipeline)) == ["p"]


NESTED = """\
class Owner:
    login: str
    born: {born}
    since: datetime

class Repo:
    full_name: str
    owner: Owner
    former: list[Owner]

class Push:
    repo: Repo
    at: datetime

pushes = Topic("pushes", event=Push, {options})
"""


def test_a_nested_field_without_a_column_type_is_a_problem_at_its_own_line(problems):
    found = problems(NESTED.format(born="complex", options=""))
    assert [line for line, _ in found] == [3, 3]
    assert "Push.repo.owner.born: <class 'complex'> has no column type" in found[0][1]
    assert "Push.repo.former[].born" in found[1][1]


@pytest.mark.parametrize(
    ("options", "line", "message"),
    [
        ("key='repo.name'", 15, "key 'repo.name' is not a field of Push"),
        ("key='repo.former.login'", 15, "key 'repo.former.login' is not a field of Push"),
        ("key='repo.owner.born'", 3, "Push.repo.owner.born is a date and can't be the key"),
        ("key='repo'", 12, "Push.repo is a struct and can't be the key"),
        ("event_time='repo.owner.since'", 4, "is nested and can't be the event_time"),
        ("event_id='repo.full_name', derive_event_id=True", 15, "can't fill the nested field"),
        ("partitioning=ByField('repo.owner')", 15, "partitioning by 'repo.owner', a struct"),
        ("partitioning=ByField('repo.owner.since')", 15, "by 'repo.owner.since', a timestamp"),
        ("partitioning=ByShard('repo.owner.born', {})", 15, "by 'repo.owner.born', a date"),
        ("partitioning=ByField('repo.x')", 15, "by 'repo.x', not a field of Push"),
    ],
)
def test_a_path_that_can_not_play_its_role_is_a_problem(problems, options, line, message):
    [(found, text)] = problems(NESTED.format(born="date", options=options), head=NESTED_HEAD)
    assert message in text
    assert found == line


NESTED_HEAD = HEAD.replace("from datetime import UTC", "from datetime import UTC, date")


def test_keys_ids_and_partitions_may_be_fields_of_nested_classes(write):
    options = "key='repo.full_name', event_id='repo.owner.login', event_time='at', "
    options += "partitioning=ByField('repo.owner.login')"
    project = write(NESTED.format(born="date", options=options), head=NESTED_HEAD)
    assert project.topics["pushes"].key == "repo.full_name"


def test_fields_of_a_nested_class_must_not_differ_in_case_only(problems):
    body = "class P:\n    x: int\n    X: int\nclass E:\n    p: list[P]\n"
    [(line, text)] = problems(body + "t = Topic('t', event=E)\n")
    assert (line, "E.p[].X differs from another field only in case" in text) == (3, True)


def test_every_field_without_a_column_type_is_named_and_the_wrong_key_too(problems):
    body = "class E:\n    tags: set[str]\n    n: int\n    more: dict[int, str]\n"
    found = problems(body + "t = Topic('t', event=E, key='id', event_time='more')\n")
    assert [line for line, _ in found] == [2, 4, 5]
    assert "E.tags" in found[0][1]
    assert "E.more" in found[1][1]
    assert "key 'id' is not a field of E" in found[2][1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ('"a/b", source=clicks, sink=Lake("t")', "not a pipeline name"),
        ('"p", source=clicks, sink=Lake("a/../b")', "not a table name"),
        ('"p", source="clicks", sink=Lake("t")', "source is 'clicks'"),
        ('"p", source=["clicks"], sink=Lake("t")', "not a Topic"),
        ('"p", source=[], sink=Lake("t")', "has no source"),
        ('"p", source=clicks, sink="t"', "sink is 't'"),
        ('"p", source=clicks, sink=Lake("t"), steps=[1]', "list of functions"),
        ('"p", source=clicks, sink=Lake("t"), steps=[lambda a, b: a]', "must take 1 DataFrame"),
        ('"p", source=clicks, sink=Lake("t", partition_by="day")', "list of column names"),
        ('"p", source=clicks, sink=Lake("t", partition_by=["country"])', "is not a column"),
        ('"p", source=clicks, sink=Lake("t", partition_by=["at"])', "can't name folders"),
        ('"p", source=clicks, sink=Lake("t", partition_by=["day", "day"])', "2 times"),
        ('"p", source=clicks, sink=Lake("t", event_time="price")', "is a double"),
        ('"p", source=clicks, sink=Lake("t", event_time="when")', "'when' is not a column"),
        ('"p", source=clicks, sink=Lake("t", compression="lzma")', "compression is 'lzma'"),
        ('"p", source=clicks, sink=Lake("t", compact_files=-1)', "compact_files is -1"),
        ('"p", source=clicks, sink=Lake("t"), limits=BatchLimits(max_records=0)', "max_records"),
        ('"p", source=clicks, sink=Lake("t"), limits=BatchLimits(max_bytes=-1)', "max_bytes"),
        (
            '"p", source=clicks, sink=Lake("t"), limits=BatchLimits(max_wait=timedelta(0))',
            "max_wait",
        ),
        (
            '"p", source=clicks, sink=Lake("t"), dead_letter_limit=DeadLetterLimit(max_ratio=2)',
            "from 0 to 1",
        ),
        ('"p", source=Source(clicks, subpartitions=0), sink=Lake("t")', "subpartitions is 0"),
        ('"p", source=Source(clicks, start="now"), sink=Lake("t")', "start is 'now'"),
        (
            '"p", source=Source(clicks, watermark=timedelta(hours=1)), sink=Lake("t")',
            "Source.watermark is for steps",
        ),
        ('"p", source=clicks, sink=Lake("t"), late_data="dead"', "late_data is 'dead'"),
        ('"p", source=clicks, sink=Lake("t"), allowed_lateness=5', "allowed_lateness is 5"),
        ('"p", source=clicks, sink=Lake("t"), late_data=Lake("t")', "the pipeline's own lake t"),
        ('"p", source=clicks, sink=Lake("t"), late_data=Lake("a/b")', "late_data: 'a/b' is not"),
        (
            '"p", source=Topic("raw"), sink=Lake("t"), late_data=LateData.DEAD_LETTER',
            "late_data needs the event time of topic 'raw'",
        ),
        (
            '"p", source=[clicks, Topic("w")], sink=Lake("t"), late_data=Lake("l"), steps=[print]',
            "the sources have different columns",
        ),
        (
            '"p", Source(clicks, watermark=TICK), Lake("t"), [print], late_data=Lake("l")',
            "before late_data takes what is 1:00:00 behind",
        ),
        (
            '"p", Source(clicks, watermark=timedelta(0)), Lake("t"), [print]',
            "Source.watermark of 'clicks' is datetime.timedelta(0): with a delay of 0",
        ),
        (
            '"p", [clicks, Topic("w")], Lake("t"), [lambda a, b: a], allowed_lateness=timedelta(0)',
            "allowed_lateness, the watermark's delay of several sources, is datetime.timedelta(0)",
        ),
        (
            '"p", Source(clicks, watermark=timedelta.max), Lake("t"), [print]',
            "too long for Spark (at most timedelta(days=365000))",
        ),
        (
            '"p", [clicks, Topic("w")], Lake("t"), [max], allowed_lateness=timedelta.max',
            "too long for Spark (at most timedelta(days=365000))",
        ),
        (
            '"p", clicks, Lake("t"), [count_windows(timedelta(1), within=timedelta(0))]',
            "count_windows.within is datetime.timedelta(0); it must be a timedelta above zero",
        ),
        (
            '"p", clicks, Lake("t"), [deduplicate(["id"], timedelta(days=8))]',
            "deduplicate.within 8 days, 0:00:00 is longer than topic 'clicks' keeps records",
        ),
        ('"p", source=Topic("loose"), sink=Lake("t")', "no module declares"),
        ('"p", source=Topic("clicks"), sink=Lake("t")', "another 'clicks' than is declared"),
        ('"p", source=[clicks, clicks], sink=Lake("t")', "2 times"),
    ],
)
def test_a_pipeline_that_could_not_run_is_a_problem_at_its_line(problems, arguments, message):
    found = problems(f"\np = Pipeline({arguments})")
    assert any(message in text for _, text in found), found
    assert {line for line, _ in found} == {2}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            """\
            t = Topic("t", event=Click)
            p = Pipeline("p", source=t, sink=Lake("t", partition_by=["hour"]))
            """,
            "there is no event time",
        ),
        (
            """\
            class E:
                at: EpochMillis
                day: str
            t = Topic("t", event=E, event_time="at")
            p = Pipeline("p", source=t, sink=Lake("t", partition_by=["day"]))
            """,
            "a field 'day'",
        ),
        (
            """\
            class E:
                at: EpochMillis
                HOUR: str
            t = Topic("t", event=E, event_time="at")
            p = Pipeline("p", source=t, sink=Lake("t", partition_by=["day", "hour"]))
            """,
            "a field 'HOUR', and 'hour' is the partition",
        ),
        (
            """\
            raw = Topic("raw")
            p = Pipeline("p", source=[clicks, raw], sink=Lake("t"))
            """,
            "different columns and no steps",
        ),
        (
            """\
            class I:
                x: int
            class J:
                x: str
            class E:
                i: list[I]
            class F:
                i: list[J]
            e = Topic("e", event=E)
            f = Topic("f", event=F)
            p = Pipeline("p", source=[e, f], sink=Lake("t"))
            """,
            "different columns and no steps",
        ),
        (
            """\
            p = Pipeline("p", source=clicks, sink=Lake("t"))
            q = Pipeline("q", source=clicks, sink=Lake("t", partition_by=["day"]))
            """,
            "table 't' is partitioned by ['day'] here and by []",
        ),
        (
            """\
            from headrace import Postgres, WriteMode
            p = Pipeline("p", source=clicks, sink=Postgres("t"))
            q = Pipeline("q", clicks, Postgres("public.t", WriteMode.UPSERT, ("id",)))
            """,
            "table 'public.t' is written by upsert here and by append in pipeline 'p'",
        ),
        (
            """\
            from datetime import timedelta
            from headrace import Latest, Profiles
            def users(**kept):
                return Profiles("users", key="id", ttl=timedelta(days=1), event_time="at", **kept)
            p = Pipeline("p", source=clicks, sink=users(forget=True))
            q = Pipeline("q", source=clicks, sink=users(lists={"views": Latest(3)}))
            r = Pipeline("r", source=clicks, sink=users(lists={"views": Latest(10)}))
            """,
            "store 'users' has 10 entries in 'views' here and 3 there in pipeline 'q'",
        ),
        (
            """\
            from headrace import Postgres
            t = Postgres("t")
            p = Pipeline("p", source=clicks, sink=t, late_data=Postgres("public.t"))
            """,
            "late_data is the pipeline's own postgres public.t",
        ),
        (
            """\
            p = Pipeline("p", source=clicks, sink=Lake("t"))
            q = Pipeline("p", source=clicks, sink=Lake("t"))
            """,
            "pipeline 'p' is already declared",
        ),
        (
            """\
            p = Pipeline("p", source=clicks, sink=Lake("t"))
            d = Topic("clicks.dead", event=Click)
            """,
            "takes the dead letters of 'clicks'",
        ),
    ],
)
def test_declarations_that_contradict_each_other_are_a_problem(problems, body, message):
    found = problems(body, more=STORES)
    assert message in found[0][1]
    assert found[0][0] == dedent(body).count("\n")


def test_an_import_that_fails_is_a_problem_at_the_line_of_the_users_file(problems):
    [(line, text)] = problems("def f():\n    return 1 / 0\nf()\n")
    assert (line, "ZeroDivisionError" in text) == (2, True)


def test_a_syntax_error_is_a_problem_at_its_line(problems):
    [(line, text)] = problems("x = (\ny = 1\n")
    assert "syntax error" in text
    assert line == 1


def test_modules_that_import_each_other_are_a_problem_at_the_import(tmp_path, problems):
    (tmp_path / "ring.py").write_text("from flow import clicks\n", encoding="utf-8")
    [(_, text)] = problems("", head=f"from ring import clicks\n{HEAD}")
    assert "circular import" in text
    assert "ring.py:1" in text


def test_a_module_that_exits_is_a_problem(problems):
    [(line, text)] = problems("import sys\nsys.exit(7)\n")
    assert (line, "SystemExit" in text) == (2, True)


def test_a_missing_module_is_a_problem_of_the_project_file(problems):
    [(_, text)] = problems("", modules='["flows.ads"]')
    assert "headrace.toml:3" in text
    assert "there is no module 'flows.ads'" in text


def test_a_module_named_as_one_of_pythons_own_is_a_problem(problems):
    [(_, text)] = problems("", modules='["queue"]')
    assert "one of Python's own" in text


def test_a_project_that_declares_nothing_is_a_problem(problems):
    [(_, text)] = problems("", head="x = 1\n")
    assert "no Topic, Pipeline, Worker, Mirror, Merger, Dispatcher or StandingQueries" in text
    assert "give one to a variable there" in text


def test_what_a_module_prints_does_not_reach_stdout(write, capsys):
    write('print("hello")\n')
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "hello\n")


def test_projects_with_modules_of_the_same_name_are_told_apart(tmp_path, write):
    found = []
    for name in ("a", "b", "a"):
        root = tmp_path / name
        root.mkdir(exist_ok=True)
        (root / "headrace.toml").write_text('[project]\nname = "x"\nmodules = ["flow"]\n')
        (root / "flow.py").write_text(f"import headrace\nt = headrace.Topic({name!r})\n")
        found += load_project(load_settings(root, {})).topics
    assert found == ["a", "b", "a"]


UPSERTS = {
    "Postgres('t', WriteMode.UPSERT, ('id',))": "source=clicks",
    "Postgres('t', WriteMode.UPSERT, ('campaign', 'id'))": "source=Source(clicks, min_tasks=8)",
    "Postgres('t', WriteMode.UPSERT, ('campaign',))": "source=by_campaign",
    "Postgres('t', WriteMode.UPSERT, ('price',), newest_by='at')": "source=[clicks, more]",
}
UNORDERED_UPSERTS = {
    "another key": "source=clicks, sink=Postgres('t', WriteMode.UPSERT, ('campaign',))",
    "two sources": "source=[clicks, more], sink=Postgres('t', WriteMode.UPSERT, ('id',))",
    "steps": "source=clicks, steps=[keep], sink=Postgres('t', WriteMode.UPSERT, ('id',))",
    "anywhere": "source=anywhere, sink=Postgres('t', WriteMode.UPSERT, ('id',))",
    "hash": "source=by_hash, sink=Postgres('t', WriteMode.UPSERT, ('id',))",
    "no key": "source=keyless, sink=Postgres('t', WriteMode.UPSERT, ('id',))",
    "late": "source=clicks, sink=Lake('t'), late_data=Postgres('t', WriteMode.UPSERT, ('id',))",
    "join": (
        "source=Join(clicks, more, on=('id', 'id'), column='other', within=TICK, wait=TICK),"
        " sink=Postgres('t', WriteMode.UPSERT, ('id',))"
    ),
}
UPSERT_TOPICS = """\
def topic(name, **declared):
    return Topic(name, event=Click, event_time="at", retention=timedelta(days=7), **declared)
def keep(rows): return rows
more, keyless = topic("more", key="id"), topic("keyless")
anywhere = topic("anywhere", key="id", partitioning=Random())
by_campaign = topic("by-campaign", key="id", partitioning=ByField("campaign"))
by_hash = topic("by-hash", key="id", partitioning=ByHash(("id",), timedelta(hours=1)))
"""


@pytest.mark.parametrize("case", UNORDERED_UPSERTS)
def test_an_upsert_needs_newest_by_where_the_last_row_of_a_key_is_not_known(problems, case):
    body = f"{UPSERT_TOPICS}p = Pipeline('p', {UNORDERED_UPSERTS[case]})\n"
    texts = [text for _, text in problems(body, more=DATABASE)]
    assert len([text for text in texts if "needs newest_by" in text]) == 1, texts


@pytest.mark.parametrize("sink", UPSERTS)
def test_an_upsert_by_the_key_of_one_topic_has_a_last_row(write, sink):
    body = f"{UPSERT_TOPICS}p = Pipeline('p', {UPSERTS[sink]}, sink={sink})\n"
    assert write(body, more=DATABASE).declared(Pipeline)["p"].sink.table == "t"


def test_a_declaration_that_another_one_of_its_name_replaces_is_no_problem(write):
    project = write("""\
        from dataclasses import replace
        def loose(): return Topic("loose", event=Click)
        many = replace(loose(), partitions=3)
        many = replace(many, partitions=6)
        p = Pipeline("p", source=replace(loose(), partitions=6), sink=Lake("t"))
        """)
    assert project.topics["loose"].partitions == 6


def test_steps_hide_the_columns_so_only_the_sinks_own_words_are_checked(write):
    project = write("""\
        def enrich(rows): return rows
        p = Pipeline("p", source=clicks, sink=Lake("t", partition_by=["anything"]), steps=[enrich])
        """)
    assert project.declared(Pipeline)["p"].path.kind == "spark"


def test_declaring_imports_no_spark(tmp_path):
    (tmp_path / "headrace.toml").write_text('[project]\nname = "a"\nmodules = ["flow"]\n')
    (tmp_path / "flow.py").write_text(HEAD)
    script = dedent(f"""\
        import sys
        from pathlib import Path
        from headrace.project.check import load_project
        from headrace.settings import load_settings
        load_project(load_settings(Path({str(tmp_path)!r}), {{}}))
        assert not any(name.startswith(("pyspark", "py4j")) for name in sys.modules)
        """)
    subprocess.run([sys.executable, "-c", script], check=True)


THREE_BROKERS = "[kafka.embedded]\nbrokers = 3\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ('replication=3, config={"min.insync.replicas": "4"}', "more copies in sync than there"),
        ('config={"max.message.bytes": "99999999"}', "above the 67108864"),
    ],
)
def test_settings_that_can_not_work_together_are_a_problem(problems, arguments, message):
    [(line, text)] = problems(f't = Topic("t", event=Click, {arguments})', more=THREE_BROKERS)
    assert line == 1
    assert message in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("replication=3", "confirmed by one broker alone"),
        ('replication=2, config={"min.insync.replicas": "2"}', "while any broker is down"),
        ("retention=timedelta(hours=2)", "segment.ms is 7 days"),
        ('config={"retention.ms": "7200000"}', "segment.ms is 7 days"),
        ('key="id", compaction=True', "is compacted, but its open segment is not"),
    ],
)
def test_settings_that_work_until_something_breaks_are_a_warning(write, arguments, message):
    project = write(f't = Topic("t", event=Click, {arguments})', more=THREE_BROKERS)
    (warning,) = project.warnings
    assert warning.line == HEAD.count("\n") + 1
    assert message in warning.message
    assert warning.remedy


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        'replication=3, config={"min.insync.replicas": "2"}',
        'retention=timedelta(hours=2), config={"segment.ms": "7200000"}',
        "retention=timedelta(days=7)",
        'key="id", compaction=True, config={"segment.ms": "3600000"}',
    ],
)
def test_settings_that_add_up_are_no_warning(write, arguments):
    assert write(f't = Topic("t", event=Click, {arguments})', more=THREE_BROKERS).warnings == ()


def test_topics_read_together_with_different_partition_counts_are_a_warning(write):
    project = write("""\
        other = Topic("other", event=Click, key="id", event_time="at", partitions=3)
        def join(left, right): return left
        p = Pipeline("p", source=[clicks, other], steps=[join], sink=Lake("p"))
        """)
    (warning,) = project.warnings
    assert "clicks 1, other 3" in warning.message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ('partitioning=ByField("nothing")', "by 'nothing', not a field of Click"),
        ('partitioning=ByHash(("id",), timedelta(hours=1))', "windows without an event time"),
        (
            'event_time="at", partitioning=ByAccount(timedelta(0))',
            "by a window of 0:00:00",
        ),
        ('partitioning=ByShard("id", {"a": 1})', "names partition 1 of 1"),
        (
            """event_time="at", partitions=2, partitioning=ByAccount(
            timedelta(hours=1), {"a": (Spread(datetime(2026, 1, 1, tzinfo=UTC), 3),)})""",
            "names partition 2 of 2",
        ),
        (
            """event_time="at", partitioning=ByAccount(
            timedelta(hours=1), {"a": (Spread(datetime(2026, 1, 1), 1),)})""",
            "without a time zone",
        ),
        (
            """event_time="at", partitioning=ByAccount(timedelta(hours=1), {"a": (
            Spread(datetime(2026, 2, 1, tzinfo=UTC), 1),
            Spread(datetime(2026, 1, 1, tzinfo=UTC), 1))})""",
            "not in the order of their since",
        ),
        (
            """event_time="at", partitioning=ByAccount(timedelta(hours=1), account="nothing")""",
            "by 'nothing', not a field of Click",
        ),
        (
            """event_time="at", partitioning=ByAccount(timedelta(hours=1), account="price")""",
            "by 'price', a double",
        ),
        (
            """event_time="at", partitioning=ByAccount(timedelta(hours=1), account=7)""",
            "account is 7",
        ),
        (
            """event_time="at", partitioning=ByAccount(timedelta(hours=1), lead=60)""",
            "lead is 60",
        ),
        (
            """event_time="at", partitioning=ByAccount(timedelta(hours=1), lead=timedelta(1))""",
            "has a lead of 1 day, 0:00:00, and events may be 1 day, 0:00:00 ahead of time",
        ),
        ('partitioning="by-key"', "'by-key' is no strategy"),
        ('event_time="at", partitioning=ByHash(("id",), 60)', "window is 60"),
        ('event_time="at", partitioning=ByHash((), timedelta(hours=1))', "fields is ()"),
        ('partitioning=ByShard("id", [0])', "shards is [0]"),
        ('partitioning=ByShard("id", {1: 0})', "shards has the key 1, and 'id' is str"),
        (
            'event_time="at", partitioning=ByHash(("id", "price"), timedelta(hours=1))',
            "by 'price', a double",
        ),
    ],
)
def test_a_partitioning_that_can_not_be_is_a_problem(problems, arguments, message):
    [(line, text)] = problems(f't = Topic("t", event=Click, {arguments})')
    assert line == 1
    assert message in text


@pytest.mark.parametrize("key", ["1", True])
def test_keys_of_shards_are_of_the_type_of_their_field(problems, key):
    shards = f"ByShard('n', {{0: 0, {key!r}: 0}})"
    body = f"class E:\n    n: int\nt = Topic('t', event=E, partitioning={shards})\n"
    [(_, text)] = problems(body)
    assert f"shards has the key {key!r}, and 'n' is int" in text


def test_a_condition_of_profiles_that_no_event_meets_is_found(problems):
    body = (
        "from datetime import datetime, timedelta\n"
        "from typing import Literal\n"
        "class View:\n"
        "    user: str\n"
        "    kind: Literal['view', 'click']\n"
        "    at: datetime\n"
        "views = Topic('views', event=View, event_time='at')\n"
        "users = Profiles('u', key='user', ttl=timedelta(days=1), forget={'kind': 'veiw'})\n"
        "p = Pipeline('p', views, users)\n"
    )
    texts = [text for _, text in problems("from headrace import Profiles\n" + body)]
    assert any("Profiles.forget: 'kind' is never 'veiw' " in text for text in texts), texts


def test_client_settings_of_what_is_not_declared_are_refused_with_a_near_name(problems, write):
    body = "@worker(topic=clicks)\ndef bidder(record): ...\n"
    table = "[workers.{}.kafka.consumer]\nfetch.min.bytes = 1000\n"
    assert write(body, more=table.format("bidder")).settings.clients
    [(_, message)] = problems(body, more="\n" + table.format("biddr"))
    assert "headrace.toml:5: workers.biddr: no worker 'biddr' is declared" in message
    assert "did you mean 'bidder'?" in message
    [(_, message)] = problems(body, more="[mirrors.bidder.kafka.consumer]\n")
    assert "mirrors.bidder: no mirror 'bidder' is declared (declared: none)" in message


SITED = "@worker(topic=clicks, site={!r}, on_failure=DeadLetters())\ndef bidder(record): ...\n"


@pytest.mark.parametrize(
    ("site", "message"),
    [
        (
            "wav",
            (
                "worker 'bidder' reads at site 'wav', which headrace.toml has not "
                "(declared: central, waw; or add [sites.wav.kafka])"
            ),
        ),
        (7, "worker 'bidder': site is 7 (the name of a site)"),
    ],
)
def test_a_worker_reads_at_a_site_that_is_there(problems, site, message):
    [(_, problem)] = problems(SITED.format(site), more="[sites.waw.kafka]\n")
    assert message in problem


ONCE = "from headrace import Guarantee\n" + SITED.replace("site", "guarantee=Guarantee.{}, site")


def test_a_worker_that_is_exactly_once_at_another_site_is_refused(problems):
    [(_, problem)] = problems(ONCE.format("EXACTLY_ONCE", "waw"), more="[sites.waw.kafka]\n")
    assert "worker 'bidder' is exactly once and reads at site 'waw'" in problem


@pytest.mark.parametrize(("guarantee", "site"), [("EXACTLY_ONCE", ""), ("AT_LEAST_ONCE", "waw")])
def test_a_worker_has_a_guarantee_where_its_site_gives_it(write, guarantee, site):
    assert write(ONCE.format(guarantee, site), more="[sites.waw.kafka]\n")


@pytest.mark.parametrize(("site", "topics"), [("", {"clicks"}), ("waw", set())])
def test_apply_creates_no_dead_letters_for_a_worker_that_reads_elsewhere(write, site, topics):
    project = write(SITED.format(site), more="[sites.waw.kafka]\n")
    assert project.dead_lettered.keys() == topics


CLIENTS = """
[project]
name = "shop"
modules = {modules}
[workers.enrch.kafka.producer]
acks = "1"
"""
ENRICH = """
from headrace import Topic, worker

orders = Topic("orders")

@worker(topic=orders)
def enrich(order):
    pass
"""


def checked(folder, modules, flow):
    (folder / "headrace.toml").write_text(CLIENTS.format(modules=modules))
    (folder / "flow.py").write_text(flow)
    return invoke("check", "--project", folder, code=2).output


def test_a_name_that_nothing_has_is_shown_together_with_what_it_sets_wrongly(tmp_path):
    shown = checked(tmp_path, '["flow"]', ENRICH)
    assert "acks" in shown
    assert "no worker 'enrch' is declared" in shown
    assert "did you mean 'enrich'?" in shown


@pytest.mark.parametrize(("modules", "flow"), [('"flow"', ENRICH), ('["flow"]', "import nothing_")])
def test_names_are_not_compared_with_declarations_that_are_not_known(tmp_path, modules, flow):
    shown = checked(tmp_path, modules, flow)
    assert "acks" in shown
    assert "enrch" not in shown.replace("workers.enrch.kafka", "")
