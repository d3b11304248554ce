"""A good driver, as an author would write it, and bad ones, each with one fault, in what its name says."""

import asyncio
import itertools
import threading
from dataclasses import dataclass, field, make_dataclass
from typing import Any

from dpgateway import Allocation, Candidate, Device, DeviceNode, DeviceUnavailable, Health


@dataclass(frozen=True)
class GoodOptions:
    count: int = field(default=3, metadata={"help": "how many devices there are"})


class Good:
    Options: type[Any] = GoodOptions

    def __init__(self, options=GoodOptions(), context=None):
        self.ids = [f"good-{n}" for n in range(options.count)]
        self.context = context

    def devices(self):
        yield from [Device(name) for name in self.ids]
        yield Device("sick", Health.unhealthy("always so"))

    def allocate(self, devices):
        for device in devices:
            if device.id not in self.ids:
                raise DeviceUnavailable(f"{device.id} can't be given")
        return Allocation(device_nodes=tuple(DeviceNode(f"/dev/{d.id}") for d in devices))

    def prefer(self, available, must_include, size):
        return [*must_include, *(d for d in available if d not in must_include)][:size]

    def prepare(self, devices):
        pass

    def release(self, devices):
        pass

    def explain(self, about):
        yield from [Candidate(name, device=name) for name in self.ids]

    def close(self):
        pass


class ExplainsNames(Good):
    def explain(self, about):
        return self.ids


class ExplainsOthers(Good):
    def explain(self, about):
        return [Candidate("slot 1", device="good-9")]


class PreviewsAnother(Good):
    def preview(self, device):
        return Allocation()


class WithoutDevices(Good):
    devices = None  # type: ignore[assignment]  # its fault


class AsyncAllocate(Good):
    async def allocate(self, devices):
        await asyncio.sleep(0)


class NoOptions(Good):
    Options = None  # type: ignore[assignment]  # its fault


class ThawedOptions(Good):
    Options = make_dataclass("Thawed", [("count", int, field(default=1, metadata={"help": "how many"}))])


@dataclass(frozen=True)
class _Unexplained:
    count: int = 1


class UnexplainedOptions(Good):
    Options = _Unexplained


class UnexplainedPart(Good):
    Options = make_dataclass(
        "Whole",
        [("parts", tuple[_Unexplained, ...], field(default=(), metadata={"help": "its parts"}))],
        frozen=True,
    )


class UnknownType(Good):
    Options = make_dataclass("Unknown", [("x", "Nowhere", field(default=1, metadata={"help": "x"}))], frozen=True)


@dataclass(frozen=True)
class _NeedsMore:
    count: int = field(default=0, metadata={"help": "how many"})

    def __post_init__(self):
        if not self.count:
            raise ValueError("count: expected more than 0")


class InvalidDefaults(Good):
    Options = _NeedsMore


class DevicesReturnsIds(Good):
    def devices(self):
        return self.ids


class DevicesReturnsNone(Good):
    def devices(self):
        return None


class DevicesTwice(Good):
    def devices(self):
        return [Device("a"), Device("b"), Device("a")]


class DevicesEndless(Good):
    def devices(self):
        return map(Device, map(str, itertools.count()))


class DevicesNoneHealthy(Good):
    def devices(self):
        return [Device("a", Health.unhealthy("cold"))]


class DevicesNumbered(Good):
    def __init__(self, *_):
        self.numbers = itertools.count()

    def devices(self):
        return [Device(f"d{next(self.numbers)}")]


class DevicesAnew(Good):
    lives = itertools.count()

    def __init__(self, *_):
        super().__init__()
        self.ids = [f"life-{next(self.lives)}"]


class DevicesShareName(Good):
    def devices(self):
        device = Device("a")
        object.__setattr__(device, "id", "a::1")
        return [device]


class DevicesHang(Good):
    def devices(self):
        threading.Event().wait()


class DevicesOnOneThread(Good):
    def __init__(self, *_):
        super().__init__()
        self.thread = threading.get_ident()

    def devices(self):
        if threading.get_ident() != self.thread:
            raise RuntimeError("wrong thread")
        return super().devices()


class AllocateReturnsDict(Good):
    def allocate(self, devices):
        return {"env": {}}


class AllocateOnce(Good):
    def allocate(self, devices):
        if taken := [d.id for d in devices if d.id not in self.ids]:
            raise DeviceUnavailable(f"{taken} is taken")
        self.ids = [name for name in self.ids if name not in {d.id for d in devices}]
        return Allocation()


class AllocateCounts(Good):
    def __init__(self, *_):
        super().__init__()
        self.count = 0

    def allocate(self, devices):
        self.count += 1
        return Allocation(env={"COUNT": str(self.count)})


class AllocateOnlyOne(Good):
    def allocate(self, devices):
        return Allocation(device_nodes=tuple(DeviceNode(f"/dev/{d.id}", "/dev/thing") for d in devices))


class AllocateKeyError(Good):
    def allocate(self, devices):
        known = {name: f"/dev/{name}" for name in [*self.ids, "sick"]}
        return Allocation(device_nodes=tuple(DeviceNode(known[d.id]) for d in devices))


class AllocateRelativePath(Good):
    def allocate(self, devices):
        return Allocation(device_nodes=tuple(DeviceNode(f"dev/{d.id}") for d in devices))


class PrepareOnce(Good):
    def __init__(self, *_):
        super().__init__()
        self.prepared = set()

    def prepare(self, devices):
        if self.prepared & {d.id for d in devices}:
            raise DeviceUnavailable("prepared already")
        self.prepared |= {d.id for d in devices}


class PrepareReturnsTrue(Good):
    def prepare(self, devices):
        return True


class PrepareValueError(Good):
    def prepare(self, devices):
        for device in devices:
            self.ids.index(device.id)


class PreferForgets(Good):
    def prefer(self, available, must_include, size):
        return list(available)[:size]


class PreferTooFew(Good):
    def prefer(self, available, must_include, size):
        return must_include


class PreferRepeats(Good):
    def prefer(self, available, must_include, size):
        return [*must_include, *[available[0]] * size][:size]


class ReleaseOnce(Good):
    def __init__(self, *_):
        super().__init__()
        self.held = set()

    def allocate(self, devices):
        self.held |= {d.id for d in devices}
        return super().allocate(devices)

    def release(self, devices):
        for device in devices:
            self.held.remove(device.id)


class CloseOnce(Good):
    open = True

    def close(self):
        assert self.open, "closed twice"
        self.open = False


class ClosedThenBroken(Good):
    def close(self):
        del self.ids[:]
        self.allocate = None  # type: ignore[assignment, method-assign]  # its fault


class LeavesThread(Good):
    def __init__(self, *_):
        super().__init__()
        threading.Thread(target=threading.Event().wait, name="left-over", daemon=True).start()


class LeavesThreadWithoutClose(LeavesThread):
    close = None  # type: ignore[assignment]  # its fault


class Shares(Good):
    """Its one dictionary is used by all methods, unlocked: listing changes it, allocating reads it half changed."""

    def __init__(self, *_):
        super().__init__()
        self.known, self.half = {}, threading.Event()

    def devices(self):
        self.known.clear()
        self.half.set()
        threading.Event().wait(0.02)  # as long as slow hardware takes to answer
        self.half.clear()
        for name in self.ids:
            self.known[name] = Device(name)
        return list(self.known.values())

    def allocate(self, devices):
        self.half.wait(0.2)  # or all rounds would be over before a late thread lists
        return Allocation(env={d.id: repr(self.known.get(d.id)) for d in devices})


class Deadlocks(Good):
    def __init__(self, *_):
        super().__init__()
        self.locks = threading.Lock(), threading.Lock()

    def devices(self):
        with self.locks[0]:
            threading.Event().wait(0.005)  # or two threads would meet here too seldom
            with self.locks[1]:
                return list(super().devices())

    def allocate(self, devices):
        with self.locks[1]:
            threading.Event().wait(0.005)
            with self.locks[0]:
                return super().allocate(devices)


class Prepair(Good):
    prepare = None  # type: ignore[assignment]  # as if it weren't there

    def prepair(self, devices):
        pass


class GivesAllNodes(Good):
    def allocate(self, devices):
        return super().allocate([Device(name) for name in self.ids])


class GivesAllNames(Good):
    def allocate(self, devices):
        return Allocation(env={"GOOD": ",".join(self.ids)})


class GivesAllNumbers(Good):
    def allocate(self, devices):
        return Allocation(device_nodes=tuple(DeviceNode(f"/dev/vfio/{number}") for number in (7, 8, 9)))


class AsksItself(Good):
    def devices(self):
        self.context.changed()
        yield from super().devices()


class Subtle(Good):
    """Close to all that is doubtful: similar names, a node for all, ids within ids, one change of its own."""

    asked = False

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.ids = ["tty1", "tty11", "tty1-b", "7"]

    def prepared(self):
        pass

    def devices(self):
        if not self.asked:
            self.asked = True
            self.context.changed()
        yield from super().devices()

    def allocate(self, devices):
        nodes = (DeviceNode("/dev/control"), *(DeviceNode(f"/dev/{d.id}") for d in devices))
        return Allocation(device_nodes=nodes, env={"MODE": "7"})
