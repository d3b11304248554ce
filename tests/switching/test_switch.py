"""One group from front to front: when a state ends, what each front may offer meanwhile, and what a kill leaves."""

import asyncio
from dataclasses import replace

import pytest

from dpgateway.cluster.errors import ClusterError
from dpgateway.errors import GatewayError
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from dpgateway.switching.choosing import BETWEEN, Group
from dpgateway.switching.facts import DraFacts, Fact
from dpgateway.switching.states import LARGEST, SwitchFiles, SwitchRecord, SwitchState
from dpgateway.switching.switch import (
    ADMITTING,
    FIRST,
    LIST_AGAIN,
    LOOK,
    PATIENCE,
    PENDING,
    SETTLING,
    SETTLING_CLAIMS,
    SPREAD,
    FrontSwitch,
)
from dpgateway.switching.view import GroupView
from tests.support.threads import StuckDisk
from tests.support.time import hurry
from tests.support.waiting import until

NAME, GROUP, POOL = "example.com/thing", "boards", "node/boards"
P, LP, D, LD = SwitchState.PLUGIN, SwitchState.LEAVING_PLUGIN, SwitchState.DRA, SwitchState.LEAVING_DRA
YES = Fact(True)
ALL = DraFacts(YES, YES, YES, YES, {}, {NAME: YES}, {NAME: 4})


class Rig:
    """The gateway as a group sees it, and the time."""

    def __init__(self, folder):
        self.files, self.facts = SwitchFiles(folder, Threads()), Observable(ALL)
        self.now, self.served, self.flying, self.slices, self.claims = 1000.0, True, False, 0, []
        self.moves, self.offers, self.jitter = [], [], 0.0
        self.other = ""
        self.ahead, self.up, self.driver, self.kubelet, self.lists = 1e9, True, True, True, 0
        self.earlier = False
        self.started = 0.0
        self.begin()

    def begin(self):
        """A gateway starts."""
        record = self.files.look(GROUP) or SwitchRecord(GROUP)
        self.switch = FrontSwitch(record, self.facts, self, self.files, clock=self)
        self.switch.group = Group((NAME,), pool=POOL)

    # its clock

    def monotonic(self):
        return self.now

    def time(self):
        return self.now + self.ahead

    # the gateway

    def view(self, group, front):
        closed, age = "" if self.driver else "the driver", self.now - self.started
        return GroupView(self.served, self.other, closed, self.kubelet, age, self.flying, self.up)

    async def known(self, names):
        return self.earlier

    async def move(self, names):
        self.moves.append((*names, self.switch.record.state.front))

    def offer(self):
        self.offers.append(self.switch.record.state)

    def published(self, pool):
        assert pool == POOL
        return self.slices

    async def pending(self, pool, since):
        assert self.now >= since
        self.lists += 1
        if isinstance(self.claims, Exception):
            raise self.claims
        return self.claims

    # a test's verbs

    def remember(self):
        """The kubelet knows the resource, and nobody knows the classes yet."""
        self.earlier = True
        self.know(classes=None)

    def older_kubelet(self):
        self.know(node=Fact(False, "an old kubelet", self.now))

    def lose_class(self, seconds=30):
        """The class went so long ago, and the group may change its front again."""
        self.now += BETWEEN
        self.know(classes={NAME: Fact(False, "no class", self.now - seconds)})

    def fill(self):
        """No state can be written or read any more."""
        self.files.folder.parent.mkdir(parents=True, exist_ok=True)
        if self.files.folder.exists():
            self.files.folder.rename(self.kept)
        self.files.folder.write_text("in the way")

    def free(self):
        """The disk is as it was before it was full."""
        self.files.folder.unlink()
        if self.kept.exists():
            self.kept.rename(self.files.folder)

    async def leave_plugin(self):
        """The group leaves the device plugin, and the Node shows none of its devices any more."""
        await self.after(0)
        self.know(allocatable={})
        await self.after(1)

    @property
    def kept(self):
        return self.files.folder.with_suffix(".kept")

    @property
    def state(self):
        return self.switch.record.state

    def know(self, **facts):
        self.facts.set(replace(self.facts.value, **facts))

    async def after(self, seconds):
        """So many seconds later; returns the state."""
        self.now += seconds
        await self.switch.step()
        assert (self.files.look(GROUP) or SwitchRecord(GROUP)) == self.switch.record, "on disk before it has an effect"
        return self.state


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


@pytest.fixture
async def on_dra(rig):
    assert await rig.after(0) is LP
    rig.know(allocatable={NAME: 0})
    await rig.after(1)
    assert await rig.after(SETTLING) is D
    rig.slices = 4
    return rig


async def test_nothing_moves_while_the_kubelet_is_away(rig):
    """The facts are of the kubelet before, and the next one may be older."""
    rig.kubelet = False
    assert await rig.after(0) is P
    assert "a kubelet" in rig.switch.waits_for
    rig.kubelet = True
    assert await rig.after(LOOK) is LP
    rig.know(allocatable={NAME: 0})
    await rig.after(1)
    rig.kubelet = False
    assert await rig.after(SETTLING) is LP
    rig.kubelet = True
    await rig.after(LOOK)
    assert await rig.after(SETTLING) is D


async def test_a_kubelet_that_has_just_started_admits_its_pods_first(rig):
    rig.started = rig.now
    assert await rig.after(1) is P
    assert "waited for the kubelet" in rig.switch.waits_for
    assert await rig.switch.step() == ADMITTING - 1
    assert await rig.after(ADMITTING - 1) is LP


async def test_to_dra_once_the_node_shows_no_device(rig):
    assert await rig.after(0) is LP
    assert rig.offers == [LP]
    assert await rig.after(8) is LP, "the Node still shows four"
    assert rig.switch.waits_for.endswith(f"found 4 of {NAME}")
    rig.know(allocatable={"example.com/other": 2})
    assert await rig.after(0) is LP
    assert await rig.after(SETTLING / 2) is LP
    assert rig.moves == []
    assert await rig.after(SETTLING / 2) is D
    assert rig.moves == [(NAME, "dra")]


@pytest.mark.parametrize("what", ["a pod that comes", "the Node shows devices again", "the Node is unknown"])
async def test_settling_begins_anew(rig, what):
    await rig.leave_plugin()
    if what == "a pod that comes":
        rig.flying = True
    else:
        rig.know(allocatable={NAME: 4} if "again" in what else None)
    assert await rig.after(SETTLING) is LP
    rig.flying = False
    rig.know(allocatable={})
    assert await rig.after(0) is LP
    assert await rig.after(SETTLING) is D


async def test_an_allocate_that_ends_without_a_grant_is_noticed_soon(rig):
    """It changes nothing else that anybody tells of."""
    await rig.after(0)
    rig.know(allocatable={})
    rig.flying = True
    assert await rig.switch.step() <= LOOK


async def test_a_node_that_shows_devices_for_ever_gets_them_back(rig):
    assert await rig.after(0) is LP
    assert await rig.after(PATIENCE - 1) is LP
    assert await rig.after(2) is P
    assert rig.offers == [LP, P]
    assert rig.moves == []


async def test_another_gateway_that_has_the_driver(rig):
    """It may take the resources over, too, or hang before it does."""
    rig.driver = False
    assert await rig.after(1) is P
    assert rig.switch.status.waits_for == "the driver"
    rig.driver = True
    assert await rig.after(LOOK) is LP
    rig.driver = False
    rig.know(allocatable={})
    assert await rig.after(SETTLING + 1) is LP
    assert await rig.after(PATIENCE) is P


async def test_a_clock_that_is_set_back_ends_it_all_the_same(rig):
    assert await rig.after(0) is LP
    rig.ahead -= 86400
    assert await rig.after(PATIENCE - 1) is LP
    assert await rig.after(2) is P


async def test_what_turns_false_meanwhile_ends_it(rig):
    await rig.after(0)
    rig.older_kubelet()
    assert await rig.after(1) is P
    assert rig.moves == []


async def test_what_is_unknown_meanwhile_is_waited_for(rig):
    await rig.after(0)
    rig.know(registered=Fact(None), allocatable={})
    assert await rig.after(SETTLING + 1) is LP
    rig.know(registered=YES)
    await rig.after(1)
    assert await rig.after(SETTLING) is D


async def test_back_at_once_for_an_older_kubelet(on_dra):
    rig = on_dra
    rig.older_kubelet()
    assert await rig.after(1) is LD
    assert await rig.after(30) is LD, "its slices aren't empty yet"
    rig.slices, rig.claims = 0, ["default/one"]
    await rig.after(0)
    assert await rig.after(SETTLING - 1) is LD
    assert await rig.after(1) is P, "such a kubelet prepares no claim"
    assert rig.moves[-1] == (NAME, "deviceplugin")
    assert rig.offers[-2:] == [LD, P]


@pytest.mark.parametrize("found", [["default/one"], ClusterError("away")], ids=["pending", "unknown"])
async def test_back_without_a_class_waits_for_claims(on_dra, found):
    rig = on_dra
    rig.lose_class(0)
    assert await rig.after(29) is D
    assert await rig.after(1) is LD
    rig.slices, rig.claims = 0, found
    await rig.after(0)
    assert await rig.after(SETTLING_CLAIMS) is LD
    rig.claims = found if isinstance(found, Exception) else []
    assert await rig.after(PENDING - 1) is (P if not isinstance(found, Exception) else LD)
    assert await rig.after(1) is P


async def test_a_failed_list_of_claims_isnt_repeated_at_each_change(on_dra):
    rig = on_dra
    rig.lose_class()
    rig.slices, rig.claims = 0, ClusterError("forbidden", 403)
    assert await rig.after(0) is LD
    await rig.after(0)
    for seconds in (SETTLING_CLAIMS, 0, 1, LIST_AGAIN - 2):
        assert await rig.after(seconds) is LD
    assert rig.lists == 1
    assert "forbidden" in rig.switch.waits_for
    rig.claims = []
    assert await rig.after(1) is P


async def test_nodes_list_the_claims_one_after_the_other(on_dra):
    """A class that goes takes all of them off DRA in the same second."""
    rig = on_dra
    rig.lose_class()
    rig.slices, rig.jitter = 0, 0.5
    assert await rig.after(0) is LD
    await rig.after(0)
    assert await rig.after(SETTLING_CLAIMS) is LD
    assert rig.lists == 0
    assert await rig.after(SPREAD / 2) is P
    assert rig.lists == 1


async def test_an_older_kubelet_waits_for_no_list_of_claims(on_dra):
    rig = on_dra
    rig.older_kubelet()
    rig.slices, rig.jitter = 0, 1.0
    await rig.after(1)
    await rig.after(0)
    assert await rig.after(SETTLING_CLAIMS) is P
    assert rig.lists == 0


async def test_a_class_that_is_back_in_time(on_dra):
    rig = on_dra
    rig.lose_class()
    assert await rig.after(0) is LD
    rig.know(classes={NAME: Fact(True, "", rig.now)})
    assert await rig.after(1) is D
    assert rig.moves == [(NAME, "dra")], "it never left"


async def test_slices_that_may_not_be_emptied(on_dra):
    rig = on_dra
    rig.older_kubelet()
    rig.up = False
    assert await rig.after(1) is LD
    assert await rig.after(3600) is LD, "nobody sends pods while the API server is away"
    rig.up = True
    assert await rig.after(1) is LD
    assert await rig.after(SETTLING_CLAIMS) is P


@pytest.mark.parametrize("waits", [0, PATIENCE + 1], ids=["starts", "has waited for another one"])
async def test_slices_that_this_gateway_hasnt_tried_to_empty(rig, waits):
    """However long an earlier gateway tried: a list and slices at once would give the same devices away."""
    await rig.files.write(SwitchRecord(GROUP, LD, int(rig.time()) - 600, "it was so"))
    rig.begin()
    rig.know(node=Fact(False, "an old kubelet", rig.now), allocatable={})
    rig.slices, rig.served = 4, False
    await rig.after(waits)
    rig.served = True
    await rig.after(1)
    assert await rig.after(SETTLING_CLAIMS) is LD
    assert await rig.after(PATIENCE) is LD
    assert await rig.after(SETTLING_CLAIMS) is P


async def test_a_gateway_that_has_just_begun_goes_on_leaving(on_dra):
    rig = on_dra
    rig.lose_class()
    assert await rig.after(0) is LD
    rig.begin()
    rig.know(classes={NAME: Fact(False, "no class", rig.now)})
    assert await rig.after(1) is LD, "slices would have a class's devices again, which isn't there"


@pytest.mark.parametrize("unknown", ["registered", "node", "slices", "rights"])
async def test_unknown_changes_nothing(on_dra, unknown):
    on_dra.know(**{unknown: Fact(None, "isn't known")})
    assert await on_dra.after(1000) is D
    assert on_dra.switch.status.because == "it stays on DRA: isn't known"
    on_dra.know(**{unknown: YES})
    await on_dra.after(1)
    assert on_dra.switch.status.because == "all that DRA needs is there"


async def test_only_the_gateway_that_serves_acts(rig):
    rig.served, rig.other = False, "waiting because another gateway serves it; this one takes over once it is ready"
    assert await rig.after(10) is P
    assert rig.switch.status.waits_for.startswith(f"{NAME} to be served here; until then their front is the other")
    assert rig.switch.status.waits_for.endswith("this one takes over once it is ready"), "so it says who is next"
    # the other gateway goes to DRA meanwhile
    await rig.files.write(SwitchRecord(GROUP, D))
    assert await rig.after(LOOK) is D
    assert rig.moves[-1] == (NAME, "dra")
    assert rig.offers == [D]


@pytest.mark.parametrize("state", [P, LP, D, LD])
async def test_a_killed_gateways_successor_goes_on(rig, state):
    await rig.files.write(SwitchRecord(GROUP, state, int(rig.time()), "it was so"))
    rig.begin()
    assert rig.state is state
    rig.know(allocatable={})
    if state in {P, LP}:
        await rig.after(0)
        await rig.after(1)
        assert await rig.after(SETTLING) is D
    else:
        rig.older_kubelet()
        await rig.after(0)
        await rig.after(0)
        assert await rig.after(SETTLING_CLAIMS) is P


async def test_a_change_that_a_kubelet_forces_does_not_count(on_dra):
    before = on_dra.switch.record.changes
    on_dra.know(node=Fact(False, "kubelet v1.34.0"))
    assert await on_dra.after(1) is LD
    assert on_dra.switch.record.changes == before


async def test_too_many_changes_stay_on_the_device_plugin(rig):
    for _ in range(3):
        assert await rig.after(BETWEEN) is LP
        rig.older_kubelet()
        assert await rig.after(1) is P
        rig.know(node=Fact(True, "", rig.now))
    assert await rig.after(BETWEEN) is P
    assert rig.switch.choice.flaps
    assert "its front changed 3 times" in rig.switch.status.because, "and not what brought it here"
    assert await rig.after(3700) is LP


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 60000,
        '{"version": 1, "group": "boards", "state": "gone"}',
        '{"version": 1, "group": "boards", "state": ["dra"]}',
        '{"version": 1, "group": "boards", "state": "dra", "since": 1e400}',
        '{"version": 1, "group": "boards", "state": "dra", "since": -1e17}',
        '{"version": 1, "group": "boards", "state": "dra", "changes": [1%s]}' % ("0" * 400),
        '{"version": 1, "group": "another", "state": "dra"}',
        " " * (LARGEST + 1),
        None,
    ],
    ids=lambda text: "a folder" if text is None else text[:20] + text[-20:],
)
async def test_a_damaged_state_is_said_to_be_one(rig, text):
    await rig.files.write(SwitchRecord(GROUP, D))
    path = next(rig.files.folder.iterdir())
    if text is None:
        path.unlink()
        path.mkdir()
    else:
        path.write_text(text)
    with pytest.raises(ValueError):  # noqa: PT011
        rig.files.look(GROUP)
    await rig.switch.refresh()
    assert rig.state is P


async def test_changes_of_an_earlier_boot_mean_nothing(rig):
    changes = 800.0, 850.0, 900.0
    await rig.files.write(SwitchRecord(GROUP, D, int(rig.time()), "", changes))
    rig.begin()
    assert await rig.after(1) is LD, "too many"
    await rig.files.write(SwitchRecord(GROUP, D, int(rig.ahead) - 60, "", changes))
    rig.begin()
    assert await rig.after(1) is D


async def test_a_state_that_is_written_late_is_written_over(rig, tmp_path):
    """A disk that hung: nobody wants that state any more."""
    disk = StuckDisk("fronts")
    rig.files = SwitchFiles(tmp_path, disk)
    rig.begin()
    disk.stick()
    step = asyncio.create_task(rig.switch.step())
    await until(lambda: disk.hanging)
    hurry(50)
    await until(step.done)
    hurry(0.02)
    disk.go_on()
    await until(lambda: not disk.hanging)
    assert (rig.state, rig.files.look(GROUP).state) == (P, LP)
    rig.kubelet = False
    assert await rig.after(LOOK) is P


async def test_a_full_disk_changes_nothing(rig):
    rig.fill()
    rig.now += 1
    assert await rig.switch.step() == LOOK
    assert (rig.state, rig.offers) == (P, [])
    rig.free()
    assert await rig.after(LOOK) is LP


@pytest.mark.parametrize("state", [LP, LD])
async def test_a_full_disk_keeps_no_devices_from_both_fronts(rig, state):
    """The state in which nobody offers them ends all the same; the next gateway would go on from that one."""
    await rig.files.write(SwitchRecord(GROUP, state, int(rig.time()), "it was so"))
    rig.begin()
    rig.older_kubelet()
    rig.fill()
    await rig.switch.step()
    rig.now += SETTLING_CLAIMS
    await rig.switch.step()
    assert rig.state is P
    assert rig.offers[-1] is P
    rig.know(node=Fact(True, "", rig.now))
    rig.now += BETWEEN
    assert await rig.switch.step() == LOOK
    assert rig.state is P, "it isn't left before it is on disk"
    rig.free()
    rig.now += LOOK
    await rig.switch.step()
    rig.begin()
    assert rig.state is LP


async def test_a_full_disk_keeps_no_devices_from_an_older_kubelet(on_dra):
    """By DRA nobody can have them, and no successor offers them there: it leaves DRA, too."""
    rig = on_dra
    rig.fill()
    rig.know(node=Fact(False, "an old kubelet", rig.now), allocatable={NAME: 0})
    rig.now += 1
    await rig.switch.step()
    assert rig.state is LD
    assert rig.moves == [(NAME, "dra")]
    rig.slices = 0
    await rig.switch.step()
    rig.now += SETTLING
    await rig.switch.step()
    assert rig.state is P
    assert rig.moves[-1] == (NAME, "deviceplugin")
    rig.know(node=Fact(True, "", rig.now))
    rig.now += BETWEEN
    assert await rig.switch.step() == LOOK
    assert rig.state is P, "it isn't left before it is on disk"
    rig.free()
    assert await rig.after(LOOK) is LP


async def test_a_gateway_that_starts_with_a_full_disk_and_an_older_kubelet(rig):
    """What the disk has can be read."""

    class Full(SwitchFiles):
        async def write(self, one):
            raise OSError("no space left on device")

    await rig.files.write(SwitchRecord(GROUP, D, int(rig.time())))
    rig.files = Full(rig.files.folder.parent.parent, Threads())
    rig.begin()
    rig.older_kubelet()
    await rig.switch.step()
    assert rig.state is LD
    with pytest.raises(OSError, match="no space"):
        await rig.switch.refresh()
    assert rig.state is LD, "what isn't on disk is of this gateway"
    await rig.switch.step()
    rig.now += SETTLING
    await rig.switch.step()
    assert (rig.state, rig.moves) == (P, [(NAME, "deviceplugin")])


async def test_a_full_disk_keeps_a_group_on_dra_otherwise(on_dra):
    rig = on_dra
    rig.fill()
    rig.lose_class(100)
    assert await rig.switch.step() == LOOK
    assert rig.state is D


@pytest.fixture
async def unsaved(rig):
    """The disk is full, so it has `leaving-dra`, and the device plugin offers the devices."""
    await rig.files.write(SwitchRecord(GROUP, LD, int(rig.time()), "it was so"))
    rig.begin()
    rig.know(classes={NAME: Fact(False, "no class", rig.now - 100)}, allocatable={NAME: 0})
    rig.fill()
    await rig.switch.step()
    rig.now += SETTLING_CLAIMS
    await rig.switch.step()
    assert rig.state is P
    return rig


async def test_a_state_that_isnt_on_disk_is_tried_again_from_time_to_time(unsaved):
    rig = unsaved
    rig.now += LOOK
    await rig.switch.step()
    rig.free()
    rig.now += LOOK - 1
    assert await rig.switch.step() == LOOK
    assert rig.files.look(GROUP).state is LD
    rig.now += 1
    await rig.switch.step()
    assert rig.files.look(GROUP).state is P


async def test_a_state_that_isnt_on_disk_undoes_no_other_gateways(unsaved):
    rig = unsaved
    rig.served = False
    rig.free()
    await rig.files.write(SwitchRecord(GROUP, D, int(rig.time()), "another gateway"))
    rig.now += LOOK
    await rig.switch.step()
    assert rig.files.look(GROUP).state is D


async def test_a_successor_sees_that_a_plugin_offers_although_the_disk_doesnt_say_so(unsaved):
    rig = unsaved
    rig.free()
    rig.know(allocatable={NAME: 4}, classes={NAME: Fact(True, "", rig.now - 100)})
    rig.now += BETWEEN
    rig.begin()
    assert rig.state is LD
    await rig.switch.step()
    assert rig.state is LD, "no slices beside the Node's devices"
    await rig.after(SETTLING_CLAIMS)
    assert rig.state is P


async def test_a_write_that_comes_late_is_written_over(rig):
    class Slow(SwitchFiles):
        """A disk that takes its time for one write."""

        async def write(self, one):
            if one.state is D:
                self.late = one
                raise GatewayError("the disk doesn't answer")
            await super().write(one)

    rig.files = Slow(rig.files.folder.parent.parent, Threads())
    rig.begin()
    await rig.leave_plugin()
    rig.now += SETTLING
    await rig.switch.step()
    assert rig.state is P
    await SwitchFiles.write(rig.files, rig.files.late)
    rig.now += LOOK
    await rig.switch.step()
    assert rig.files.look(GROUP).state is not D


async def test_a_full_disk_on_the_way_to_dra(rig):
    """It goes back: a successor that found it leaving the device plugin wouldn't know of its slices."""
    await rig.leave_plugin()
    rig.fill()
    rig.now += SETTLING
    await rig.switch.step()
    assert (rig.state, rig.moves) == (P, [])
    assert "can't be written" in rig.switch.status.because


async def test_a_state_that_was_read_before_a_write_doesnt_undo_it(rig):
    class Memory(SwitchFiles):
        """The disk; a read takes its time."""

        one = SwitchRecord(GROUP)

        async def read(self, group):
            found = self.one
            for _ in range(100):
                await asyncio.sleep(0)
            return found

        async def write(self, one):
            self.one = one

    disk = Memory(rig.files.folder, Threads())
    switch = FrontSwitch(disk.one, rig.facts, rig, disk, clock=rig)
    switch.group = rig.switch.group
    await asyncio.gather(switch.refresh(), switch.step())
    assert (switch.record.state, disk.one) == (LP, switch.record)


async def test_where_a_reload_found_it_is_on_disk_before_its_first_step(rig):
    """Else the next gateway would begin elsewhere."""
    rig.switch = FrontSwitch(SwitchRecord(GROUP, D), rig.facts, rig, rig.files, clock=rig)
    rig.switch.saved = False
    rig.switch.group = Group((NAME,), pool=POOL)
    assert await rig.after(0) is D
    rig.begin()
    assert rig.state is D


async def test_what_the_disk_has_of_before_a_reload_isnt_taken_for_another_gateways(rig):
    await rig.files.write(SwitchRecord(GROUP, D))
    rig.switch = FrontSwitch(SwitchRecord(GROUP), rig.facts, rig, rig.files, clock=rig)
    rig.switch.saved = False
    await rig.switch.refresh()
    assert (rig.state, rig.files.look(GROUP).state) == (P, P)


class TestFirst:
    """Nothing has offered the group on this node yet."""

    @pytest.fixture
    def first(self, rig):
        rig.know(allocatable={})
        rig.switch.begun.clear()
        rig.switch.locked.add(NAME)
        return rig

    async def test_it_begins_on_dra(self, first):
        assert await first.after(0) is D
        assert first.switch.begun.is_set()
        assert first.moves == [], "nothing serves it yet"

    @pytest.mark.parametrize("recorded", [False, True])
    async def test_a_gateway_that_is_killed_at_its_choice(self, first, recorded):
        """Its successor chooses again, or begins there although it doesn't know yet what DRA needs."""
        if recorded:
            await first.after(0)
            first.know(classes=None)
        first.begin()
        first.switch.begun.clear()
        first.switch.locked.add(NAME)
        assert await first.after(0) is D
        assert first.switch.begun.is_set()

    async def test_it_waits_for_what_dra_needs(self, first):
        first.know(registered=Fact(False, "not registered", first.now))
        assert await first.after(0) is P
        assert not first.switch.begun.is_set()
        assert first.switch.waits_for == "not registered"
        first.know(registered=YES)
        assert await first.after(1) is D

    async def test_what_misses_for_long(self, first):
        first.know(classes=None)
        await first.after(0)
        assert not first.switch.begun.is_set()
        assert await first.after(FIRST) is P
        assert first.switch.begun.is_set()

    @pytest.mark.parametrize(
        "change",
        [
            lambda it: it.know(node=Fact(False, "kubelet v1.31.0")),
            lambda it: it.know(allocatable={NAME: 1}),
            lambda it: it.remember(),
        ],
        ids=["older kubelet", "the Node shows devices", "the kubelet knows it"],
    )
    async def test_the_device_plugin_begins_at_once(self, first, change):
        change(first)
        assert await first.after(0) is P
        assert first.switch.begun.is_set()

    async def test_its_time_begins_with_the_first_lock(self, first):
        first.know(classes=None)
        first.switch.locked.clear()
        await first.after(10 * FIRST)
        first.switch.locked.add(NAME)
        await first.after(1)
        assert not first.switch.begun.is_set()

    async def test_one_that_another_gateway_serves(self, first):
        first.switch.group = Group((NAME, "example.com/other"), pool=POOL)
        first.know(classes={NAME: YES, "example.com/other": YES})
        await first.after(0)
        assert not first.switch.begun.is_set()
        assert await first.after(FIRST) is P
        assert first.switch.begun.is_set()

    async def test_another_gateway_has_chosen(self, first):
        chosen = SwitchRecord(GROUP, D, 7, "another gateway")
        await first.files.write(chosen)
        first.know(node=Fact(False, "kubelet v1.31.0"))
        await first.switch.step()
        assert first.switch.record == chosen

    async def test_a_full_disk(self, first):
        first.files.folder.parent.write_text("no folder can be made here")
        await first.switch.step()
        assert (first.state, first.switch.begun.is_set()) == (P, True)
