"""What users are shown imports public names only: examples, the template, pages."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import headrace
import headrace.testing
import headrace.workers

_PUBLIC = {
    module.__name__: {*module.__all__, "__version__"}
    for module in (headrace, headrace.workers, headrace.testing)
}


def test_examples_and_the_template_import_public_names_only(root: Path) -> None:
    files = [
        *(file for file in (root / "examples").rglob("*.py") if ".headrace" not in file.parts),
        *(root / "src/headrace/operations/template").rglob("*.py"),
    ]
    assert len(files) > 10
    private = [
        f"{file.relative_to(root)}: {name}"
        for file in files
        for name in _private(file.read_text(encoding="utf-8"))
    ]
    assert not private


def test_pages_import_public_names_only(blocks: Callable[[str], list]) -> None:
    texts = [(block.page, block.text) for block in blocks("python")]
    texts += [
        (block.page, program)
        for shell in ("sh", "bash")
        for block in blocks(shell)
        for program in _programs(block.text)
    ]
    assert len(texts) > 10
    assert not [f"{page}: {name}" for page, text in texts for name in _private(text)]


def test_a_private_name_is_noticed() -> None:
    assert list(_private("from headrace import Topic, kafka")) == ["headrace.kafka"]
    assert list(_private("from headrace.kafka.client.clients import producer")) == [
        "headrace.kafka.client.clients"
    ]
    assert list(_private("import headrace.kafka")) == ["headrace.kafka"]
    assert list(_private("import headrace\nheadrace.kafka.client.producer()")) == ["headrace.kafka"]
    assert not list(_private("import headrace\nheadrace.Project.open()"))
    assert not list(_private("from headrace.workers import worker\nimport polars"))
    assert list(_programs("python -c \"import a\"\npython - <<'END'\nimport b\nEND\n")) == [
        "import a",
        "import b\n",
    ]


def _private(text: str) -> Iterator[str]:
    """Names of headrace that a program uses and that are not public."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if _is_ours(module):
                public = _PUBLIC.get(module)
                if public is None:
                    yield module
                else:
                    yield from (
                        f"{module}.{alias.name}" for alias in names if alias.name not in public
                    )
            case ast.Import(names=names):
                modules = {alias.name for alias in names if _is_ours(alias.name)}
                yield from sorted(modules - _PUBLIC.keys())
            case ast.Attribute(value=ast.Name(id="headrace"), attr=attribute):
                name = f"headrace.{attribute}"
                if attribute not in _PUBLIC["headrace"] and name not in _PUBLIC:
                    yield name


def _is_ours(module: str) -> bool:
    return module == "headrace" or module.startswith("headrace.")


def _programs(shell: str) -> Iterator[str]:
    """Python programs inside shell commands."""
    yield from (rest.partition('"')[0] for rest in shell.split('python -c "')[1:])
    if "<<'END'\n" in shell:
        yield shell.partition("<<'END'\n")[2].partition("END\n")[0]
