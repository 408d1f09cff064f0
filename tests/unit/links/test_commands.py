"""Commands of links: what is the same for all kinds, and what each kind refuses."""

import pytest
from tests.in_process import invoke

FLOW = """
from headrace import Dispatcher, Merger, Mirror, Topic
clicks, warsaw, merged, late = map(Topic, ("clicks", "waw.clicks", "merged", "late"))
mirror = Mirror("m", "waw", {"clicks": warsaw})
merger = Merger("merge", (clicks, warsaw), merged, late)
dispatcher = Dispatcher("d", clicks, {"waw": "x"})
"""
FILE = """
[project]
name = "demo"
modules = ["linked_flow"]
[kafka]
bootstrap_servers = "127.0.0.1:1"
[sites.waw.kafka]
bootstrap_servers = "127.0.0.1:1"
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("mirror accept m views/0", "m does not mirror 'views': clicks"),
        ("mirror accept m clicks/0 --to -1", "-1 is not in the range x>=0"),
        ("merger accept merge merged/0", "merge does not merge 'merged': clicks, waw.clicks"),
        ("dispatcher accept d par clicks/0", "d does not dispatch to 'par': waw"),
        ("dispatcher accept d waw views/0", "d does not read 'views': clicks"),
        ("dispatcher run d --site par", "d does not dispatch to 'par': waw"),
        ("merger run clicks", "no merger 'clicks'; declared: merge"),
        ("mirror run merge", "'merge' is a merger: `headrace merger` has its commands"),
    ],
)
def test_a_command_names_what_a_link_has(tmp_path, words, message):
    (tmp_path / "headrace.toml").write_text(FILE)
    (tmp_path / "linked_flow.py").write_text(FLOW)
    done = invoke(*words.split(), "--project", tmp_path, code=2)
    assert message in " ".join(done.output.replace("│", " ").split())
