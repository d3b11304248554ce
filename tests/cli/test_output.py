"""Tables on terminals of any width. In a pipe all columns are there: tests of the commands see to that."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

from dpgateway.cli.output import fit
from tests.support.gateway import COMMAND

CONFIG = "resources: [{name: example.com/a, driver: fake, options: {mode: chat}}]"


@pytest.fixture
def terminal(tmp_path, fake_driver):
    """What `dpgateway devices` shows on a terminal of so many columns, line by line."""
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)

    def shown(columns):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        environment |= {"PYTHONPATH": str(fake_driver), "TERM": "xterm"}
        command = [*COMMAND, "devices", f"--config={config}", "--node-name=n1"]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        with os.fdopen(master, "rb", buffering=0) as output:
            text = b"".join(iter(lambda: _read(output), b"")).decode()
        assert process.wait() == 0
        assert {"", "0", "1", "2", "33"} >= set(re.findall(r"\x1b\[([0-9;]*)m", text))
        return re.sub(r"\x1b\[[0-9;]*m|\r", "", text).splitlines()

    return shown


def _read(output):
    try:
        return output.read(4096)
    except OSError:  # EIO: the other end is closed
        return b""


def test_forty_columns(terminal):
    log, printed, *table = terminal(40)
    assert "INFO    looking around resource=example.com/a" in log
    assert printed == "closed example.com/a"
    assert [line.split() for line in table] == [
        ["RESOURCE", "ID", "HEALTH"],
        ["example.com/a", "n1-0", "Healthy"],
        ["example.com/a", "bad\\x1b[2J", "Unhealthy"],
        ["(no", "room", "for", "REASON,", "NUMA,", "SHARES,"],
        ["ATTRIBUTES)"],
    ]
    assert max(map(len, table)) <= 40


def test_wide_terminal(terminal):
    *_, head, good, bad = terminal(100)
    assert head.split() == ["RESOURCE", "ID", "HEALTH", "REASON", "NUMA", "SHARES", "ATTRIBUTES"]
    assert good.split() == ["example.com/a", "n1-0", "Healthy", "-", "0,1", "1", "serial=A1", "good=true"]
    assert bad.split() == ["example.com/a", "bad\\x1b[2J", "Unhealthy", "no", "power", "-", "1", "-"]


COLUMNS = {"NAME": ["NAME", "example.com/a"], "WHY": ["WHY", "no such node"], "N": ["N", "1"]}


@pytest.mark.parametrize(
    ("room", "widths"),
    [
        (30, {"NAME": 13, "WHY": 12, "N": 1}),
        (29, {"NAME": 13, "WHY": 11, "N": 1}),
        (22, {"NAME": 13, "WHY": 4, "N": 1}),
        (21, {"NAME": 13, "WHY": 6}),
        (19, {"NAME": 13, "WHY": 4}),
        (18, {"NAME": 13}),
        (5, {"NAME": 5}),
    ],
)
def test_columns_go_before_words_break(room, widths):
    assert fit(COLUMNS, ["N", "WHY"], room) == widths


def test_necessary_columns_stay():
    assert fit({"NAME": ["example.com/a"], "WHY": ["no/such/node"]}, [], 18) == {"NAME": 8, "WHY": 8}


def test_indentation_is_kept():
    assert fit({"NAME": ["   a b"], "N": ["1"]}, ["N"], 7) == {"NAME": 4, "N": 1}
