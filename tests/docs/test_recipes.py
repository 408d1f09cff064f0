"""Python on the pages: each declaration has a name, and the recipes are a project that checks."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from headrace import Pipeline
from headrace.project.check import load_project
from headrace.settings import load_settings

DECLARING = frozenset(
    {"Topic", "Pipeline", "Worker", "Mirror", "Merger", "Dispatcher", "StandingQueries"}
)


def _unnamed(block: str) -> list[str]:
    statements = ast.parse(block).body
    calls = [node.value for node in statements if isinstance(node, ast.Expr)]
    return [
        ast.unparse(call)
        for call in calls
        if isinstance(call, ast.Call) and ast.unparse(call.func) in DECLARING
    ]


def test_each_declaration_of_a_page_has_a_name(blocks) -> None:
    python = blocks("python")
    assert python
    unnamed = {block.page: calls for block in python if (calls := _unnamed(block.text))}
    assert unnamed == {}


def test_the_recipes_are_a_project_that_checks(
    blocks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = [block.text for block in blocks("python") if block.page == "docs/recipes.md"]
    (tmp_path / "headrace.toml").write_text(
        '[project]\nname = "shop"\nmodules = ["recipes"]\n'
        '[sinks.postgres]\nurl = "postgresql://127.0.0.1/shop"\n'
        '[sinks.opensearch]\nurl = "http://127.0.0.1:9200"\n'
        '[sinks.bigquery]\nproject = "shop"\ndataset = "views"\n'
    )
    (tmp_path / "recipes.py").write_text("\n\n".join(recipes))
    monkeypatch.setattr(sys, "path", list(sys.path))
    project = load_project(load_settings(tmp_path, {}))
    assert len(project.declared(Pipeline)) == sum(text.count(" = Pipeline(") for text in recipes)
    assert "readers" in project.topics
