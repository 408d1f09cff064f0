"""What a user's code raised or made is compared with None: it may be false as a truth value.

An exception that defines ``__len__`` or ``__bool__`` was taken for success. The names that may hold
such an object are those of a folder's annotations, of what it catches, and of what it takes from
futures.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "headrace"
USERS_TYPES = {"WorkerTask", "WorkerPartitioner", "Lifespan", "FailurePolicy"}


def name_of(node):
    """Returns the last part of a name, with () where it is called; empty: there is none."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.arg(arg=name):
            return name
        case ast.Call(func=function):
            return f"{name_of(function)}()"
        case ast.NamedExpr(value=inner) | ast.Await(value=inner):
            return name_of(inner)
    return ""


def is_users(annotation):
    """Returns whether an annotation is of a user's object, with or without ``None``."""
    if isinstance(annotation, ast.BinOp):
        return is_users(annotation.left) or is_users(annotation.right)
    name = name_of(annotation)
    is_exception = name.endswith(("Exception", "Error")) and name != "KafkaError"
    return is_exception or name in USERS_TYPES


def held(nodes):
    """Yields the names that hold, or return, a user's object."""
    for node in nodes:
        match node:
            case ast.arg(annotation=annotation) if is_users(annotation):
                yield node.arg
            case ast.AnnAssign() if is_users(node.annotation):
                yield name_of(node.target)
            case ast.FunctionDef() | ast.AsyncFunctionDef() if is_users(node.returns):
                is_property = "property" in map(name_of, node.decorator_list)
                yield node.name if is_property else f"{node.name}()"
            case ast.ExceptHandler(name=str(name)):
                yield name
            case (
                ast.Assign(targets=[target], value=ast.Await(value=ast.Call(keywords=options)))
                | ast.AugAssign(target=target, value=ast.Await(value=ast.Call(keywords=options)))
            ) if "return_exceptions" in [option.arg for option in options]:
                yield name_of(target)


def operands(condition):
    """Yields what a condition takes as truth values."""
    match condition:
        case ast.BoolOp(values=values):
            for value in values:
                yield from operands(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from operands(operand)
        case _:
            yield condition


def truth_values(nodes):
    """Yields the expressions that are taken as truth values, also by Python's own functions."""
    for node in nodes:
        match node:
            case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
                yield from operands(node.test)
            case ast.comprehension(ifs=conditions):
                for condition in conditions:
                    yield from operands(condition)
            case ast.BoolOp(values=[*values, _]):
                yield from values
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield operand
            case ast.Call(func=ast.Name(id="bool" | "any" | "all"), args=[value]):
                yield value
            case ast.Call(func=ast.Name(id="filter"), args=[ast.Constant(value=None), values]):
                yield values
            case ast.keyword(arg="exc_info", value=value):  # which `logging` takes as one
                yield value


def faults(modules):
    """Returns the lines of modules of one folder at which a user's object is a truth value."""
    names, uses = {"exception()"}, []
    for path, source in modules.items():
        tree = ast.parse(source)
        nodes = [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]
        names.update(held(nodes))
        uses += [(name_of(node), f"{path}:{node.lineno}") for node in truth_values(nodes)]
    return {f"{place}: {name}" for name, place in uses if name in names}


def test_no_object_of_a_users_code_is_a_truth_value():
    found = set()
    for folder in {path.parent for path in SOURCE.rglob("*.py")}:
        found |= faults({path: path.read_text() for path in folder.glob("*.py")})
    assert not found, "\n".join(sorted(found))


@pytest.mark.parametrize(
    "statement",
    [
        "error = error or other",
        "if error: pass",
        "if not (done and self.error): pass",
        "while error or done: pass",
        "[error for error in errors if error]",
        "assert error",
        "reason = 'failed' if self.error else ''",
        "is_failed = bool(error)",
        "if (failure := task.exception()): pass",
        "raise task.exception() or other",
        "if attempt._end(): pass",
        "raise attempt.cause or other",
        "for failure in filter(None, left): pass",
        "any(left)",
        "log.error('It failed', exc_info=error)",
        "start = worker.lifespan and worker.lifespan()",
    ],
)
def test_a_truth_value_is_seen(statement):
    module = f"""
lifespan: Lifespan | None
class Attempt:
    error: BaseException | None = None
    def _end(self) -> Exception | None: ...
    @property
    def cause(self) -> Exception | None: ...
async def close(failure: Exception | None):
    left = await gather(*closing, return_exceptions=True)
    {statement}
"""
    assert faults({"module": module})


@pytest.mark.parametrize(
    "statement",
    ["if error is not None: pass", "isinstance(error, OSError) or done", "if errors: x"],
)
def test_a_comparison_with_none_is_none(statement):
    assert not faults({"module": f"error: OSError | None\n{statement}"})
