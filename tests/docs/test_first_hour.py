"""The tutorial as its reader follows it, from `pip install` to the last command."""

from pathlib import Path

import pytest

from tests.docs.conftest import Place
from tests.docs.pages import Page, check_output

pytestmark = pytest.mark.xdist_group("place")

PAGE = Page("tutorial/first-hour.md")
FUSE = Path("/dev/fuse")


def here(text: str) -> str:
    """What a reader does whose machine has no /dev/fuse."""
    return text if FUSE.exists() else text.replace("/dev/fuse", "/dev/null").replace("devices=fuse", "devices=null")


def as_root(text: str) -> str:
    """What comes once the reader, to whom all belongs that was made before, has become root."""
    return f"chown -R 65534 config.yaml node\n{text}" if "mknod" in text else text


KNOWN = {
    "pause 2\nrun dpgateway status": "dpgateway status example.com/memory 2>/dev/null | grep -q default/two",
    "run mv dev/ttyUSB0 ": "dpgateway status example.com/serial 2>/dev/null | grep -q default/logger",
    "pause 1\nrun mv ": "grep -q Unhealthy gateway.log",
    "pause 1\nEND\n": "grep -q 'Healthy again' gateway.log",
}
"""What a gateway knows and has said before each of these steps, within a second or two on an idle machine."""


def typed(text: str) -> str:
    """A reader types for longer than a gateway on a busy machine takes to write its log, and to ask who has what."""
    wait = "until grep -q ' registered ' gateway.log; do sleep 0.1; done\n"
    text = text.replace("cat gateway.log\n", f"{wait}cat gateway.log\n")
    for step, known in KNOWN.items():
        text = text.replace(step, f'run sh -c "until {known}; do sleep 0.1; done"\n{step}')
    return text


def test_the_page_has_each_step_that_is_waited_for():
    commands = "".join(block.text for block in PAGE.commands)
    assert [commands.count(step) for step in KNOWN] == [1] * len(KNOWN)


@pytest.fixture(scope="module")
def results(place: Place):
    """Of each block, but the first two: what they do, the fixture has done."""
    begin, _, *rest, end = PAGE.commands
    assert begin.text == "python3 -m venv first-hour\ncd first-hour\n. bin/activate\n"
    assert end.text == "kill %1; wait\ncd ..\nrm -r first-hour\n"
    blocks = [typed(as_root(here(block.text))) for block in rest]
    return place.run([". bin/activate", *blocks, "kill %1; wait"], "first-hour")


def test_every_command_works(results):
    assert [result.status for result in results] == [0] * len(results)


@pytest.mark.parametrize(
    ("index", "shown"), [(index, block.output) for index, block in enumerate(PAGE.commands) if block.output]
)
def test_the_page_shows_the_true_output(results, index, shown):
    check_output(here(shown), results[index - 1].output)


def test_five_commands_to_a_container():
    part = PAGE.text[PAGE.text.index("in five commands") : PAGE.text.index("container started")]
    assert part.count("```sh") == 5
