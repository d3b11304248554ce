"""The driver: one function (a bitstream) on boards that other resources may offer with other functions.

Theory. A look in /sys, which may hang, finds the boards; each has a *slot* (``slot``) with this resource's view of its
health. A list and a prepare both look first, so that a board that came a moment ago can be programmed. A slot lives as
long as its board is found unchanged; a replaced board gets a new one, without the faults and retries of the old.
Programming itself belongs to the board's station, which outlives slots and drivers (``station``).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dpgateway import Allocation, Busy, Context, Device, DeviceNode, DeviceUnavailable, DriverError
from dpgateway.sysfs import Complaint, Look, Watcher
from dpgateway_fpga.boards import Bitstream, Board
from dpgateway_fpga.discovery import LOOKING, concerns, concerns_usb, find
from dpgateway_fpga.ensuring import Work
from dpgateway_fpga.journal import BoardJournal
from dpgateway_fpga.options import FpgaOptions
from dpgateway_fpga.programmers import PROGRAMMERS, Programmer
from dpgateway_fpga.reader import Hung, PatientReader, together
from dpgateway_fpga.slot import Slot
from dpgateway_fpga.station import ProgrammingJob


class FpgaDriver:
    """Allocates boards without delay, and programs them just before a container starts."""

    Options = FpgaOptions

    def __init__(
        self, options: FpgaOptions, context: Context, programmer: Programmer | None = None, looking: float = LOOKING
    ) -> None:
        """``looking``: timeout in seconds of a look for boards."""
        self._options = options
        self._context = context
        self._programmer, self._journal = (
            programmer or PROGRAMMERS[options.programmer](options),
            BoardJournal(options.state_dir),
        )
        self._look = PatientReader(
            f"{options.sysfs} for boards", lambda: find(Look(options.roots), options), context.changed, looking
        )
        self._complaint = Complaint(context.log)
        event = concerns_usb if options.by_serial else concerns
        self._watcher = Watcher(f"fpga {context.resource}", context.changed, Complaint(context.log), event)
        self._slots: Mapping[str, Slot] = {board.id: self._slot_of(board) for board in options.boards}
        """Slots, keyed by board id. Replaced, never mutated, because other threads read it."""
        self._closed = False
        self._finding = threading.Lock()
        """Held during a look for boards: lists and prepares, which may run at the same time, both take one."""

    def devices(self) -> list[Device]:
        if self._options.placed:
            self._watcher.watch()
        self._find()
        # several boards that hang, or slow tools, must not outlast the list's deadline: then no board would be Healthy
        return together([slot.device for slot in self._slots.values()])

    def _find(self) -> None:
        """Creates slots for new boards, and closes those of boards that are gone or were replaced. While a look hangs
        in the kernel, the boards stay as they were.
        """
        if not self._options.placed:
            return
        with self._finding:
            try:
                found = self._look.read()
            except Hung:
                self._complaint.say("a search for boards hangs; until it ends, boards that come or go aren't noticed")
                return
            self._complaint.say(*found.notices)
            before = self._slots
            # the slot of an unchanged board is kept, with its health and retries
            same = {id_: slot for id_, slot in before.items() if slot.board in found.boards}
            self._slots = {board.id: same.get(board.id) or self._slot_of(board) for board in found.boards}
            gone = [slot for id_, slot in before.items() if id_ not in same]
            # a look may end after close(), and nothing else would end the retries of its boards
            for slot in (*gone, *(self._slots.values() if self._closed else ())):
                slot.close()

    def _slot_of(self, board: Board) -> Slot:
        work = Work(board, self._programmer, self._journal, self._context.resource, self._context.log)
        return Slot(work, self._options, self._context)

    def prefer(self, available: Sequence[Device], must_include: Sequence[Device], size: int) -> list[Device]:
        """``must_include``, then the boards that need the least programming."""
        must = {device.id for device in must_include}
        rest = [device for device in available if device.id not in must]
        best = sorted(rest, key=lambda device: self._slot(device).preference())
        return [*must_include, *best][:size]

    def with_options(self, options: FpgaOptions) -> FpgaFunction:
        return FpgaFunction(self, options.chosen)

    def allocate(self, devices: Sequence[Device], function: Bitstream | None = None) -> Allocation:
        """``function``: the one that a claim has chosen. Without one the devices may be a running container's, because
        the gateway asks again to compare answers. So boards that run an image of this resource are left to ``prepare``.
        """
        repeated, function = function is None, function or self._options.chosen
        if self._options.discover:  # the kernel numbers the nodes of found boards, and may have done so anew since
            self._find()
        slots = [self._slot(device) for device in devices]
        if self._options.prefetch:
            for slot in slots:
                with contextlib.suppress(DriverError):  # prepare reports it
                    if not (repeated and slot.has_our_image):
                        slot.begin(function)
        return Allocation(
            env={
                "FPGA_BITSTREAM": function.id,
                "FPGA_BOARDS": ",".join(slot.board.id for slot in slots),
            },
            device_nodes=tuple(DeviceNode(node) for slot in slots for node in slot.board.nodes),
        )

    def prepare(self, devices: Sequence[Device], function: Bitstream | None = None) -> None:
        """Programs the boards concurrently, because the kubelet waits 30 s for all of them together. Raises Busy if all
        errors are; DriverError with all errors. ``function``: the one that a claim has chosen.
        """
        end = time.monotonic() + self._options.wait.total_seconds()
        self._find()
        errors: list[DriverError] = []
        jobs: list[tuple[Slot, ProgrammingJob]] = []

        # all jobs begin before the first is waited for; a failed board doesn't end the attempts on the others
        for slot in [self._slot(device) for device in devices]:
            try:
                jobs.append((slot, slot.begin(function or self._options.chosen)))
            except DriverError as error:
                errors.append(error)
        for slot, job in jobs:
            try:
                slot.finish(job, end)
            except DriverError as error:
                errors.append(error)
        if errors:
            kind = Busy if all(isinstance(error, Busy) for error in errors) else DriverError
            raise kind("; ".join(sorted(map(str, errors))))

    def release(self, devices: Sequence[Device]) -> None:
        """Waits for programming under way, because the board isn't free before its end. Concurrently, so that a slow
        board doesn't keep the others from being blanked.
        """
        end, slots = time.monotonic() + self._options.wait.total_seconds(), self._slots
        together([partial(slots[device.id].free, end) for device in devices if device.id in slots])

    def close(self) -> None:
        self._watcher.close()
        self._closed = True  # before the slots are read: a look under way closes those that it sets later
        for slot in self._slots.values():
            slot.close()

    def _slot(self, device: Device) -> Slot:
        slots = self._slots  # another thread's look may replace them
        if device.id not in slots:
            known = ", ".join(slots)
            raise DeviceUnavailable(f"board {device.id!r} isn't one of the resource's boards, which are {known}")
        return slots[device.id]


@dataclass(frozen=True, slots=True)
class FpgaFunction:
    """The driver with the function that a claim has chosen. Boards, their health and their journal are the driver's."""

    driver: FpgaDriver
    function: Bitstream

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        return self.driver.allocate(devices, self.function)

    def prepare(self, devices: Sequence[Device]) -> None:
        self.driver.prepare(devices, self.function)
