"""A package's docstring is its map: it lists all modules, one line each, and nothing else."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOPS = (*ROOT.glob("src/dpgateway*"), *ROOT.glob("backends/*/src/dpgateway_*"))
NOT_OURS = {"wire", "skeleton"}
"""What is below these folders is generated, or copied into drivers' packages."""


def packages():
    for top in sorted(TOPS):
        for init in sorted(top.rglob("__init__.py")):
            if not NOT_OURS & set(init.parent.parent.relative_to(ROOT).parts):
                yield init.parent


def modules(package):
    files = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    return files | {path.parent.name for path in package.glob("*/__init__.py")}


@pytest.mark.parametrize("package", list(packages()), ids=lambda package: str(package.relative_to(ROOT)))
def test_a_package_lists_its_modules(package):
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    assert sorted(re.findall(r"^(\w+) {2,}\S", docstring, re.MULTILINE)) == sorted(modules(package))
