"""Environments with headrace from its wheel and nothing but what an extra of it requires.

Fetching every extra again would take minutes and a network. So the wheel is built and installed by
pip into an empty environment, which the others link it from; each distribution that it requires for
the extra, and what that one requires in turn, is linked from the environment of the tests. Whatever
is not required cannot be imported there.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path, PurePath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def build_wheel(folder: Path) -> Path:
    """Builds the wheel of this checkout into ``folder``."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*command, "--directory", folder], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True)
class BareEnvironment:
    """An environment: its folder, and the distributions that headrace requires in it."""

    folder: Path
    required: dict[str, Distribution]

    @property
    def headrace(self) -> Path:
        """The installed command."""
        return self.folder / "bin" / "headrace"

    @property
    def installed_bytes(self) -> int:
        """What pip writes for headrace and all that it requires."""
        own = _installed_headrace(self.folder)
        return sum(
            file.size or 0
            for package in (own, *self.required.values())
            for file in package.files or ()
            if not _is_compiled(file)
        )

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs the command, to its end."""
        return subprocess.run(
            [self.headrace, *arguments], capture_output=True, text=True, check=False
        )

    def python(self, code: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Runs code with ``given`` as its standard input, to its end."""
        command = [self.folder / "bin" / "python", "-c", code]
        return subprocess.run(command, input=given, capture_output=True, text=True, check=False)


def install_wheel(folder: Path, wheel: Path) -> BareEnvironment:
    """Makes an environment in ``folder`` with ``wheel`` and what it requires without an extra."""
    venv.create(folder, with_pip=False, symlinks=True)
    command = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"]
    command += ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*command, wheel], check=True)
    return _with_required(folder, ())


def add_extras(base: BareEnvironment, folder: Path, extras: Collection[str]) -> BareEnvironment:
    """Makes an environment in ``folder`` with headrace of ``base``, and what ``extras`` require."""
    venv.create(folder, with_pip=False, symlinks=True)
    _link(_installed_headrace(base.folder), _site(folder))
    command = folder / "bin" / "headrace"
    command.write_text(base.headrace.read_text().replace(str(base.folder), str(folder)))
    command.chmod(0o755)
    return _with_required(folder, extras)


def _with_required(folder: Path, extras: Collection[str]) -> BareEnvironment:
    required = dict(_required(_installed_headrace(folder), {"", *extras}))
    for package in required.values():
        _link(package, _site(folder))
    return BareEnvironment(folder, required)


def _site(folder: Path) -> Path:
    (site,) = folder.glob("lib/python*/site-packages")
    return site


def _installed_headrace(folder: Path) -> Distribution:
    (headrace,) = distributions(name="headrace", path=[str(_site(folder))])
    return headrace


def _required(start: Distribution, extras: Collection[str]) -> Iterator[tuple[str, Distribution]]:
    waiting = [(start, frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requiring, chosen = waiting.pop()
        for requirement in map(Requirement, requiring.requires or ()):
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": extra}) for extra in chosen):
                continue
            name = canonicalize_name(requirement.name)
            following = name, frozenset({"", *requirement.extras})
            if following in seen:
                continue
            seen.add(following)
            required = start if name == "headrace" else distribution(name)
            waiting.append((required, following[1]))
            if required is not start:
                yield name, required


def _link(package: Distribution, site: Path) -> None:
    """Links what lies at the top of its files, except commands and compiled modules."""
    files = (file for file in package.files or () if not _is_compiled(file))
    for top in {_top(package, file) for file in files if file.parts[0] != ".."}:
        link = site / top
        link.parent.mkdir(exist_ok=True)
        if not link.exists():  # of a part of `google` that several packages have
            link.symlink_to(str(package.locate_file(top)))


def _top(package: Distribution, file: PurePath) -> PurePath:
    """Returns the top of a file, within a folder that packages share, such as `google`."""
    first = Path(str(package.locate_file(file.parts[0])))
    is_shared = (
        first.is_dir() and first.name.isidentifier() and not (first / "__init__.py").exists()
    )
    return PurePath(*file.parts[: 2 if is_shared else 1])


def _is_compiled(file: PurePath) -> bool:
    return "__pycache__" in file.parts
