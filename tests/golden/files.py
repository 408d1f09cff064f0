"""Golden files: what users, their programs and stored data rely on, as text that is compared.

``GOLDEN=rewrite`` writes the files instead of comparing them; the commit then shows what changes
for users. CI never sets it.
"""

from __future__ import annotations

import ast
import json
import os
import pprint
from collections.abc import Iterable
from pathlib import Path

FILES = Path(__file__).parent / "files"
_WIDTH = 120


def golden(path: str, text: str) -> None:
    """Compares ``text`` with the golden file ``path`` below ``files``."""
    file = FILES / path
    text = text.rstrip("\n") + "\n"
    is_same = file.exists() and _says_the_same(path, text, file.read_text(encoding="utf-8"))
    if _is_rewritten() and not is_same:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return
    assert file.exists(), f"{file} is missing: {_REMEDY}"
    assert is_same, f"{path} differs: {_REMEDY}"


def _says_the_same(path: str, text: str, known: str) -> bool:
    # The order of members says nothing in JSON.
    return json.loads(text) == json.loads(known) if path.endswith(".json") else text == known


def golden_folder(folder: str, texts: dict[str, str]) -> None:
    """Compares a folder of golden files, by their paths in it; it has no other file."""
    if _is_rewritten():
        for name in _names(folder) - texts.keys():
            (FILES / folder / name).unlink()
    for name, text in texts.items():
        golden(f"{folder}/{name}", text)
    assert _names(folder) == texts.keys()


def written(value: object) -> str:
    """Returns plain Python values as text: what is stored, with its bytes readable."""
    return pprint.pformat(value, width=_WIDTH, sort_dicts=False) + "\n"


def kept_samples(name: str, sample: str) -> list[object]:
    """Returns everything that was ever written of a stored format, the oldest first.

    Samples are never rewritten: ``GOLDEN=rewrite`` adds a file where the newest sample differs.

    Args:
        name: of the format.
        sample: what is written now, as of :func:`written`.
    """
    folder = FILES / "stored"
    files = sorted(folder.glob(f"{name}.[0-9].txt"))
    if _is_rewritten() and (not files or files[-1].read_text(encoding="utf-8") != sample):
        folder.mkdir(parents=True, exist_ok=True)
        files.append(folder / f"{name}.{len(files) + 1}.txt")
        files[-1].write_text(sample, encoding="utf-8")
    assert files, f"stored/{name}.1.txt is missing: {_REMEDY}"
    texts = [file.read_text(encoding="utf-8") for file in files]
    assert sample == texts[-1], f"{files[-1].name} differs: {_REMEDY}"
    return [ast.literal_eval(text) for text in texts]


def stored_names() -> Iterable[str]:
    """Returns the names of the formats of which samples are kept."""
    return {file.name.partition(".")[0] for file in (FILES / "stored").iterdir()}


_REMEDY = "if the change is meant, CONTRIBUTING.md says how to change a golden file"


def _is_rewritten() -> bool:
    return os.environ.get("GOLDEN") == "rewrite"


def _names(folder: str) -> set[str]:
    top = FILES / folder
    return {str(file.relative_to(top)) for file in top.rglob("*") if file.is_file()}
