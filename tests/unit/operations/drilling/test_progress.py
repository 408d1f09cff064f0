"""How long something stood still, by the times when it did not."""

import pytest

from headrace.model import TopicPartition
from headrace.operations.drilling.progress import Progress, longest_gap
from headrace.pipelines.status import PipelineStatus
from headrace.runtime.prometheus import MetricsServer
from headrace.service.status import StatusFolder


@pytest.mark.parametrize(
    ("times", "gap"),
    [
        ([], 10.0),
        ([10.0, 12.0, 19.0], 7.0),
        ([11.0, 12.0], 8.0),
        ([15.0, 5.0, 25.0], 5.0),
    ],
)
def test_the_longest_gap_is_within_the_bounds_and_includes_them(times, gap):
    assert longest_gap(times, 10.0, 20.0) == gap


def test_a_batch_is_progress_and_a_new_driver_is_none(tmp_path):
    folder, progress = StatusFolder(tmp_path, PipelineStatus), Progress(tmp_path, [])

    def look(rows_in):
        folder.write(PipelineStatus("to-lake").after(rows_in=rows_in))
        before = len(progress.times["to-lake", None])
        progress.look()
        return len(progress.times["to-lake", None]) - before

    assert [look(rows) for rows in (0, 5, 5, 0, 3, 9)] == [0, 1, 0, 0, 1, 1]


def test_a_partition_that_starts_over_is_no_progress_until_it_is_further(tmp_path):
    name = "headrace_worker_partition_processing_offset"
    labels = 'instance="a-1",partition="2",topic="clicks",worker="enrich"'
    subject, moved = ("enrich", TopicPartition("clicks", 2)), []
    server = MetricsServer("127.0.0.1", 0)
    progress = Progress(tmp_path, [server.port])
    for offset in (5, 3, 4, 5, 6):
        server.publish(f"# HELP {name} the first\n{name}{{{labels}}} {offset}\nother 1\n")
        before = len(progress.times[subject])
        progress.look()
        moved.append(len(progress.times[subject]) > before)
    server.close()
    progress.look()
    assert moved == [True, False, False, False, True]


def test_all_subjects_must_have_moved(tmp_path):
    progress = Progress(tmp_path, [])
    subjects = [("enrich", TopicPartition("clicks", number)) for number in range(2)]
    progress.times[subjects[0]] = [10.0, 20.0]
    assert not progress.has_moved(subjects, 15.0)
    progress.times[subjects[1]] = [14.0, 17.0]
    assert progress.has_moved(subjects, 15.0)
    assert not progress.has_moved(subjects, 18.0)
    assert progress.longest_gap(subjects, 10.0, 20.0) == 10.0
