"""Writes rows 0, 1, 2 and so on into a table of BigQuery, from where its record stands.

bigquery_driver.py ENDPOINT STORAGE_ENDPOINT TABLE ROWS
"""

import sys
import time
from uuid import uuid4

from headrace import BigQuery
from headrace.errors import SinkError
from headrace.settings import Secret
from headrace.sinks.api import SinkContext, Transaction
from headrace.testing.sink_lab import row, schema, table

BATCH = 10


def written(driver, ids):
    """What two tasks do."""
    pieces = []
    for part in (ids[::2], ids[1::2]):
        writer = driver.writers(uuid4().hex)
        assert writer.write(table([row(number) for number in part])) == []
        pieces += writer.close()
    return pieces


def write_all(sink, context, rows):
    driver = sink.open(context, schema())
    at = driver.positions.versions(["at"]).get("at")
    while (at or 0) < rows:
        ids = range(at or 0, min((at or 0) + BATCH, rows))
        driver.commit(written(driver, ids), Transaction({"at": ids[-1] + 1}, {"at": at}), 0)
        at = ids[-1] + 1


def main():
    endpoint, storage_endpoint, name, rows = sys.argv[1:]
    settings = {
        "project": Secret("tests"),
        "dataset": Secret("ads"),
        "endpoint": Secret(endpoint),
        "storage_endpoint": Secret(storage_endpoint),
    }
    context = SinkContext("p", "unused", {}, settings, event_time="at")
    while True:
        try:
            write_all(BigQuery(name), context, int(rows))
        except SinkError as error:  # as a pipeline that starts again
            sys.stdout.write(f"{error}\n")
            sys.stdout.flush()
            time.sleep(0.1)
        else:
            return


main()
