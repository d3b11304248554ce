"""The rehearsal as its reader does it; what is typed at the prompt is done as a script."""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.docs import shell
from tests.docs.pages import Page

PAGE = Page("how-to/rehearse-an-upgrade.md")
TYPED = "".join(re.findall(r"^```kubelet\n(.*?)^```$", PAGE.text, re.MULTILINE | re.DOTALL))
(SIMULATE,) = re.findall(r"^\$ (dpgateway simulate .*)$", PAGE.text, re.MULTILINE)
HEADLINE = "example.com/sensor: 8 of 8 allocatable, 3 held"


@pytest.fixture(scope="module")
def results():
    stage, script, end = [block.text for block in PAGE.commands]
    typed = f"{SIMULATE} --script /dev/stdin <<'END'\nwait example.com/sensor=8\n{TYPED}END\n"
    directory = Path(tempfile.mkdtemp(prefix="docs-"))  # of a short path: a unix socket's has 107 bytes at most
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.defpath}", "HOME": str(directory), "LANG": "C.UTF-8"}
    yield shell.run([stage, typed, script, end], directory, environment)
    shutil.rmtree(directory)


def test_every_command_works(results):
    assert [result.status for result in results] == [0] * 4, results


def test_same_devices_held_after(results):
    assert HEADLINE in PAGE.text
    before, after = re.findall(rf"{HEADLINE}\n((?:  \S.*\n)+)", results[1].output)
    assert before == after
    assert after.count(" logger/c\n") == 2
    assert after.count(" recorder/c\n") == 1
