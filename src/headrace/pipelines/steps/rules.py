"""Checks what steps make of several sources, by Spark's plan of them: nothing runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headrace.errors import ExtraMissingError, JavaUnavailableError, Problem, StepError
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.transforms.transform import Transform
from headrace.runtime.extras import require_extra
from headrace.settings import PROJECT_FILE, LedgerSettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_START = "`headrace run` checks it before the first batch"


@dataclass(frozen=True)
class StepFindings:
    """What Spark's plans of steps show.

    Attributes:
        problems: joins and watermarks that `run` would refuse, with file and line of the step.
        warnings: steps that could not be looked at, and why.
    """

    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def has_unseen_joins(pipeline: Pipeline) -> bool:
    """Returns whether steps of the project's own get several sources, so may join them."""
    is_own = (not isinstance(step, Transform) for step in pipeline.steps)
    return len(pipeline.sources) > 1 and pipeline.join is None and any(is_own)


def check_steps(
    settings: Settings, pipelines: Iterable[Pipeline], environ: Mapping[str, str]
) -> StepFindings:
    """Starts Spark on this machine, plans the steps that may join sources, and stops it.

    Spark is started only if there are such steps. It connects to nothing, but the steps are called:
    what they do beside the plan is done.

    Args:
        settings: the project's deployment.
        pipelines: valid by themselves.
        environ: environment that says where Java is.
    """
    joining = [pipeline for pipeline in pipelines if has_unseen_joins(pipeline)]
    if not joining:
        return StepFindings()
    from headrace.runtime.java.installation import find_java

    try:
        require_extra("spark")
        java = find_java(environ)
    except (ExtraMissingError, JavaUnavailableError) as error:
        problems = (_unseen(settings, pipeline, str(error)) for pipeline in joining)
        return StepFindings(warnings=tuple(problems))
    from headrace.spark.session import start_session

    spark = start_session(
        f"headrace check {settings.name}",
        settings.spark,
        master="local[1]",
        java=java.environ(),
        state=settings.state,
    )
    try:
        return planned_steps(spark, settings, joining)
    finally:
        spark.stop()


def planned_steps(
    spark: SparkSession, settings: Settings, pipelines: Iterable[Pipeline]
) -> StepFindings:
    """Plans the steps of pipelines in a session.

    A step that raises is a warning: it may need what only the machine has that runs it.
    """
    problems, warnings = [], []
    for pipeline in pipelines:
        try:
            _plan(spark, settings, pipeline)
        except StepError as error:
            if error.__cause__ is not None:
                warnings.append(_unseen(settings, pipeline, error.problem, error))
            else:
                problems.append(_problem(settings, pipeline, error.problem, "", error))
    return StepFindings(tuple(problems), tuple(warnings))


def _plan(spark: SparkSession, settings: Settings, pipeline: Pipeline) -> None:
    from headrace.pipelines.rows import RunContext, load, source_spec, stepped_rows

    context = RunContext(
        lake=settings.lake,
        client={},
        sinks={},
        state=settings.state,
        registry=settings.schema_registry,
        ledger=LedgerSettings(enabled=False),
    )
    specs = [source_spec(pipeline, source, context, "", None) for source in pipeline.sources]
    stepped_rows(pipeline, specs, partial(load, spark))


def _unseen(
    settings: Settings, pipeline: Pipeline, why: str, error: StepError | None = None
) -> Problem:
    return _problem(settings, pipeline, f"its steps could not be planned: {why}", _AT_START, error)


def _problem(
    settings: Settings, pipeline: Pipeline, message: str, remedy: str, error: StepError | None
) -> Problem:
    file, _, line = ("" if error is None else error.at).rpartition(":")
    step = "" if error is None else f", step {error.step!r}"
    where = file or str(settings.root / PROJECT_FILE)
    at = int(line) if line else 1
    return Problem(where, at, f"pipeline {pipeline.name!r}{step}: {message}", remedy)
