"""The driver: a pool of boards, all with the same bitstream."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from dpgateway import Allocation, Context, Device, DeviceNode, DeviceUnavailable, DriverError
from dpgateway_fpga.options import FpgaOptions
from dpgateway_fpga.programmers import PROGRAMMERS, Programmer
from dpgateway_fpga.slot import Slot


class FpgaDriver:
    """Hands out boards without delay, and programs them when a container is about to start."""

    Options = FpgaOptions

    def __init__(self, options: FpgaOptions, context: Context, programmer: Programmer | None = None) -> None:
        self._options = options
        programmer = programmer or PROGRAMMERS[options.programmer](options)
        self._slots = {board.id: Slot(board, options, programmer, context) for board in options.boards}

    def devices(self) -> Iterable[Device]:
        return [slot.device() for slot in self._slots.values()]

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        boards = [self._slot(device).board for device in devices]
        return Allocation(
            env={"FPGA_BITSTREAM": self._options.bitstream.id, "FPGA_BOARDS": ",".join(board.id for board in boards)},
            device_nodes=tuple(DeviceNode(node) for board in boards for node in board.nodes),
        )

    def prepare(self, devices: Sequence[Device]) -> None:
        """Programs the boards at the same time, because the kubelet waits 30 s for all of them together."""
        slots = [self._slot(device) for device in devices]
        errors: list[str] = []
        threads = [threading.Thread(target=_ensure, args=(slot, errors), daemon=True) for slot in slots[1:]]
        for thread in threads:
            thread.start()
        for slot in slots[:1]:
            _ensure(slot, errors)
        for thread in threads:
            thread.join()
        if errors:
            raise DriverError("; ".join(sorted(errors)))

    def close(self) -> None:
        for slot in self._slots.values():
            slot.close()

    def _slot(self, device: Device) -> Slot:
        if device.id not in self._slots:
            raise DeviceUnavailable(f"board {device.id!r} isn't in the pool {self._options.pool!r}")
        return self._slots[device.id]


def _ensure(slot: Slot, errors: list[str]) -> None:
    try:
        slot.ensure()
    except BaseException as error:  # this runs on a thread of its own, where nobody else would catch it
        errors.append(str(error) or repr(error))
