"""What is read of a program before it is started."""

import os

import pytest

from dpgateway import await_program


@pytest.mark.parametrize(
    "text", ["#!{itself}", "#!{pipe}\n", "#! \t/nonexistent\0x\n", "#!", "#! \n", "#!{long}", "\x7fELF", ""]
)
def test_what_is_not_waited_for(tmp_path, text):
    program, pipe = tmp_path / "program", tmp_path / "pipe"
    os.mkfifo(pipe, 0o755)
    program.write_text(text.format(itself=program, pipe=pipe, long="/x" * 3000))
    program.chmod(0o755)
    await_program(str(program))
    await_program("program", str(tmp_path))
    await_program(str(pipe))
    await_program("no such program")
