"""Functions of a project on a machine that is not in UTC."""

import json
import os
import subprocess
import sys

# Clocks go back in New York between the first two; the third is of the day before there.
TIMES = ["2025-11-02 05:30:00", "2025-11-02 06:30:00", "2025-07-01 01:00:00"]

THROUGH_PYTHON = """
import json, sys, time
from datetime import datetime
from pathlib import Path

from headrace.spark.session import start_session
from headrace.settings import SparkSettings

folder, java, times = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
spark = start_session("zones", SparkSettings(), master="local[1]", java=java, state=folder)
from pyspark.sql import functions as F

given = spark.createDataFrame([(datetime.fromisoformat(at),) for at in times], "at timestamp")
text = F.date_format(F.udf(lambda at: at, "timestamp")("at"), "yyyy-MM-dd HH:mm:ss")
day = F.udf(lambda at: at.date(), "date")("at")
rows = given.select("at", F.expr("string(at)").alias("given"), text.alias("same"), day.alias("day"))
found = {"driver": time.tzname[0]}
for row in rows.collect():
    for name, value in row.asDict().items():
        found.setdefault(name, []).append(str(value))
print(json.dumps(found))
spark.stop()
"""


def test_a_python_function_of_a_step_sees_utc(java, tmp_path):
    arguments = [str(tmp_path), json.dumps(java.environ()), json.dumps(TIMES)]
    done = subprocess.run(
        [sys.executable, "-c", THROUGH_PYTHON, *arguments],
        env=os.environ | {"TZ": "America/New_York"},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "driver": "UTC",
        "at": TIMES,
        "given": TIMES,
        "same": TIMES,
        "day": [at[:10] for at in TIMES],
    }
