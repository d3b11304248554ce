"""Boards are named by their places in the machine, so they keep their names whatever comes first."""

from dataclasses import replace

import pytest
from dpgateway_fpga import Board
from dpgateway_fpga.discovery import concerns, concerns_usb, find

from dpgateway import Device
from dpgateway.sysfs import Look, Uevent
from dpgateway.testing import FakeTree


@pytest.fixture
def tree(tmp_path):
    return FakeTree(tmp_path / "host")


@pytest.fixture
def seen(options, tree):
    """The options as they are for boards below the tree, and what is found with them."""

    def make(**changes):
        changed = replace(options, **{"boards": (), "discover": ("*",), "sysfs": str(tree.at("/sys")), **changes})
        return changed, find(Look(changed.roots), changed)

    return make


def manager(tree, address, number, bus="platform", name="Xilinx Zynq FPGA Manager"):
    here = f"/sys/devices/soc/{address}/fpga_manager/fpga{number}"
    tree.write(f"""
        /sys/devices/soc/{address}/subsystem -> /sys/bus/{bus}
        {here}/subsystem -> /sys/class/fpga_manager
        {here}/name = {name}
        /sys/class/fpga_manager/fpga{number} -> {here}
    """)


def card(tree, address, number, *ports):
    base = f"/sys/devices/pci0000:3a/{address}"
    region = f"{base}/fpga_region/region{number}"
    tree.write(f"""
        {base}/subsystem -> /sys/bus/pci
        {base}/numa_node = 1
        {region}/subsystem -> /sys/class/fpga_region
        {region}/dfl-fme.{number}/dev = 240:0
        /sys/class/fpga_region/region{number} -> {region}
    """)
    for port, minor in ports:
        tree.write(f"""
            {region}/dfl-port.{minor}/id = {port}
            {region}/dfl-port.{minor}/uevent = DEVNAME=dfl-port.{minor}
        """)


def test_ports_have_names_and_nodes(tree, seen):
    card(tree, "0000:3b:00.0", 0, (0, 1), (1, 0))
    card(tree, "0000:af:00.0", 7, (0, 4))
    found = seen(programmer="dfl")[1].boards
    assert [(one.id, one.nodes, one.numa, one.address, one.port, one.key) for one in found] == [
        ("0000:3b:00.0-p1", ("/dev/dfl-port.0",), 1, "0000:3b:00.0", 1, "0000:3b:00.0-p1"),
        ("0000:3b:00.0-p0", ("/dev/dfl-port.1",), 1, "0000:3b:00.0", 0, "0000:3b:00.0"),
        ("0000:af:00.0-p0", ("/dev/dfl-port.4",), 1, "0000:af:00.0", 0, "0000:af:00.0"),
    ]


def test_container_gets_the_nodes_of_now(tree, seen, start):
    """The cards' driver was loaded again, in another order, and nobody has told that yet."""
    card(tree, "0000:3b:00.0", 0, (0, 0))
    card(tree, "0000:af:00.0", 7, (0, 1))
    driver = start(seen(programmer="dfl")[0])
    board, _ = driver.devices()
    for address in ("0000:3b:00.0", "0000:af:00.0"):
        tree.remove(f"/sys/devices/pci0000:3a/{address}/fpga_region")
    card(tree, "0000:3b:00.0", 0, (0, 1))
    card(tree, "0000:af:00.0", 7, (0, 0))
    assert board.id == "0000:3b:00.0-p0"
    assert [node.host_path for node in driver.allocate([board]).device_nodes] == ["/dev/dfl-port.1"]


def test_managers_are_named_by_bus(tree, seen):
    manager(tree, "f8007000.devcfg", 3)
    manager(tree, "pcap", 0)
    manager(tree, "dfl-fme.0/dfl-fme-mgr.0", 1, name="DFL FME FPGA Manager")
    found = seen(programmer="fpga-manager")[1]
    assert [(board.id, board.place) for board in found.boards] == [("pcap",) * 2, ("f8007000.devcfg",) * 2]
    assert found.notices == []


def test_configured_boards_come_first(tree, seen):
    manager(tree, "f8007000.devcfg", 0)
    manager(tree, "pcap", 1)
    board = Board("mine", ("/dev/uio0",), address="pcap")
    assert [one.id for one in seen(programmer="fpga-manager", boards=(board,))[1].boards] == ["mine", "f8007000.devcfg"]
    assert [one.id for one in seen(programmer="fpga-manager", discover=("p*",))[1].boards] == ["pcap"]
    assert [one.id for one in seen(programmer="fpga-manager", boards=(board,), discover=())[1].boards] == ["mine"]


def test_logs_boards_without_lasting_name(tree, seen):
    manager(tree, "spi0.0", 0, bus="spi")
    manager(tree, "two", 1)
    tree.write("""
        /sys/devices/soc/two/fpga_manager/fpga2/subsystem -> /sys/class/fpga_manager
        /sys/class/fpga_manager/fpga2 -> /sys/devices/soc/two/fpga_manager/fpga2
    """)
    found = seen(programmer="fpga-manager")[1]
    assert found.boards == ()
    assert found.notices == [
        "/sys/devices/soc/spi0.0/fpga_manager/fpga0 isn't offered: it is on no bus whose names last",
        "two isn't offered, because it names several boards",
    ]


def test_logs_unnamed_cards_and_ports(tree, seen):
    card(tree, "0000:3b:00.0", 0, (0, 0), ("x", 1))
    tree.write("""
        /sys/devices/pci0000:3a/0000:3b:00.0/fpga_region/region0/dfl-port.2/uevent = DEVNAME=dfl-port.2
        /sys/devices/board/fpga_region/region1/dfl-port.3/id = 0
        /sys/class/fpga_region/region1 -> /sys/devices/board/fpga_region/region1
    """)
    found = seen(programmer="dfl")[1]
    assert [board.id for board in found.boards] == ["0000:3b:00.0-p0"]
    region = "/sys/devices/pci0000:3a/0000:3b:00.0/fpga_region/region0"
    assert found.notices == [
        f"{region}/dfl-port.1 isn't offered: its id is 'x', expected a number",
        f"{region}/dfl-port.2 isn't offered: its id is absent",
        "/sys/devices/board/fpga_region/region1/dfl-port.3 isn't offered: it is on no bus whose names last",
    ]


def test_dfl_manager_is_no_board(tree, seen):
    manager(tree, "dfl-fme.0/dfl-fme-mgr.2", 1)
    manager(tree, "f8007000.devcfg", 0)
    for number, place in enumerate(("soc/f8007000.devcfg", "soc/dfl-fme.0/dfl-fme-mgr.2")):
        tree.remove(f"/sys/devices/{place}/fpga_manager/fpga{number}/name")
    found = seen(programmer="fpga-manager")[1]
    assert ([board.id for board in found.boards], found.notices) == (["f8007000.devcfg"], [])


def inside(tree, card, part, number, bus="platform"):
    """A manager on a part of a PCI card."""
    base = f"/sys/devices/pci0000:3a/{card}"
    here = f"{base}/{part}/fpga_manager/fpga{number}"
    tree.write(f"""
        {base}/subsystem -> /sys/bus/pci
        {base}/{part}/subsystem -> /sys/bus/{bus}
        {here}/subsystem -> /sys/class/fpga_manager
        /sys/class/fpga_manager/fpga{number} -> {here}
    """)


def test_inner_manager_has_card_name(tree, seen):
    inside(tree, "0000:3b:00.0", "xlnx-mgr.3.auto", 0)
    inside(tree, "0000:af:00.0", "spi0.0", 1, bus="spi")
    found = seen(programmer="fpga-manager")[1]
    assert ([board.id for board in found.boards], found.notices) == (["0000:3b:00.0", "0000:af:00.0"], [])


def test_offers_named_inner_managers(tree, seen):
    inside(tree, "0000:3b:00.0", "mgr.3.auto", 0)
    inside(tree, "0000:3b:00.0", "mgr.4.auto", 1)
    inside(tree, "0000:3b:00.0", "af000000.pcap", 2)
    found = seen(programmer="fpga-manager")[1]
    assert [board.id for board in found.boards] == ["af000000.pcap"]
    assert found.notices == ["0000:3b:00.0 isn't offered, because it names several boards"]


def test_configured_card_hides_its_parts(tree, seen):
    inside(tree, "0000:3b:00.0", "af000000.pcap", 0)
    card = Board("mine", address="0000:3b:00.0")
    assert [board.id for board in seen(programmer="fpga-manager", boards=(card,))[1].boards] == ["mine"]
    here = "/sys/devices/pci0000:3a/0000:3b:00.0/fpga_manager/fpga1"
    tree.write(f"""
        {here}/subsystem -> /sys/class/fpga_manager
        /sys/class/fpga_manager/fpga1 -> {here}
    """)
    found = seen(programmer="fpga-manager", boards=(card,))[1]
    assert [board.id for board in found.boards] == ["mine", "af000000.pcap"], "the card has a manager of its own"


def test_logs_stray_links(tree, seen, start, caplog):
    manager(tree, "f8007000.devcfg", 0)
    tree.write("""
        /sys/class/fpga_manager/fpga1 -> /sys/devices/soc/gone/fpga_manager/fpga1
        /sys/class/fpga_manager/fpga2 -> /etc
    """)
    options, found = seen(programmer="fpga-manager")
    assert [board.id for board in found.boards] == ["f8007000.devcfg"]
    assert found.notices == [
        "/sys/class/fpga_manager/fpga1 isn't offered: its link leads nowhere: No such file or directory",
        "/sys/class/fpga_manager/fpga2 isn't offered: its link leads outside /sys",
    ]
    driver = start(options)
    driver.devices()
    driver.devices()
    assert [text for text in caplog.messages if "isn't offered" in text] == found.notices


@pytest.mark.parametrize("name", ["a!b", "x" * 64, "\u00fc", "a b", "a::1"])
def test_logs_odd_manager_names(tree, seen, name):
    manager(tree, name, 0)
    manager(tree, "firmware:zynqmp-firmware:pcap", 1)
    found = seen(programmer="fpga-manager")[1]
    assert [board.id for board in found.boards] == ["firmware:zynqmp-firmware:pcap"]
    (notice,) = found.notices
    assert notice.startswith(f"/sys/devices/soc/{name}/fpga_manager/fpga0 isn't offered: id: ")


def test_boards_come_and_go(tree, seen, start):
    card(tree, "0000:3b:00.0", 0, (0, 0))
    driver = start(seen(programmer="dfl")[0])
    listed = [device.id for device in driver.devices()]
    assert listed == ["0000:3b:00.0-p0"]
    tree.remove("/sys/class/fpga_region/region0")
    assert list(driver.devices()) == []
    card(tree, "0000:af:00.0", 0, (0, 0))
    card(tree, "0000:3b:00.0", 1, (0, 1))
    first, second = driver.devices()
    assert [first.id, second.id] == ["0000:af:00.0-p0", "0000:3b:00.0-p0"]
    assert [node.host_path for node in driver.allocate([second]).device_nodes] == ["/dev/dfl-port.1"]
    assert driver.allocate([Device("0000:3b:00.0-p0")]).env["FPGA_BOARDS"] == "0000:3b:00.0-p0"


@pytest.mark.parametrize(
    ("event", "matters"),
    [
        (Uevent("add", "devices/pci0000:3a/0000:3b:00.0/fpga_region/region0", "fpga_region"), True),
        (Uevent("remove", "devices/soc/pcap/fpga_manager/fpga0", "fpga_manager"), True),
        (Uevent("add", "devices/pci0000:3a/0000:3b:00.0/fpga_region/region0/dfl-port.0", "platform"), True),
        (Uevent("add", "devices/pci0000:00/0000:00:14.0/usb1", "usb"), False),
    ],
)
def test_the_kernels_messages_about_boards_matter(event, matters):
    assert concerns(event) is matters


def test_discovering_resources_need_a_pool(seen):
    (first, _), (second, _) = seen(programmer="dfl"), seen(programmer="dfl", discover=("0000:3b:*",))
    assert set(first.claims()) & set(second.claims())
    with pytest.raises(
        ValueError, match=r"^discover: expected it with the programmer dfl or fpga-manager or overlay, found simulated"
    ):
        seen()


def test_boards_with_serial_numbers_come_by_usb():
    assert concerns_usb(Uevent("add", "devices/pci0000:00/0000:00:14.0/usb1/1-1", "usb"))
    assert not concerns_usb(Uevent("add", "devices/platform/axi/fpga_manager/fpga0", "fpga_manager"))
