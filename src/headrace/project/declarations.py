"""Finds what the modules of a project declare, with file and line."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.machinery
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.errors import Problem
from headrace.model import Topic, declaring_class
from headrace.model.declared import DeclaredValue, MadeDeclaration, noted_declarations
from headrace.project.kind import Declaration
from headrace.project.kinds import kind_of
from headrace.project.modules import own_modules
from headrace.runtime.extras import extra_of
from headrace.settings import PROJECT_FILE, Settings
from headrace.settings.document import key_lines


def find_declarations(settings: Settings) -> tuple[list[Declaration[Any]], list[Problem]]:
    """Imports the project's modules; returns their declarations, and what is wrong with them.

    An import may have failed, or have made a declaration that no variable of these modules names.

    The project's folder is put first on ``sys.path`` and stays there, because a step may import
    when it runs. What the modules print goes to stderr: stdout may be JSON.
    """
    _make_importable(settings.root)
    modules: list[ModuleType] = []
    problems: list[Problem] = []
    with noted_declarations() as made:
        for name in settings.modules:
            imported = _import(name, settings)
            if isinstance(imported, Problem):
                problems.append(imported)
            else:
                modules.append(imported)
    own = own_modules(settings.root, sys.modules.copy())
    if not problems:  # it is unknown what a module that failed would have named
        problems += _ignored(made, modules, own)
    return _declared_by(modules, own), problems


def _ignored(
    made: list[MadeDeclaration], modules: list[ModuleType], own: Mapping[str, ModuleType]
) -> list[Problem]:
    """Returns declarations that code of the project has made and no variable of ``modules`` has.

    A topic is its value, so one that equals a named one is named. A topic of a module that the
    project does not list is not used: no reader may have it.
    """
    listed = {id(value) for module in modules for value in _values(vars(module).values())}
    homes = {
        id(value): name for name, module in own.items() for value in _values(vars(module).values())
    }
    values = [declaration.value for declaration in made]
    topics = [value for value in values if isinstance(value, Topic) and id(value) in homes]
    replaced: set[int] = set()
    problems: list[Problem] = []
    for declaration in reversed(made):  # what `replace` has made of one comes after it
        value = declaration.value
        home = homes.get(id(value))
        is_named = id(value) in listed or id(value) in replaced or value in topics
        if is_named or home is not None:
            replaced.add(id(declaration.replaced))
        if not is_named and declaration.module in own:
            problems.append(_ignored_problem(declaration, home))
    return problems[::-1]


def _ignored_problem(declaration: MadeDeclaration, home: str | None) -> Problem:
    value, kind = declaration.value, type(declaration.value).__name__
    if home is None:
        message = "is assigned to no variable of the module"
        remedy = f"name it, such as mine = {kind}(...), or put it into a list that has a name"
    else:
        message = f"is in module {home!r}, which project.modules of {PROJECT_FILE} does not name"
        remedy = f"add {home!r} there, or import the {kind} in a module that is named"
    message = f"{kind} {value.name!r} {message}: it would be ignored"
    return Problem(declaration.file, declaration.line, message, remedy)


def field_location(event: type, path: str) -> tuple[str, int] | None:
    """Returns file and line of a field's annotation in an event class, or in one that it nests.

    Returns ``None`` when there is no source.
    """
    event, field = declaring_class(event, path)
    module = sys.modules.get(event.__module__)
    file = getattr(module, "__file__", None)
    if file is None:
        return None
    for node in ast.walk(_syntax(file)):
        if isinstance(node, ast.ClassDef) and node.name == event.__name__:
            annotations = (part for part in node.body if isinstance(part, ast.AnnAssign))
            lines = (part.lineno for part in annotations if ast.unparse(part.target) == field)
            return file, next(lines, node.lineno)
    return None


def _make_importable(root: Path) -> None:
    sys.path[:] = [str(root), *(entry for entry in sys.path if entry != str(root))]
    importlib.invalidate_caches()  # files may be newer than Python's listing of their folder
    # A test or a program may load several projects in one process, each with a module `flow`.
    own = {file.parent.name for file in root.glob("*/__init__.py")}
    own |= {file.stem for file in root.glob("*.py")}
    own -= sys.stdlib_module_names | {"headrace"}
    loaded = sys.modules.copy()
    named = {name: loaded[name] for name in loaded if name.partition(".")[0] in own}
    for name in named.keys() - own_modules(root, named).keys():
        del sys.modules[name]


def _import(name: str, settings: Settings) -> ModuleType | Problem:
    if name.partition(".")[0] in sys.stdlib_module_names:
        return _toml_problem(settings, f"module {name!r} is one of Python's own", "rename the file")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            where = f"no {name.replace('.', '/')}.py in {settings.root}"
            return _toml_problem(settings, f"there is no module {name!r}", where)
        return _failed_import(name, error, settings)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code raises
        return _failed_import(name, error, settings)


def _toml_problem(settings: Settings, message: str, remedy: str) -> Problem:
    file = settings.root / PROJECT_FILE
    lines = key_lines(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return Problem(str(file), lines.get("project.modules", 1), message, remedy)


def _failed_import(name: str, error: BaseException, settings: Settings) -> Problem:
    if isinstance(error, SyntaxError) and error.filename:
        return Problem(error.filename, error.lineno or 1, f"syntax error: {error.msg}")
    message = f"{type(error).__name__}: {error}"
    extra = extra_of(error.name or "") if isinstance(error, ModuleNotFoundError) else None
    remedy = f"pip install 'headrace[{extra}]'" if extra else ""
    # The innermost line of the user: frames below it are of packages, those above only led there.
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(settings.root):
            return Problem(frame.filename, frame.lineno or 1, message, remedy)
    return _toml_problem(settings, f"module {name!r} can't be imported: {message}", remedy)


def _declared_by(
    modules: list[ModuleType], own: Mapping[str, ModuleType]
) -> list[Declaration[Any]]:
    # Declarations are often imported from a module that the settings do not name: they are shown
    # where they were assigned, by identity, since equal values may be declared twice.
    installed = (module for module in modules if module.__name__ not in own)
    lines = {
        id(value): (file, line)
        for module in (*installed, *own.values())
        for value, file, line in _assigned(module)
    }
    declarations: dict[int, Declaration[Any]] = {}
    for module in modules:
        for value in _values(vars(module).values()):
            # A value that a second module imports is still one declaration.
            if id(value) not in declarations:
                file, line = lines.get(id(value), (str(module.__file__), 1))
                declarations[id(value)] = Declaration(kind_of(value), value, file, line)
    return list(declarations.values())


def _assigned(module: ModuleType) -> Iterator[tuple[DeclaredValue, str, int]]:
    """Gives each declared value that is assigned in the module itself, with its file and line."""
    file = str(module.__file__)
    for name, node in _assignments(file):
        value = vars(module).get(name)
        # In a list that is written out, each element has a line of its own.
        elements = getattr(node, "elts", None)
        if isinstance(value, list | tuple) and elements and len(elements) == len(value):
            for part, element in zip(value, elements, strict=True):
                yield from ((declared, file, element.lineno) for declared in _values([part]))
        else:
            yield from ((declared, file, node.lineno) for declared in _values([value]))


def _assignments(file: str) -> Iterator[tuple[str, ast.expr]]:
    """Gives the names bound at the top of a module, with the expressions of their values."""
    for statement in _syntax(file).body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ((statement.name, outermost) for outermost in statement.decorator_list[:1])
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = (
                [statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets
            )
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, statement.value


@functools.lru_cache(maxsize=64)
def _syntax(file: str) -> ast.Module:
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ast.Module(body=[], type_ignores=[])


def _values(values: object) -> Iterator[DeclaredValue]:
    for value in values:  # type: ignore[attr-defined]
        if isinstance(value, DeclaredValue):
            yield value
        elif isinstance(value, list | tuple):
            yield from _values(value)
        elif isinstance(value, dict):  # not what its values hold: it may hold itself
            yield from (held for held in [*value.values()] if isinstance(held, DeclaredValue))
