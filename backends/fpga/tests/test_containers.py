"""Three functions over four boards: no container ever runs on a board that holds another function's image."""

import asyncio
import json
import shutil
import tempfile
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path

from dpgateway_fpga import Bitstream, Board, FpgaDriver, FpgaOptions
from dpgateway_fpga.programmers import BoardState, Failed, Verification
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway.errors import GatewayError, RequestError
from dpgateway.node.holders import Container, Noted
from dpgateway.resource.exclusion import Pool
from dpgateway.resource.journal import Entries
from dpgateway.testing import Recorder
from tests.support.resource import FakeResource
from tests.support.resources import configured
from tests.support.time import VirtualLoop
from tests.support.waiting import turns

FUNCTIONS = "aes", "fft", "fir"
BOARDS = "b0", "b1", "b2", "b3"
PROGRAMMING = "program a board"
"""The driver's threads that do so."""
MOST = 8
"""Containers at once."""
WAIT = timedelta(milliseconds=30)


class Hardware:
    """Boards that say which image they run, until somebody begins to program them."""

    verification = Verification.IDENTITY

    def __init__(self):
        self.runs = {}
        self.slow = {board: threading.Event() for board in BOARDS}
        """Programming goes on until it is set."""
        self.errors = []
        for event in self.slow.values():
            event.set()

    def expected(self, board, image):
        return image.content.decode()

    def read(self, board):
        return BoardState("", self.runs.get(board.id))

    def reset(self, board):
        raise AssertionError("nobody asked for that")

    def program(self, board, image, progress, locks=()):
        self.runs.pop(board.id, None)
        assert self.slow[board.id].wait(20)
        if not self.errors:
            self.runs[board.id] = image.content.decode()
        if self.errors:
            raise Failed("it fails", again=self.errors.pop())


class Direct:
    """The driver's calls, one after the other."""

    abilities = frozenset({"prepare", "release"})
    busy = frozenset[str]()

    def __init__(self, driver):
        self._driver = driver

    async def allocate(self, devices, late, options=None):
        return self._driver.allocate(devices)

    async def prepare(self, devices, *, once=True, options=None):
        self._driver.prepare(devices)

    def release(self, devices, free, told=lambda: None):
        self._driver.release(free(devices))
        told()


class FunctionNode:
    """Pods that come and go, a kubelet that picks blindly, slow and faulty boards, gateways and power that go away."""

    def __init__(self):
        self.loop = VirtualLoop()
        asyncio.set_event_loop(self.loop)
        self.folder = Path(tempfile.mkdtemp(prefix="functions-", dir="/dev/shm"))  # where fsync(2) costs nothing
        self.hardware = Hardware()
        self.pods, self.running, self.noted = {}, set(), {}
        """By uid: function and board; the uids of those whose container runs; the pods as the kubelet knows them."""
        self.journals: dict[str, Entries] = {name: {} for name in FUNCTIONS}
        self.count = 0
        for name in FUNCTIONS:
            file = self.folder / f"{name}.bin"
            file.write_text(name)
            file.chmod(0o600)

    def run(self, *actions):
        async def do():
            for action in actions:
                action()
            await turns()

        self.loop.run_until_complete(do())

    def ask(self, call):
        """Whether the gateway did it."""
        try:
            self.loop.run_until_complete(call())
        except (GatewayError, RequestError):
            return False
        return True

    def start(self):
        self.loop.run_until_complete(self._start())
        self.run(*[partial(self.look, name) for name in FUNCTIONS])

    async def _start(self):
        pool = Pool()
        self.drivers = {name: self.driver(name) for name in FUNCTIONS}
        self.served = {}
        for name in FUNCTIONS:
            config = configured(name=name)
            one = self.served[name] = FakeResource(config, Direct(self.drivers[name]), self.loop.clock)
            one.inventory.exclusion.join(pool)
            one.follow()
            self.list(name)
            one.remember(self.journals[name])

    def driver(self, name):
        hour = timedelta(hours=1)
        options = FpgaOptions(
            boards=tuple(map(Board, BOARDS)),
            bitstream=Bitstream(self.folder / f"{name}.bin", name),
            wait=WAIT,
            state_dir=self.folder / "journal",
            retry_first=hour,
            retry_limit=hour,
        )
        return FpgaDriver(options, Recorder().context(name), self.hardware)

    def list(self, name):
        self.served[name].devices = self.drivers[name].devices()
        self.served[name].list()

    def look(self, name):
        """What the kubelet wrote down, and which pods are gone by now."""
        mine = {uid: board for uid, (whose, board) in self.noted.items() if whose == name}
        note = {board: Noted((), frozenset([Container(uid, "c")])) for uid, board in mine.items()}
        holdings, now = self.served[name].holdings, self.loop.clock.now
        holdings.set(holdings.value.noted(note, now, now).ended(frozenset(mine.keys() - self.pods.keys())))

    def kill(self):
        for name, one in self.served.items():
            self.journals[name] = dict(one.holdings.value.unreleased)
            self.drivers[name].close()
        self.run(*[one.end for one in self.served.values()])

    def end(self):
        self.boards_finish()
        self.kill()
        self.loop.close()
        asyncio.set_event_loop(None)
        shutil.rmtree(self.folder)

    # what happens: each takes a function, a board and a choice, and makes of them what it can

    def pod_comes(self, name, board, _):
        if len(self.pods) == MOST or (name, board) in self.pods.values():  # as the kubelet knows
            return
        if self.ask(lambda: self.served[name].calls.allocate([[board]], self.served[name].calls.api)):
            self.count += 1
            uid = str(self.count)
            self.pods[uid] = name, board
            self.noted = dict(self.pods)
            self.run(partial(self.look, name))
            self.start_container(uid)

    def container_starts_again(self, name, board, _):
        for uid, pod in self.pods.items():
            if pod == (name, board):
                self.start_container(uid)

    def start_container(self, uid):
        name, board = self.pods[uid]
        self.running.discard(uid)
        if self.ask(lambda: self.served[name].calls.prepare([board])):
            self.running.add(uid)

    def pod_of_a_board_is_deleted(self, _, board, seen):
        for uid, (name, whose) in list(self.pods.items()):
            if whose == board:
                del self.pods[uid]
                self.running.discard(uid)
                if seen:
                    self.node_is_looked_at(name)

    def node_is_looked_at(self, name, *_):
        self.run(partial(self.look, name), partial(self.list, name))

    def gateway_restarts(self, *_):
        self.kill()
        self.start()

    def board_becomes_slow(self, _, board, __):
        self.hardware.slow[board].clear()

    def boards_finish(self, *_):
        for event in self.hardware.slow.values():
            event.set()
        for thread in [thread for thread in threading.enumerate() if thread.name == PROGRAMMING]:
            thread.join(20)
            assert not thread.is_alive()

    def next_programming_fails(self, _, __, again):
        self.hardware.errors = [again]

    def power_goes(self, *_):
        self.boards_finish()
        self.kill()
        self.running.clear()
        self.hardware.runs.clear()
        for file in (self.folder / "journal").glob("*.json"):
            file.write_text(json.dumps(json.loads(file.read_text()) | {"boot": "before"}))
        self.start()

    def check(self):
        wanted = {self.pods[uid] for uid in self.running}
        assert {(self.hardware.runs.get(board), board) for _, board in wanted} == wanted


OFTEN = (
    (FunctionNode.pod_comes,) * 10
    + (FunctionNode.pod_of_a_board_is_deleted,) * 4
    + (FunctionNode.container_starts_again,) * 2
)
RARELY = (
    FunctionNode.node_is_looked_at,
    FunctionNode.gateway_restarts,
    FunctionNode.power_goes,
    FunctionNode.next_programming_fails,
)
SLOWLY = FunctionNode.board_becomes_slow, FunctionNode.boards_finish, FunctionNode.boards_finish
EVENTS = st.tuples(
    st.sampled_from(OFTEN + RARELY + SLOWLY), st.sampled_from(FUNCTIONS), st.sampled_from(BOARDS), st.booleans()
)


# What is drawn doesn't depend on what has happened, because that depends on how fast the threads are.
@given(st.lists(EVENTS, min_size=30, max_size=80))
@settings(deadline=None, max_examples=15)
def test_containers_have_their_pods_function(events):
    node = FunctionNode()
    try:
        node.start()
        for happens, name, board, choice in events:
            happens(node, name, board, choice)
            node.check()
    finally:
        node.end()
