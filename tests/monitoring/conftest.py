"""These tests ask promtool, which build.py makes. They run when asked for: with a path in this folder on pytest's
command line. Then nothing is skipped.
"""

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    named = (Path(arg.partition("::")[0]).resolve() for arg in config.args)
    return None if any(path.is_relative_to(HERE) for path in named) else True
