from headrace.ledger.sums import Fate, Hop, Sums
from headrace.model import DeadLetter, OffsetRange, TopicPartition
from headrace.pipelines.ledger.sums import LedgerKey, LedgerLine
from headrace.pipelines.source import staging as staging_module
from headrace.pipelines.source.report import RangeReport
from headrace.pipelines.source.staging import Staging, StepReport, driver_staging
from headrace.storage import files as storage

CLICKS = TopicPartition("clicks", 0)


def report(start, end):
    return RangeReport(OffsetRange(CLICKS, start, end), end, end - start, 1, 0, ())


def test_reports_of_the_planned_ranges_are_taken_in_order(tmp_path):
    staging = Staging(str(tmp_path))
    for one in (report(20, 30), report(10, 20), report(30, 40)):
        staging.put(one)
    assert staging.take([OffsetRange(CLICKS, 10, 30)]) == [report(10, 20), report(20, 30)]
    staging.clear()
    assert staging.take([OffsetRange(CLICKS, 10, 30)]) == []


def test_a_start_deletes_only_what_its_own_project_folder_has_left(tmp_path):
    """Two checkouts, or machines, with one lake: the reports of a live run are not in the way."""
    lake = str(tmp_path / "lake")
    mine, theirs = (driver_staging(lake, "p", tmp_path / name) for name in ("mine", "theirs"))
    assert driver_staging(lake, "p", tmp_path / "mine") == mine
    for folder in (mine, theirs):
        Staging(storage.join(folder, "run")).put(report(0, 10))
    storage.delete(driver_staging(lake, "p", tmp_path / "mine"))
    whole = [OffsetRange(CLICKS, 0, 10)]
    assert Staging(storage.join(mine, "run")).take(whole) == []
    assert Staging(storage.join(theirs, "run")).take(whole) == [report(0, 10)]


def test_a_project_folder_whose_id_is_torn_has_a_new_one(tmp_path):
    """Without an id its folder would be that of all drivers, and a start deletes it."""
    lake, state = str(tmp_path / "lake"), tmp_path / "mine"
    state.mkdir()
    (state / "driver").touch()
    mine = driver_staging(lake, "p", state)
    assert mine.removeprefix(storage.join(lake, "_headrace", "staging", "p")).strip("/")
    assert driver_staging(lake, "p", state) == mine


def test_reports_of_steps_are_those_of_their_batch_and_of_the_last_attempt(tmp_path):
    staging = Staging(str(tmp_path))

    def left(number):
        place = LedgerKey(Hop.STEPS, Fate.FILTERED, 0, "clicks", 0)
        lines = (LedgerLine(place, Sums(number, number, 2**64 - number)),)
        letter = DeadLetter(TopicPartition("clicks", -1), -1, "old", str(number), None, b"{}")
        return StepReport(lines, (letter,), number)

    staging.put(report(20, 30))
    staging.put_step(1, "0-4-0", left(3))
    staging.put_step(1, "0-4-0", left(5))
    staging.put_step(1, "0-4-1", left(7))
    staging.put_step(11, "0-4-0", left(9))
    steps = staging.take_steps(1)
    assert sorted(line.sums.number for line in steps.lines) == [5, 7]
    assert sorted(letter.detail for letter in steps.behind) == ["5", "7"]
    assert steps.omitted == 5 + 7
    assert staging.take_steps(11) == left(9)
    assert staging.take([OffsetRange(CLICKS, 20, 30)]) == [report(20, 30)]
    staging.clear()
    assert staging.take_steps(1) == StepReport()
    assert list(tmp_path.iterdir()) == []


def test_letters_of_steps_beyond_the_room_of_the_driver_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(staging_module, "MAX_BATCH_BYTES", 100)
    staging = Staging(str(tmp_path))
    letter = DeadLetter(TopicPartition("clicks", -1), -1, "old", "", None, b"x" * 30)
    for task in range(4):
        staging.put_step(1, f"0-4-{task}", StepReport(behind=(letter,) * 2))
    steps = staging.take_steps(1)
    assert sum(len(each.value) for each in steps.behind) <= 100 + 30
    assert len(steps.behind) + steps.omitted == 8
