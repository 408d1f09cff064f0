"""What instances on this machine tell others of."""

from headrace.control.status_folders import refused_now
from headrace.mirror.status import MirrorStatus
from headrace.transfer.status import TransferState, TransferStatusFolder


def test_only_what_running_instances_of_a_mirror_refuse_is_refused_now(tmp_path):
    folder = TransferStatusFolder(tmp_path, MirrorStatus)
    for instance, name, state, refused in (
        ("a", "warsaw", TransferState.RUNNING, {"clicks/0": "too large"}),
        ("b", "warsaw", TransferState.WAITING, {"clicks/1": "a time ahead"}),
        ("c", "warsaw", TransferState.STOPPED, {"clicks/2": "too large"}),
        ("d", "gdansk", TransferState.RUNNING, {"clicks/3": "too large"}),
    ):
        folder.write(MirrorStatus(name, state, instance, refused=refused))
    assert refused_now(folder, "warsaw") == {"clicks/0": "too large", "clicks/1": "a time ahead"}
