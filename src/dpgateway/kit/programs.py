"""Programs: the wait for the disks from which one is loaded.

While subprocess waits until a program is loaded, Python before 3.11.4 runs no other thread (python/cpython#104372). On
a disk that doesn't answer, which may be another machine's, the whole process would stand still.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

_LONGEST = 256
"""Bytes at a program's beginning that the kernel reads: BINPRM_BUF_SIZE, include/uapi/linux/binfmts.h."""
_DEEPEST = 6
"""The program, and interpreters of interpreters: fs/exec.c, exec_binprm."""


def await_program(program: str, path: str | None = None) -> None:
    """Returns once the disks with the program, and with the interpreter that its first line names, answer.

    To be called before subprocess starts the program. ``path``: the directories in which it is searched, if its name
    has no slash; by default those of this process. What isn't there, or isn't a file, isn't waited for.
    """
    found = shutil.which(program, path=path)
    with suppress(OSError):
        for _ in range(_DEEPEST):
            if found is None or not Path(found).is_file():
                return
            with Path(found).open("rb") as file:
                head = file.read(_LONGEST)
            # fs/binfmt_script.c: the name ends at a space, a tab, a zero byte, or with the line
            words = head.partition(b"\n")[0].partition(b"\0")[0][2:].replace(b"\t", b" ").split(b" ")
            names = filter(None, words if head.startswith(b"#!") else ())
            found = next(map(os.fsdecode, names), None)
