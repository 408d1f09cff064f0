"""The example in the README is a project that checks, as it stands there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Pipeline
from headrace.project.check import load_project
from headrace.project.loaded import LoadedProject
from headrace.settings import load_settings

MAX_EXAMPLE = 20


@pytest.fixture
def example(pages: dict[str, str]) -> str:
    """The first Python block of the README."""
    return pages["README.md"].partition("```python\n")[2].partition("```")[0]


@pytest.fixture
def project_folder(example: str, tmp_path: Path) -> Path:
    """A project whose one module is the example."""
    (tmp_path / "headrace.toml").write_text('[project]\nname = "shop"\nmodules = ["flow"]\n')
    (tmp_path / "flow.py").write_text(example)
    return tmp_path


@pytest.fixture
def project(project_folder: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedProject:
    """The example, loaded and checked."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    return load_project(load_settings(project_folder, {}))


def test_the_example_declares_a_topic_and_a_pipeline_on_the_fused_path(
    project: LoadedProject,
) -> None:
    assert project.topics["orders"].partitions == 4
    assert project.declared(Pipeline)["orders-to-lake"].path.kind == "fused"


def test_the_example_has_twenty_lines_of_code(example: str) -> None:
    assert len([line for line in example.splitlines() if line.strip()]) <= MAX_EXAMPLE


def test_the_example_imports_no_spark(project_folder: Path) -> None:
    """Declaring is a matter of milliseconds: neither JVM nor Spark's Python part is touched."""
    script = "import flow, sys; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], cwd=project_folder, check=True)


def test_its_figures_are_those_that_were_measured(pages: dict[str, str], root: Path) -> None:
    rows = json.loads((root / "bench/results.json").read_text())["rows"]
    measured = {
        (row["system"], row["metric"]): row["median"]
        for row in rows
        if row["benchmark"] == "writer-peers" and row["threads"] == 2
    }
    told = re.findall(r"^\| ([a-z-]+) \| ([\d,]+) \| ([\d.]+) \|", pages["README.md"], re.MULTILINE)
    assert {system for system, _, _ in told} == {system for system, _ in measured}
    for system, speed, cpu in told:
        expected = measured[system, "messages_per_second"]
        assert abs(int(speed.replace(",", "")) - expected) <= 500, system
        assert abs(float(cpu) - measured[system, "cpu_seconds_per_million"]) <= 0.051, system
