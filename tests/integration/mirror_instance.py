"""An instance of a mirror as a process of its own, to be killed or frozen."""

import json
import os
import signal
import sys
from dataclasses import asdict

from headrace.kafka.group.group_member import GroupMember
from headrace.links.copying.instance import CopyInstance
from headrace.links.mirror.plan import MirrorPlan
from headrace.links.source_reader import SourceReader

RUNS, BEFORE_METADATA, BEFORE_OFFSETS = "runs", "before-metadata", "before-offsets"


def arguments(link: MirrorPlan, freezes: str = RUNS) -> list[str]:
    """Arguments of Python's that run an instance, until SIGTERM.

    ``freezes``: it stops itself once, as by SIGSTOP, before it asks for its metadata in the group,
    or before it adds its offsets to a transaction.
    """
    return ["-m", "tests.integration.mirror_instance", json.dumps(asdict(link)), freezes]


class FrozenMember(GroupMember):
    frozen = False

    def metadata(self):
        if not FrozenMember.frozen:
            FrozenMember.frozen = True
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().metadata()


class FrozenReader(SourceReader):
    frozen = False

    def check_topics(self, ids):
        super().check_topics(ids)
        if not FrozenReader.frozen:
            FrozenReader.frozen = True
            os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    from headrace.links import instance as transfer
    from headrace.links.copying import carrier

    link, freezes = MirrorPlan(**json.loads(sys.argv[1])), sys.argv[2]
    if freezes == BEFORE_METADATA:
        transfer.GroupMember = FrozenMember
    if freezes == BEFORE_OFFSETS:
        carrier.SourceReader = FrozenReader
    found = CopyInstance(link)
    signal.signal(signal.SIGTERM, lambda *_: found.stop())
    found.run(lambda _: None)
