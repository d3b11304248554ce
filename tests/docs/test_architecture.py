"""ARCHITECTURE.md and CONTRIBUTING.md name files, folders and targets that are there."""

import re

import pytest

from tests.docs.pages import DOCS

ROOT = DOCS.parent
ARCHITECTURE, CONTRIBUTING = ((ROOT / name).read_text() for name in ("ARCHITECTURE.md", "CONTRIBUTING.md"))
NAMED = re.findall(r"(?<!\()`([\w.-]+/[\w./-]*|[\w-]+\.(?:py|md|toml|txt))`", ARCHITECTURE + CONTRIBUTING)
MADE = "dist/"
"""What a clone doesn't have before `make dist`."""
PLACES = (ROOT, ROOT / "src", ROOT / "src/dpgateway")


def tree():
    """Each line of the tree, with the folder that it is in."""
    (drawn,) = re.findall(r"^```text\n(src/dpgateway/\n.*?)^```", ARCHITECTURE, re.MULTILINE | re.DOTALL)
    for line in drawn.splitlines():
        if line.startswith("  "):
            yield f"src/dpgateway/{line.split()[0]}"
        elif "  " in line and not line.endswith("/"):
            yield line.split()[0]
        else:
            yield from line.split()


@pytest.mark.parametrize("path", [*tree()])
def test_the_tree_is_there(path):
    assert (ROOT / path).exists()


def test_the_tree_has_every_package():
    drawn = {path.rstrip("/") for path in tree()}
    packages = {f"src/dpgateway/{path.parent.name}" for path in ROOT.glob("src/dpgateway/*/__init__.py")}
    assert packages - drawn == set()


@pytest.mark.parametrize("path", sorted(path for path in set(NAMED) if not path.startswith(MADE)))
def test_each_file_that_is_named_is_there(path):
    assert any((place / path).exists() for place in PLACES)


def test_each_target_that_is_named_is_there():
    makefile = (ROOT / "Makefile").read_text()
    named = {target for words in re.findall(r"`make ([a-z -]+)", CONTRIBUTING) for target in words.split()}
    assert {target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)} == set()


def test_each_tool_that_is_named_is_there():
    for module in re.findall(r"python -m (tools\.\w+)", ARCHITECTURE + CONTRIBUTING):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()
