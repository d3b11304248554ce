"""Builds promtool, of Prometheus: python -m tests.monitoring.build. It needs Go and the Go module proxy.

The binary is beside those of tests/real_kubelet, and is built again when promtool/go.mod names another version.
"""

# ruff: noqa: T201 - it prints, as a program does

import sys
from pathlib import Path

from tests.real_kubelet.build import build_all, missing_to_build
from tests.real_kubelet.programs import Program

PROMTOOL = Program(
    "promtool",
    Path(__file__).resolve().parent / "promtool",
    packages=("github.com/prometheus/prometheus/cmd/promtool",),
    tags="remove_all_sd",  # without the clients of every cloud, which take longer to build than all else
)


def main() -> int:
    todo = [] if PROMTOOL.built else [PROMTOOL]
    missing = missing_to_build() if todo else []
    for text in missing:
        print(f"missing: {text}", file=sys.stderr)
    return 1 if missing else build_all(todo, jobs=2)


if __name__ == "__main__":
    sys.exit(main())
