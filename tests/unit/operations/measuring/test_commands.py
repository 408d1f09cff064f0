"""Which declaration is measured, before anything is asked of a broker."""

import pytest
from tests.in_process import invoke

FLOW = """
from headrace import Lake, Pipeline, Topic, worker

class Click:
    user: str

clicks = Topic("clicks", event=Click, key="user")
views = Topic("views", event=Click, key="user")

@worker(topic=clicks, name="clicks")
async def enrich(click: Click) -> None: ...

to_lake = Pipeline("to-lake", clicks, Lake("clicks"))
"""
FILE = '[project]\nname = "ads"\nmodules = ["measured_flow"]\n'


@pytest.fixture
def measure(tmp_path, monkeypatch):
    (tmp_path / "measured_flow.py").write_text(FLOW)
    (tmp_path / "headrace.toml").write_text(FILE)

    def run(*words):
        return invoke("measure", *words, "--project", tmp_path, code=2).output

    return run


def test_a_name_of_several_declarations_needs_to_be_chosen(measure):
    assert "'clicks' is a worker and a producer; --as says which" in measure("clicks")


def test_another_name_is_rejected_with_those_that_there_are(measure):
    error = measure("to-lakes")
    assert "no worker or pipeline or producer 'to-lakes'; declared: clicks, to-lake" in error
    assert "did you mean 'to-lake'?" in error
    assert "no pipeline 'clicks'; declared: to-lake" in measure("clicks", "--as", "pipeline")


def test_the_folder_of_the_result_must_exist(measure, tmp_path):
    path = tmp_path / "missing" / "enrich.json"
    assert f"there is no folder {path.parent}" in measure("to-lake", "-o", path).replace("\n", " ")
