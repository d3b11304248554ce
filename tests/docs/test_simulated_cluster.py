"""The example of `simulate --api-port`, with a gateway, on a device node that every machine has."""

import asyncio
import contextlib
import os
import random
import re
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path

import pytest

from tests.docs.pages import Page
from tests.support.waiting import BUSY

PAGE = Page("reference/command-line.md").text
SECTION = PAGE.partition("### With an API server")[2].partition("\n### ")[0]
CONFIG, SCRIPT = re.findall(r"^```\w*\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
DPGATEWAY = str(Path(sys.executable).with_name("dpgateway"))


def free_port() -> str:
    """One that nobody gets who asks for any: those begin at 32768 (ip(7), ip_local_port_range)."""
    while True:
        port = random.randrange(20_000, 32_000)  # noqa: S311  no secret
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return str(port)


@pytest.mark.parametrize("first", ["simulate", "the gateway"])
async def test_the_steps_of_a_node_with_an_api_server(first: str, short_path: Path) -> None:
    port = free_port()

    def here(text: str) -> str:
        return text.replace("/tmp/node", str(short_path)).replace("8001", port).replace("/dev/fuse", "/dev/zero")

    command, _, steps = here(SCRIPT).partition("\n")
    config, script = short_path / "config.yaml", short_path / "steps"
    config.write_text(f"state_dir: {short_path}/state\nkubelet: {{root_dir: {short_path}}}\n{here(CONFIG)}")
    script.write_text(steps)
    (short_path / "token").write_text("any")
    words = command.removeprefix("# dpgateway ").replace("--script steps", f"--script {script}").split()
    run = f"run --config {config} --device-plugins-dir {short_path}/device-plugins --node-name n1"
    environment = os.environ | {"DPGATEWAY_CONTROL_SOCKET": f"{short_path}/control.sock"}
    gateway = await asyncio.create_subprocess_exec(DPGATEWAY, *run.split(), stderr=PIPE, env=environment)
    simulated, log = None, b""
    try:
        async with asyncio.timeout(BUSY):
            if first == "the gateway":  # it registers before the kubelet has deleted the slices of its node, else after
                assert gateway.stderr is not None
                log = await gateway.stderr.readuntil(b"serving 1 resource")
            simulated = await asyncio.create_subprocess_exec(
                DPGATEWAY, *words, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
            )
            output = (await simulated.communicate())[0].decode()
    finally:
        for process in filter(None, (gateway, simulated)):
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        log += (await gateway.communicate())[1]
    assert simulated.returncode == 0, f"{output}\n{log.decode()}"
    assert re.search(r"^DEVICE +POOL +DRIVER +TAINTS +CLAIMS$", output, re.MULTILINE)
    assert re.search(r"builder-extended-resources-\w+, second-extended-resources-\w+", output)
