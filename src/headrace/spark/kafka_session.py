"""A Spark session with Spark's own Kafka source and sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.runtime.files.cache import cache_folder
from headrace.runtime.java.installation import find_java
from headrace.runtime.java.jars import download_notice, fetch
from headrace.settings import Settings
from headrace.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JARS = "spark-kafka"
# Certificates and logins of Kafka's Java client are options of Spark's source and sink.
_REDACTED = "(?i)secret|password|token|access[.]?key|jaas|keystore"


def jars_notice(environ: Mapping[str, str]) -> str:
    """Returns which jars the first session of a user fetches, in words; empty: they are there."""
    return download_notice(_JARS, "Spark's Kafka source and sink", cache_folder(environ))


@contextmanager
def kafka_session(
    settings: Settings, name: str, environ: Mapping[str, str], master: str = ""
) -> Iterator[SparkSession]:
    """A session for as long as the context lasts.

    Args:
        settings: the project's deployment.
        name: what it is for.
        environ: of this process.
        master: of Spark; by default that of the project.

    Raises:
        JarError: if a jar can't be downloaded.
        JavaMissingError: if there is no Java.
    """
    java = find_java(environ)
    jars = fetch(_JARS, java, cache=cache_folder(environ), on_progress=lambda *_: None)
    config = dict(settings.spark.config)
    own_jars = filter(None, [config.get("spark.jars", ""), *(jar.as_uri() for jar in jars)])
    config["spark.jars"] = ",".join(own_jars)
    config.setdefault("spark.sql.redaction.options.regex", _REDACTED)
    # What a dispatcher sent before a start is in a plan, whose text Spark would keep of each batch.
    config.setdefault("spark.sql.maxPlanStringLength", "10000")
    config.setdefault("spark.sql.ui.retainedExecutions", "1")
    # Otherwise each function of a column looks up which line of ours has called it.
    config.setdefault("spark.python.sql.dataFrameDebugging.enabled", "false")
    spark = start_session(
        f"headrace {name}",
        replace(settings.spark, config=config),
        master=master or settings.spark.master,
        java=java.environ(),
        state=settings.state,
    )
    try:
        yield spark
    finally:
        spark.stop()
