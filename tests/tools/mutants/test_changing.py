import ast
from pathlib import Path

import pytest

from tools.mutants.changing import mutants


def changed(text):
    """The program after each of its mutations, without the parentheses that keep it right."""
    source = text.encode()
    return [ast.unparse(ast.parse(mutant.apply(source))) for mutant in mutants(Path("m.py"), source)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = a < b <= c", ["x = a <= b <= c", "x = a < b < c"]),
        ("x = a is None", ["x = a is not None"]),
        ("x = a and b", ["x = a or b"]),
        ("x = not a", ["x = a"]),
        ("x = a + b", ["x = a - b"]),
        ("x = (1, 600, True)", ["x = (2, 600, True)", "x = (1, 1200, True)", "x = (1, 600, False)"]),
        ("x = 'é' + y", ["x = 'é' - y"]),
        ("if a:\n    b()", ["if not a:\n    b()", "if a:\n    pass"]),
        ("if a == b:\n    raise c", ["if a != b:\n    raise c", "if a == b:\n    pass"]),
        ("x = [a for a in b if a]", ["x = [a for a in b if not a]"]),
        ("x.y = z", ["pass"]),
        ("for a in b:\n    break", ["for a in b:\n    pass"]),
        ("try:\n    x = a\nexcept b:\n    x = c", ["try:\n    x = a\nexcept b:\n    pass"]),
        ("def f():\n    x = a\n    return x", ["def f():\n    pass", "def f():\n    x = a\n    return None"]),
    ],
)
def test_each_change_is_made_alone(text, expected):
    assert changed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "x: int | None = y",
        "def f(a: int | str) -> a | b:\n    '''Says.'''",
        "@dataclass(frozen=True)\nclass A:\n    ...",
        "if TYPE_CHECKING:\n    x = 1",
        "log.debug('x')",
        "x = f'{a + 1}'",
        "def f():\n    pass",
        "x = 'text'",
    ],
)
def test_leaves_untestable_code(text):
    assert changed(text) == []


def test_mutant_names_its_place():
    (mutant,) = mutants(Path("a/m.py"), b"\nx = y < z\n")
    assert str(mutant) == "a/m.py:2  y < z  ->  (y <= z)  in: x = y < z"
    (mutant,) = mutants(Path("a/m.py"), b"log.info(x,\n         y)\n")
    assert str(mutant) == "a/m.py:1  log.info(x, y)  ->  pass"
