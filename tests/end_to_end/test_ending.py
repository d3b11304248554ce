"""The real process gets signals at awkward moments, and ends in time whatever hangs."""

import asyncio
import contextlib
import os
import re
import resource
import signal
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from dpgateway_simulator import Kubelet, PluginError
from tests.support.gateway import COMMAND
from tests.support.waiting import until

R = "example.com/thing"
SIMULATED = {"name": "example.com/other", "driver": "simulated", "options": {"count": 2}}


def awkward(**options):
    return {"name": R, "driver": "awkward", "options": options}


def children(pid):
    """Of all its threads."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
            found += (task / "children").read_text().split()
    return found


def opened(pid):
    """The files behind a process's descriptors."""
    return {int(path.name): path.resolve() for path in Path(f"/proc/{pid}/fd").iterdir()}


def catches(pid, number):
    (mask,) = re.findall(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
async def test_a_signal_that_changes_nothing(process, number):
    await process.start(SIMULATED)
    await process.said("serving")
    for count in (1, 2):
        process.process.send_signal(number)
        await process.said(f"{number.name} changes nothing", count)
    assert await process.end() == 0
    assert "SIGHUP has the configuration read again" in next(line for line in process.log if number.name in line)


@pytest.mark.parametrize("holds", ["devices", "close"])
async def test_a_driver_that_holds_the_gil(process, holds):
    """Before the signal, or after it was taken. Who sends the signal kills a process that takes too long."""
    await process.start(awkward(holds=[holds]))
    await process.said("devices holds the lock" if holds == "devices" else "serving")
    assert await process.end() == 0


WHILE_IT_IMPORTS = """
import os, sys
def look(event, arguments):
    if event == "import" and arguments[0] == {module!r}:
        os.kill(os.getpid(), {number})
sys.addaudithook(look)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("module", ["dpgateway", "grpc"])
async def test_a_signal_while_it_starts(process, short_path, module, number):
    text = WHILE_IT_IMPORTS.format(module=module, number=int(number))
    (short_path / "sitecustomize.py").write_text(text)
    process.imported = False
    await process.start(awkward())
    async with asyncio.timeout(60):
        assert await process.process.wait() == 0
    await process.close()
    assert process.log == []


@pytest.mark.parametrize(
    "kill", ["os.kill(os.getpid(), 15)", "signal.pthread_kill(threading.get_ident(), 15)"], ids=["first", "another"]
)
async def test_a_signal_while_a_driver_is_imported(process, short_path, kill):
    """Whichever thread the kernel gives it to: the first one, which waits for the import, isn't woken by another's."""
    driver = short_path / "awkward.py"
    lines = [
        "import os, signal, sys, threading, time",
        "import traceback",
        "def names(): return [one.name for one in traceback.extract_stack(sys._current_frames()[first])]",
        "first = threading.main_thread().ident",
        "while names()[-3:] != ['wait'] * 3: time.sleep(0.01)",
        kill,
        "threading.Event().wait()",
        driver.read_text(),
    ]
    driver.write_text("\n".join(lines))
    await process.start(awkward())
    async with asyncio.timeout(60):
        assert await process.process.wait() == 0
    await process.close()
    assert process.log == []


async def test_the_gateway_is_one_process(process):
    await process.start(SIMULATED)
    await process.said("serving")
    await until(lambda: not children(process.pid))  # one has read the configuration
    assert await process.end() == 0


async def test_start_without_standard_streams(process):
    process.command = ["sh", "-c", 'exec "$0" "$@" <&- >&-', *COMMAND]
    await process.start(SIMULATED)
    await process.said("serving")
    assert [str(opened(process.pid)[number]) for number in range(2)] == ["/dev/null"] * 2
    assert await process.end() == 0


async def test_too_few_descriptors(process):
    process.command = ["prlimit", "--nofile=50:50", *COMMAND]
    await process.start(SIMULATED)
    assert await process.process.wait() == 1
    await process.close()
    (entry,) = process.entries()
    assert entry["message"].startswith("the limit of open files (RLIMIT_NOFILE): found 50, expected at least 56 for 1")
    process.command = ["prlimit", "--nofile=50:100", *COMMAND]
    await process.start()
    await process.said("serving")
    assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (56, 100)
    assert await process.end() == 0


async def test_too_little_address_space(process):
    """gRPC's threads would abort, or hang without a word."""
    process.command = ["prlimit", f"--as={160 * 1024 * 1024}", *COMMAND]
    await process.start(SIMULATED)
    assert await process.process.wait() == 1
    await process.close()
    (entry,) = process.entries()
    assert entry["message"].startswith("the limit of the address space (RLIMIT_AS): found 160 MiB, expected at least")


@pytest.fixture
def cgroup():
    """One of our own that limits processes and threads."""
    for root in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")):
        folder = root / f"dpgateway-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if (folder / "pids.max").exists():
            yield folder
            folder.rmdir()
            return
        folder.rmdir()
    pytest.skip("no cgroup can be made here")


@pytest.mark.parametrize("limit", [6, 12])
async def test_too_few_processes_and_threads(process, cgroup, limit):
    (cgroup / "pids.max").write_text(str(limit))
    process.command = ["sh", "-c", f'echo $$ >{cgroup}/cgroup.procs; exec "$0" "$@"', *COMMAND]
    await process.start(SIMULATED)
    assert await process.process.wait() == 1
    await process.close()
    (entry,) = process.entries()
    text = f"the limit of processes and threads (pids.max of the cgroup): found {limit}, expected at least"
    assert entry["message"].startswith(text)


async def test_an_allocate_without_a_thread(process):
    """The system refuses new threads, because their stacks would be larger than all memory that can be addressed."""
    ids = "abcdefgh"
    await process.start(awkward(runs="threading.stack_size(2**48)", hangs=["prepare"], ids=ids))
    async with Kubelet("1.31", process.device_plugins_dir) as kubelet:
        await kubelet.wait_for(lambda: kubelet.counts(R)[1] == len(ids))
        hung = [asyncio.ensure_future(kubelet.pre_start(R, [id_])) for id_ in ids]  # more than there are threads
        await asyncio.wait(hung, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(PluginError, match=r"no thread left for example.com/thing allocate: .*RLIMIT_NPROC"):
            await kubelet.allocate(R, ["a"])
        assert await process.end() == 0
        await asyncio.wait(hung)
        assert all(isinstance(one.exception(), PluginError) for one in hung)
    assert process.names() == []


async def test_a_child_that_a_driver_forks(process):
    """Such as ``multiprocessing`` forks, and ends with SIGTERM."""
    fork = "os.setsid() or time.sleep(20) or os._exit(0)"
    runs = (
        f"self.child = vars(self).get('child') or os.fork() or {fork}\nself._context.log.info(f'child={{self.child}}=')"
    )
    await process.start(SIMULATED, awkward(runs=runs))
    await process.said("child=")
    forked = int(next(line for line in process.log if "child=" in line).split("=")[1])
    try:
        await until(lambda: not catches(forked, signal.SIGUSR1))
        os.kill(forked, signal.SIGUSR1)
        await until(lambda: "State:\tZ" in Path(f"/proc/{forked}/status").read_text())
        assert not any("SIGUSR1" in line for line in process.log)
        assert await process.end() == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(forked, signal.SIGKILL)


async def test_a_relative_directory_stays_where_it_was(process, short_path):
    driver = short_path / "awkward.py"
    driver.write_text("import os; os.chdir('/')\n" + driver.read_text())
    process.command = ["env", "-C", str(short_path), *COMMAND]
    directory, process.device_plugins_dir = process.device_plugins_dir, Path("device-plugins")
    await process.start(awkward())
    await until((directory / "dpgateway").exists)
    assert await process.end() == 0


INTERRUPTS = """
import os, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == "dpgateway.cli":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize(("command", "code"), [("status", -signal.SIGINT), ("run", 0)])
async def test_an_interrupt_while_it_imports(tmp_path, command, code):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    words = ["env", "--default-signal=INT", *COMMAND, command]  # a shell's background jobs ignore it
    process = await asyncio.create_subprocess_exec(*words, env=environment, stdout=PIPE, stderr=STDOUT)
    printed, _ = await process.communicate()
    assert (process.returncode, printed) == (code, b"")
