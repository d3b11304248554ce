"""On a tree of one module and two tests, one of which starts a process that finds the program where the tree is."""

from pathlib import Path

import pytest

from tools.mutants.changing import mutants
from tools.mutants.testing import COPIED, Copy, mirror, whole

MODULE = """
def add(a, b):
    return a + b


def sign(a):
    return a >= 0
"""
OWN = """
from dpgateway.offer.sums import add


def test_add():
    assert add(1, 2) == 3
"""
FAR = """
import os, subprocess, sys


def test_sign():
    program = "from dpgateway.offer.sums import sign; assert sign(1)"
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": SRC})
"""


@pytest.fixture
def tree(tmp_path):
    tree = tmp_path / "tree"
    for name in COPIED:
        (tree / name).mkdir(parents=True) if "." not in name else (tree / name).touch()
    texts = {
        "src/dpgateway/offer/sums.py": MODULE,
        "tests/offer/test_sums.py": OWN,
        "tests/test_far.py": f"SRC = {str(tree / 'src')!r}{FAR}",
        "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['src']",
    }
    for name, text in texts.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    for package in ("dpgateway", "dpgateway/offer"):
        (tree / "src" / package / "__init__.py").touch()
    return tree


def test_mutant_is_killed_or_survives(tree, tmp_path):
    module = Path("src/dpgateway/offer/sums.py")
    copy = Copy(tree, tmp_path / "copy")
    found = {mutant.after: mutant for mutant in mutants(module, MODULE.encode())}
    assert copy.killer(found["(a - b)"]) == "tests/offer/test_sums.py::test_add"
    assert copy.killer(found["(a > 0)"]) is None
    assert copy.killer(found["return None"]) == "tests/test_far.py::test_sign"
    assert (copy.place / module).read_text() == (tree / module).read_text() == MODULE


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("src/dpgateway/offer/sums.py", ["tests/offer/test_sums.py"]),
        ("src/dpgateway/offer/other.py", ["tests/offer"]),
        ("src/dpgateway/offer/deep/other.py", ["tests/offer"]),
        ("src/dpgateway/far.py", ["tests/test_far.py"]),
        ("src/dpgateway/other.py", whole()),
    ],
)
def test_tests_mirror_modules(tree, file, expected):
    assert mirror(tree, Path(file)) == expected


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("backends/chardev/src/dpgateway_chardev/numa.py", "backends/chardev/tests/test_numa.py"),
        ("backends/chardev/src/dpgateway_chardev/other.py", "backends/chardev/tests"),
        ("src/dpgateway_simulator/kubelet/pods.py", "tests/simulator/kubelet/test_pods.py"),
        ("src/dpgateway_start/__init__.py", "tests/end_to_end"),
    ],
)
def test_packages_have_own_tests(tree, file, test):
    own = tree / test if test.endswith(".py") else tree / test / "test_x.py"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.touch()
    assert mirror(tree, Path(file)) == [test]
