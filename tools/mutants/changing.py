"""The possible mutants of a module: changes of a comparison, a number, a statement, or a whole function."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """One change of one file. ``start`` and ``end`` are offsets in bytes."""

    file: Path
    line: int
    start: int
    end: int
    before: str
    after: str
    context: str
    """The text of its first line."""

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]

    def __str__(self) -> str:
        context = "" if self.before.startswith(self.context) else f"  in: {self.context}"
        return f"{self.file}:{self.line}  {_short(self.before)}  ->  {_short(self.after)}{context}"


SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip

UNSEEN = {"annotation", "returns", "decorator_list", "type_params"}
"""Fields of a node that aren't mutated: annotations, which the type checker covers, and decorators."""

Placed = Any  # ast.expr | ast.stmt | ast.excepthandler; typeshed declares their ends optional, but ast.parse sets them
Change = tuple[Placed, Placed, str]
"""The first and the last replaced node, and the replacement."""


def mutants(file: Path, source: bytes) -> Iterator[Mutant]:
    """All mutants of one file, in the order of their places. Each parses, and differs from the file."""
    lines = source.splitlines(keepends=True)
    starts = list(itertools.accumulate((len(line) for line in lines), initial=0))
    for first, last, after in _walk(ast.parse(source)):
        start = starts[first.lineno - 1] + first.col_offset
        end = starts[last.end_lineno - 1] + last.end_col_offset
        context = lines[first.lineno - 1].decode().strip()
        yield Mutant(file, first.lineno, start, end, source[start:end].decode(), after, context)


def _walk(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.JoinedStr) or _is_unpromised(node):  # Python 3.11 has no positions within an f-string
        return
    if isinstance(node, ast.expr):
        yield from ((node, node, f"({ast.unparse(new)})") for new in _expressions(node))
    elif isinstance(node, ast.stmt | ast.excepthandler):
        yield from _statements(node)
    for test in _conditions(node):
        yield test, test, f"(not ({ast.unparse(test)}))"
    for child in _children(node):
        yield from _walk(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name not in UNSEEN:
            children = value if isinstance(value, list) else [value]
            yield from (child for child in children if isinstance(child, ast.AST))


def _is_unpromised(node: ast.AST) -> bool:
    """Whether no test should cover it: code for type checkers only, and debug messages of the log."""
    text = ast.unparse(node) if isinstance(node, ast.If | ast.Expr) else ""
    return text.startswith("if TYPE_CHECKING:") or ".debug(" in text.partition("\n")[0]


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left, ops, comparators):
            for place, op in enumerate(ops):
                swapped = [*ops[:place], _swap(op), *ops[place + 1 :]]
                yield ast.Compare(left, swapped, comparators)  # type: ignore[arg-type]
        case ast.BoolOp(op, values):
            yield ast.BoolOp(_swap(op), values)  # type: ignore[arg-type]
        case ast.BinOp(left, op, right) if type(op) in SWAPPED:
            yield ast.BinOp(left, _swap(op), right)  # type: ignore[arg-type]
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield ast.Constant(value + 1 if value < 100 else value * 2)


def _swap(operator: ast.AST) -> ast.AST:
    return SWAPPED[type(operator)]()


def _conditions(node: ast.AST) -> Iterator[ast.expr]:
    """Conditions to negate, except those negated by another change."""
    tests = [node.test] if isinstance(node, ast.If | ast.IfExp | ast.While) else getattr(node, "ifs", [])
    for test in tests:
        turned = isinstance(test, ast.UnaryOp) or (
            isinstance(test, ast.Compare)
            and isinstance(test.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot | ast.In | ast.NotIn)
        )
        if not turned:
            yield test


def _statements(node: ast.stmt | ast.excepthandler) -> Iterator[Change]:
    match node:
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            rest = body[1:] if _is_text(body[0]) else body
            if rest and not _is_nothing(rest):
                yield rest[0], rest[-1], "pass"
        case ast.ExceptHandler(body=body) if not _is_nothing(body):
            yield body[0], body[-1], "pass"
        case ast.Return(value) if value is not None and not isinstance(value, ast.Constant):
            yield node, node, "return None"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, node, "pass"
        case ast.Expr(ast.Call() | ast.Await() | ast.Yield()) | ast.AugAssign() | ast.Delete() | ast.Raise():
            yield node, node, "pass"
        case ast.Break() | ast.Continue():
            yield node, node, "pass"


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_nothing(body: list[ast.stmt]) -> bool:
    return all(isinstance(node, ast.Pass) or _is_text(node) for node in body)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 90 else f"{flat[:87]}..."
