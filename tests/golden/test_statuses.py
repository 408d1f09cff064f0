"""How services look from outside: metrics, status files, and ``headrace status --json``."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.golden import statuses
from tests.golden.files import FILES, golden, golden_folder
from tests.golden.metrics import EXPOSITIONS, sorted_metrics
from tests.golden.status_files import write_and_read

from headrace.cli import main
from headrace.runtime.servers.process import SeenProcess
from headrace.settings import Settings

_FOLDER = "status-files"


@pytest.fixture(autouse=True)
def moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ages are those of the moment in which the statuses were written."""
    monkeypatch.setattr(time, "time", lambda: statuses.NOW_MS / 1000)
    # Where the system does not say which process it is, the files do not either.
    monkeypatch.setattr(SeenProcess, "current", lambda: None)


def test_metrics_of_every_kind_of_service() -> None:
    golden_folder(
        "metrics", {f"{kind}.txt": sorted_metrics(text()) for kind, text in EXPOSITIONS.items()}
    )


def test_status_files(tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, name="shop", modules=(), lake="")
    for written, read in write_and_read(settings):
        assert read == written
    files = (path for path in settings.state.rglob("*") if path.is_file())
    texts = {str(path.relative_to(settings.state)): path.read_text() + "\n" for path in files}
    golden_folder(_FOLDER, texts)


def test_status_in_json(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text(
        '[project]\nname = "shop"\nmodules = ["shop"]\nlake = "/lake"\n\n'
        '[kafka]\nbootstrap_servers = "kafka:9092"\n'
    )
    shutil.copytree(FILES / _FOLDER, tmp_path / ".headrace")
    result = CliRunner().invoke(main, ["status", "--json", "--project", str(tmp_path)])
    assert result.exit_code == 0, result.output
    golden("json/status.json", json.dumps(json.loads(result.stdout), indent=1))
