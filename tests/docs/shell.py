"""A reader's shell: runs a page's commands one after the other, as they are written."""

import contextlib
import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

MARK = "=8<="
SECONDS = 180
OWN_MOUNTS = ["unshare", "--mount", "--propagation", "private"]
OWN_STATE = 'mkdir -p /var/lib/dpgateway && mount -t tmpfs -o mode=0755 tmpfs /var/lib/dpgateway && exec bash "$1"'
"""What the page's gateways remember is the reader's own: the machine's, and other tests', isn't touched."""


@dataclass(frozen=True)
class Result:
    """Of one block of commands; `status` is the last one's."""

    output: str
    status: int


def run(blocks: list[str], directory: Path, environment: dict[str, str]) -> list[Result]:
    """Each block's result. What was left running in the background is killed in the end."""
    script = directory / "commands.sh"
    script.write_text("".join(f"{block}\nprintf '{MARK}%s\\n' $?\n" for block in blocks))
    with (directory / "output").open("w+b") as output:
        shell = subprocess.Popen(
            [*OWN_MOUNTS, "sh", "-c", OWN_STATE, "sh", script],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                shell.wait(SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    pieces = re.split(rf"{MARK}(\d+)\n", text)
    results = [Result(said, int(status)) for said, status in zip(pieces[::2], pieces[1::2], strict=False)]
    assert len(results) == len(blocks), f"not all was done within {SECONDS} s, or one command ended the shell:\n{text}"
    return results
