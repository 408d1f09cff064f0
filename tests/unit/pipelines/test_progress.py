from headrace.pipelines.progress import PipelineProgress, PipelineState, StatusFolder


def test_progress_written_is_progress_read(tmp_path):
    folder = StatusFolder(tmp_path / "status")
    progress = PipelineProgress("p", rows_in=7, idle_partitions=("t[0]",)).after(
        state=PipelineState.RUNNING
    )
    folder.write(progress)
    assert folder.read() == [progress]


def test_a_pipeline_that_ended_is_final():
    assert PipelineProgress("p", state=PipelineState.REFUSED).final
    assert not PipelineProgress("p", state=PipelineState.RESTARTING).final


def test_a_torn_status_is_left_out(tmp_path):
    folder, progress = StatusFolder(tmp_path), PipelineProgress("p")
    folder.write(progress)
    (tmp_path / "q.json").write_bytes(b"")
    assert folder.read() == [progress]
