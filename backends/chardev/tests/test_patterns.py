import glob
import itertools
import os

import pytest
from dpgateway_chardev.named import NamedLook
from dpgateway_chardev.options import CharDeviceOptions
from dpgateway_chardev.patterns import excludes, matches, parse
from hypothesis import given
from hypothesis import strategies as st

NAMES = ("a", "ab", "b1", ".a", "[")
LEAVES = ("a", "b", ".b")
parts = st.sampled_from(["a", "ab", "*", "?", "a*", "*b", "**", "[ab]*", "[!a]", ".*", ".a", "*1", "[[]", "a**"])
globs = st.lists(parts, min_size=1, max_size=4).map("/".join).filter(glob.has_magic)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Three levels of every name, and in each directory some device nodes, each with a number of its own."""
    top = tmp_path_factory.mktemp("tree")
    numbers = itertools.count()
    for depth in range(3):
        for names in itertools.product(NAMES[: 5 - depth], repeat=depth):
            directory = top.joinpath(*names)
            directory.mkdir(parents=True, exist_ok=True)
            for leaf in LEAVES:
                os.mknod(directory / f"{leaf}0", 0o20600, os.makedev(240, next(numbers)))
    return top


def nodes(tree, paths):
    return {path for path in paths if (tree / path).is_char_device()}


@given(pattern=globs)
def test_finds_what_the_standard_library_finds(tree, pattern):
    found = NamedLook(CharDeviceOptions(paths=(f"/dev/{pattern}",), dev=str(tree))).devices
    # Not Path.glob: it has no rule for a leading dot.
    assert set(found) == nodes(tree, glob.glob(pattern, root_dir=tree, recursive=True))  # noqa: PTH207


@given(pattern=globs)
def test_the_pure_match_agrees_with_the_walk(tree, pattern):
    everything = [str(path.relative_to(tree)) for path in tree.rglob("*")]
    found = NamedLook(CharDeviceOptions(paths=(f"/dev/{pattern}",), dev=str(tree))).devices
    assert set(found) == {path for path in nodes(tree, everything) if matches(path.split("/"), parse(pattern))}


@given(pattern=globs, without=globs)
def test_excludes_all_below(tree, pattern, without):
    paths, dev = (f"/dev/{pattern}",), str(tree)
    found = NamedLook(CharDeviceOptions(paths=paths, exclude=(f"/dev/{without}",), dev=dev)).devices
    everything = NamedLook(CharDeviceOptions(paths=paths, dev=dev)).devices
    assert set(found) == {path for path in everything if not excludes(path, [parse(without)])}


@pytest.mark.parametrize(
    ("path", "without", "expected"),
    [
        ("pts/0", "pts", True),
        ("pts/0", "pts/**", True),
        ("pts", "pts/**", False),
        ("snd/by-id/x", "snd/*", True),
        ("ttyUSB0", "tty[0-9]*", False),
        ("tty0", "tty[0-9]*", True),
    ],
)
def test_excludes(path, without, expected):
    assert excludes(path, [parse(without)]) is expected
