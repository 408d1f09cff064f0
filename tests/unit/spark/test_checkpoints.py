"""Which manager of checkpoint files a query is started with."""

from types import SimpleNamespace

import pytest

from headrace.spark.checkpoints import start_query

NAME = "spark.sql.streaming.checkpointFileManagerClass"


class Session:
    """What a query is started with; ``own`` are the settings that the user chose."""

    def __init__(self, own):
        self.settings = dict(own)
        self.sparkContext = SimpleNamespace(
            getConf=lambda: SimpleNamespace(contains=own.__contains__)
        )
        self.conf = SimpleNamespace(
            set=self.settings.__setitem__, unset=lambda name: self.settings.pop(name, None)
        )

    def option(self, name, value):
        assert name == "checkpointLocation"
        return SimpleNamespace(
            start=lambda: (value, self.settings.get(NAME, "").rpartition(".")[2])
        )


@pytest.mark.parametrize(
    ("checkpoint", "manager"),
    [
        ("file:///lake/_checkpoints/clicks", "FileSystemBasedCheckpointFileManager"),
        ("hdfs://name:8020/lake/_checkpoints/clicks", ""),
        ("s3a://lake/_checkpoints/clicks", ""),
    ],
)
def test_files_of_this_machine_are_renamed_without_a_process(checkpoint, manager):
    session = Session({})
    for other in ("file:///other", "hdfs://other/"):
        start_query(session, session, other)
        assert start_query(session, session, checkpoint) == (checkpoint, manager)


@pytest.mark.parametrize("folder", ["/a b", "/50%", "/%41", "/a#b?", "/a:b", "/ünï", "/[a]{b}*"])
def test_a_path_is_named_as_it_is(folder):
    session = Session({})
    assert start_query(session, session, folder)[0] == f"file://{folder}"


def test_what_the_user_chose_stays():
    session = Session({NAME: "com.example.Manager"})
    assert start_query(session, session, "file:///lake") == ("file:///lake", "Manager")
    assert start_query(session, session, "hdfs://lake/") == ("hdfs://lake/", "Manager")
