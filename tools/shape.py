"""The shape of the source: lines, functions per 1,000 lines, the share of lines with a comment, repeated class names.

``python -m tools.shape`` counts the gateway, the simulator and the drivers in backends/, without generated modules and
without the files that `new-driver` copies.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "backends/*/src")
NOT_OURS = frozenset({"wire", "skeleton"})
"""Folders of generated modules and of templates."""


@dataclass
class Shape:
    """The counts of all files together."""

    files: int = 0
    lines: int = 0
    functions: int = 0
    commented: int = 0
    classes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The files that define each class name."""

    @property
    def repeated(self) -> dict[str, list[str]]:
        return {name: places for name, places in sorted(self.classes.items()) if len(places) > 1}


def sources(root: Path = ROOT) -> Iterator[Path]:
    for folder in FOLDERS:
        for top in sorted(root.glob(folder)):
            for path in sorted(top.rglob("*.py")):
                if not NOT_OURS & set(path.relative_to(top).parts) and not path.stem.endswith("_pb2"):
                    yield path


def shape(paths: Iterable[Path], root: Path = ROOT) -> Shape:
    found = Shape()
    for path in paths:
        text = path.read_text()
        found.files += 1
        found.lines += text.count("\n")
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        found.commented += sum(token.type == tokenize.COMMENT for token in tokens)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                found.classes[node.name].append(str(path.relative_to(root)))
            found.functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", choices=("table", "json"), default="table")
    output = parser.parse_args().output
    found = shape(sources())
    per_thousand, share = found.functions * 1000 / found.lines, found.commented * 100 / found.lines
    if output == "json":
        figures = {"files": found.files, "lines": found.lines, "functions": found.functions}
        print(json.dumps({**figures, "commented": found.commented, "repeated": found.repeated}, indent=1))
        return
    for name, places in found.repeated.items():
        print(f"{name}: {', '.join(places)}")
    print(
        f"{found.files} files, {found.lines} lines, {per_thousand:.1f} functions per 1,000 lines, "
        f"{share:.1f} % of the lines with a comment, {len(found.repeated)} class names more than once"
    )


if __name__ == "__main__":
    main()
