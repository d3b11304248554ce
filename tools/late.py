"""``python -m tools.late [PYTEST ARGUMENT ...]``: pytest, where processes of dpgateway begin late.

Half of them begin at once, the others up to $DPGATEWAY_LATE seconds later (2.5), at random. What fails here and not
without it, relies on the order in which processes start, or gives them too little time.
"""

import os
import subprocess
import sys
from pathlib import Path

START = Path(__file__).with_name("late_start")
"""Python imports its `sitecustomize` at the start of each process."""


def main() -> int:
    path = os.pathsep.join(filter(None, (str(START), os.environ.get("PYTHONPATH", ""))))
    environment = {"DPGATEWAY_LATE": "2.5", **os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, "-m", "pytest", *sys.argv[1:]], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
