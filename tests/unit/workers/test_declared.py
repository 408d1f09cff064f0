"""What a project's workers declare, and every problem with them, by file and line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from headrace import Worker
from headrace.errors import ProjectError
from headrace.operations.planning.plan import make_plan
from headrace.project.check import load_project, project_topics
from headrace.project.loaded import LoadedProject
from headrace.settings import load_settings

HEAD = """\
from datetime import timedelta
from headrace import *

clicks = Topic("clicks", partitions=4)

class Task(WorkerTask):
    async def process(self, record):
        pass
"""


@pytest.fixture
def write(tmp_path: Path):
    """Write a project of one module and load it."""

    def load(body: str) -> LoadedProject:
        (tmp_path / "headrace.toml").write_text('[project]\nname = "ads"\nmodules = ["flow"]\n')
        (tmp_path / "flow.py").write_text(HEAD + dedent(body), encoding="utf-8")
        return load_project(load_settings(tmp_path, {}))

    return load


@pytest.fixture
def problems(write):
    """(line, message) of every problem; line 1 is the first after HEAD."""

    def find(body: str) -> list[tuple[int, str]]:
        with pytest.raises(ProjectError) as raised:
            write(body)
        before = HEAD.count("\n")
        return [(one.line - before, str(one)) for one in raised.value.problems]

    return find


def test_workers_are_found_as_values_and_as_decorated_functions(write):
    project = write("""\
        a = Worker("a", clicks, Task)

        @worker(topic=clicks, subpartitions=64)
        async def look_up(record, send):
            pass

        rest = [Worker("b", [clicks], lambda: Task(), partitioner=RoundRobin(8))]
        """)
    assert list(project.declared(Worker)) == ["a", "look-up", "b"]
    assert project.declared(Worker)["look-up"].consumer_group == "headrace.look-up"


def test_a_problem_of_a_decorated_function_is_at_its_decorator(problems):
    body = """\
        x = 1

        @worker(topic=clicks, queue_bytes=0)
        def copy(record):
            pass
        """
    [(line, text)] = problems(body)
    assert line == 3
    assert "Worker.queue_bytes is 0" in text


def test_all_problems_of_all_workers_come_at_once(problems):
    found = problems("""\
        a = Worker("a b", clicks, Task, parallelism=0)
        b = Worker("b", Topic("loose"), Task)
        """)
    assert [line for line, _ in found] == [1, 1, 2, 2]  # no variable has the topic, either


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ('"a/b", clicks, Task', "'a/b' is not a worker name"),
        ("7, clicks, Task", "worker name 7 is not text"),
        ('"w", "clicks", Task', "topic is 'clicks'"),
        ('"w", [], Task', "has no topic"),
        ('"w", [clicks, clicks], Task', "reads topic 'clicks' 2 times"),
        ('"w", Topic("loose"), Task', "reads 'loose', which no module declares"),
        ('"w", Topic("clicks"), Task', "another 'clicks' than is declared"),
        ('"w", clicks, Task()', "task is <"),
        ('"w", clicks, dict', "dict is not a WorkerTask"),
        ('"w", clicks, WorkerTask', "WorkerTask does not define process"),
        ('"w", clicks, BatchWorkerTask', "BatchWorkerTask does not define process_batch"),
        ('"w", clicks, lambda name: Task()', "callable without arguments"),
        ('"w", clicks, Task, partitioner="keys"', "partitioner is 'keys'"),
        ('"w", clicks, Task, partitioner=OneToOne', "partitioner is <class"),
        ('"w", clicks, Task, partitioner=KeyHash(0)', "KeyHash.subpartitions is 0"),
        ('"w", clicks, Task, partitioner=None', "partitioner is None"),
        ('"w", clicks, Task, on_failure="skip"', "on_failure is 'skip'"),
        ('"w", clicks, Task, on_failure=Retry(attempts=0)', "Retry.attempts is 0"),
        ('"w", clicks, Task, on_failure=Retry(then=Retry())', "Retry.then is Retry("),
        (
            '"w", clicks, Task, on_failure=Retry(first_delay=-timedelta(1))',
            "Retry.first_delay is",
        ),
        ('"w", clicks, Task, on_failure=RetryTopics(delays=())', "RetryTopics.delays is ()"),
        (
            '"w", clicks, Task, on_failure=RetryTopics(delays=(timedelta(0),))',
            "RetryTopics.delays holds datetime.timedelta(0)",
        ),
        ('"w" * 100, Topic("c" * 200), Task, on_failure=RetryTopics()', "retries: topic name of"),
        (
            '"w", clicks, Task, on_failure=DeadLetters(DeadLetterLimit(max_ratio=2))',
            "from 0 to 1",
        ),
        ('"w", clicks, Task, on_failure=DeadLetters(5)', "DeadLetters.limit is 5"),
        ('"w", clicks, Task, processing_timeout=timedelta(0)', "Worker.processing_timeout is"),
        ('"w", clicks, Task, punctuate_every=60', "Worker.punctuate_every is 60"),
        ('"w", clicks, Task, commit_every=timedelta(0)', "Worker.commit_every is"),
        ('"w", clicks, Task, drain_timeout=-timedelta(1)', "Worker.drain_timeout is"),
        ('"w", clicks, Task, batch_records=0', "Worker.batch_records is 0"),
        ('"w", clicks, Task, config=[1]', "config is [1]"),
        ('"w", clicks, Task, version=2', "version is 2"),
        ('"w", clicks, Task, group=7', "group is 7"),
        ('"w", clicks, Task, guarantee="once"', "guarantee is 'once'"),
        ('"w", clicks, Task, lifespan=7', "lifespan is 7"),
    ],
)
def test_a_worker_that_could_not_run_is_a_problem_at_its_line(problems, arguments, message):
    found = problems(f"\nw = Worker({arguments})")
    assert any(message in text for _, text in found), found
    assert {line for line, _ in found} == {2}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("async def f(): pass", "f takes neither the event nor the record"),
        ("async def f(record, producer): pass", "f takes producer"),
        ("async def f(event, producer): pass", "f takes producer"),
        ("async def f(event: str): pass", "f takes event: str, and topic 'clicks' holds bytes"),
        ("async def f(record, shared): pass", "f takes shared, and nothing is shared"),
        ("class f(WorkerTask):\n    async def process(self): pass", "has other parameters"),
        (
            "class f(Task):\n    def __init__(self, name): pass\n",
            "f can't be made without arguments",
        ),
    ],
)
def test_a_task_that_could_not_be_called_is_a_problem(problems, body, message):
    is_class = body.startswith("class")
    make = 'w = Worker("w", clicks, f)' if is_class else "w = worker(topic=clicks)(f)"
    found = problems(f"\n{body}\n{make}\n")
    assert any(message in text for _, text in found), found


@pytest.mark.parametrize(
    ("count", "message"),
    [("0", "counts 0 subpartitions"), ("1 / 0", "ZeroDivisionError"), ("'64'", "counts '64'")],
)
def test_a_partitioner_of_ones_own_is_asked_how_many_it_counts(problems, count, message):
    [(line, text)] = problems(f"""\
        class Own:
            def subpartition(self, record): return 0
            def count(self, partition): return {count}
        w = Worker("w", clicks, Task, partitioner=Own())
        """)
    assert message in text
    assert line == 4


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('a = Worker("p", clicks, Task)\nb = Worker("p", clicks, Task)', "is already declared"),
        (
            'a = Pipeline("p", source=clicks, sink=Lake("t"))\nb = Worker("p", clicks, Task)',
            "worker 'p' is already declared as a pipeline",
        ),
        ("@worker(clicks)\ndef f(record): pass", "TypeError"),
    ],
)
def test_names_are_unique_among_what_reads_topics(problems, body, message):
    found = problems(body)
    assert message in found[0][1]


CLASSES = """\
class Click: user: str
class View: page: str
both = [Topic("a", event=Click), Topic("b", event=View)]
"""


def test_an_event_may_be_annotated_with_the_classes_of_several_topics(write):
    project = write(CLASSES + "@worker(topic=both)\nasync def f(event: Click | View): pass\n")
    assert list(project.declared(Worker)) == ["f"]


def test_an_event_that_is_annotated_with_another_class_is_a_problem(problems):
    [(line, text)] = problems(CLASSES + "@worker(topic=both)\nasync def f(event: Click): pass\n")
    assert "f takes event: Click, and topic 'b' holds View" in text
    assert line == 4


def test_a_lifespan_without_its_decorator_is_a_problem(problems):
    [(_, text)] = problems("""\
        async def lifespan(config): yield
        w = Worker("w", clicks, Task, lifespan=lifespan)
        """)
    assert "contextlib.asynccontextmanager" in text


def test_two_readers_of_one_consumer_group_are_a_problem(problems):
    [(line, text)] = problems("""\
        a = Worker("a", clicks, Task)
        b = Worker("b", clicks, Task, group="headrace.a")
        """)
    assert "'b' has the consumer group of 'a'" in text
    assert line == 2


def test_dead_letter_topics_of_workers_are_created_where_they_may_be_needed(write):
    project = write("""\
        a = Worker("a", clicks, Task)
        views = Topic("views")
        b = Worker("b", views, Task, on_failure=Retry())
        """)
    assert [one.name for one in project_topics(project)] == ["clicks", "views", "views.dead"]


def test_the_plan_says_how_records_are_worked_on(write):
    project = write("""\
        views = Topic("views")
        a = Worker("a", [clicks, views], Task, partitioner=KeyHash(64), on_failure=Retry())
        b = Worker("b", clicks, Task)
        """)
    first, second = make_plan(project).workers
    assert (first.topics, first.partitions, first.lanes) == (("clicks", "views"), 5, 320)
    assert first.on_failure == "5 attempts in place, then the record is a dead letter"
    assert (second.lanes, second.on_failure) == (4, "the instance stops")


def test_declaring_a_worker_imports_neither_spark_nor_a_kafka_client(tmp_path):
    head = HEAD.replace("import *", "import Topic, Worker, WorkerTask")
    (tmp_path / "flow.py").write_text(head + 'w = Worker("w", clicks, Task)\n')
    script = "import flow, sys; sys.exit(bool({'pyspark', 'confluent_kafka'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)


REFERENCES = """\
class Account:
    plan: str

accounts = Topic("accounts", event=Account, compaction=True, config={"segment.ms": "3600000"})
"""


def test_a_compacted_topic_without_a_key_may_be_a_reference_of_a_worker(write):
    project = write(
        REFERENCES
        + dedent("""\
        names = Topic("names", retention=timedelta(days=30))

        @worker(topic=clicks, references={"accounts": accounts, "names": names})
        async def look_up(record, accounts: References[Account], names: References[bytes]):
            pass
        """)
    )
    assert [*project.declared(Worker)["look-up"].references] == ["accounts", "names"]


@pytest.mark.parametrize(
    ("references", "parameters", "problem"),
    [
        ("[accounts]", "record", "references is [Topic("),
        ("{'accounts': 7}", "record", "reference 'accounts' is 7"),
        ("{7: accounts}", "record", "the name of a reference is 7"),
        ("{'record': accounts}", "record", "'record' is not a name of a reference"),
        ("{'my accounts': accounts}", "record", "'my accounts' is not a name of a reference"),
        ("{'accounts': accounts}", "record", "look_up does not take its reference 'accounts'"),
        (
            "{'accounts': accounts}",
            "record, accounts: References[int]",
            "look_up takes accounts: References[int], and topic 'accounts' holds Account",
        ),
        (
            "{'accounts': accounts}",
            "record, accounts: dict",
            "look_up takes accounts: dict, and topic 'accounts' holds Account",
        ),
        (
            "{'plain': Topic('plain')}",
            "record, plain",
            "looks values up in 'plain', which no module declares",
        ),
        (
            "{'clicks': clicks}",
            "record, clicks",
            "reference 'clicks' is not compacted, and declares no retention",
        ),
        (
            "{'accounts': accounts}, reference_bytes=0",
            "record, accounts",
            "reference_bytes is 0",
        ),
    ],
)
def test_what_can_not_be_a_reference_is_named(problems, references, parameters, problem):
    body = f"""
@worker(topic=clicks, references={references})
async def look_up({parameters}):
    pass
"""
    assert any(problem in message for _, message in problems(REFERENCES + body))
