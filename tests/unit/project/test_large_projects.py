"""Projects of many modules and declarations."""

import ast

import pytest

from headrace.project import declarations
from headrace.project.check import load_project
from headrace.settings import load_settings

PART = """
from shared import *

@worker(topic=topics[{number}])
def enrich_{number}(record):
    pass
"""


@pytest.mark.parametrize("modules", [2, 80])
def test_each_module_is_parsed_once_and_each_declaration_is_taken_once(
    tmp_path, monkeypatch, modules
):
    """So the work grows with a project's modules and declarations, however it shares them."""
    names = ["shared", *(f"part_{number}" for number in range(modules))]
    (tmp_path / "headrace.toml").write_text(f'[project]\nname = "ads"\nmodules = {names!r}\n')
    topics = f'topics = [Topic(f"topic-{{n}}") for n in range({modules})]\n'
    (tmp_path / "shared.py").write_text(f"from headrace import Topic, worker\n{topics}")
    for number in range(modules):
        (tmp_path / f"part_{number}.py").write_text(PART.format(number=number))
    parsed, taken = [], []
    parse, kind_of = ast.parse, declarations.kind_of
    with monkeypatch.context() as patched:  # until the assertions, which parse their module
        patched.setattr(ast, "parse", lambda text: parsed.append(text) or parse(text))
        patched.setattr(
            declarations, "kind_of", lambda value: taken.append(value) or kind_of(value)
        )
        project = load_project(load_settings(tmp_path, {}))
    assert len(project.values) == len(taken) == 2 * modules
    texts = sorted(file.read_text() for file in tmp_path.glob("*.py"))
    assert sorted(text for text in parsed if text in texts) == texts
