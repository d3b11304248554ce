import pytest

from dpgateway import from_plain
from dpgateway.sysfs import Look, Match, Mismatch, Object, Test


@pytest.mark.parametrize(
    ("match", "problem"),
    [
        ({"subsystem": "a/b"}, "subsystem: found 'a/b', expected the name of a bus or class, such as usb or tty"),
        ({"kernel": "tty*"}, "subsystem: found nothing, expected a value, because this key has no default"),
        ({"attrs": {"idVendor": "0403"}}, "; udev's SUBSYSTEM: tty, usb, pci, or another bus or class"),
        ({"subsystem": "usb", "kernel": {}}, "kernel: found none, expected a test"),
        ({"subsystem": "usb", "kernel": {"or_absent": True}}, "kernel: found none, expected a test"),
        ({"subsystem": "usb", "attr": {"x": {"regex": "("}}}, "attr.x.regex: "),
        ({"subsystem": "usb", "attr": {"x": {"at_least": 2, "at_most": 1}}}, "attr.x.at_least: "),
        ({"subsystem": "usb", "attr": {"../x": "1"}}, "attr: "),
        ({"subsystem": "usb", "attr": {"idVendor": 403}}, "expected a string"),
        ({"subsystem": "usb", "attributes": {}}, "did you mean"),
        ({"SUBSYSTEM": "usb"}, "did you mean subsystem?"),
        (
            {"subsystem": "usb", "ATTRS{idVendor}": "0403"},
            '; what udev\'s rules write as ATTRS{idVendor}=="0403" is attrs',
        ),
        ('SUBSYSTEM=="usb"', "; what udev's rules write as ATTRS{"),
        (
            {"subsystem": "usb", "attrs": {"{idVendor}": "0403"}},
            "attrs: found '{idVendor}', expected the name of an attr",
        ),
        ({"subsystem": "usb", "attrs": {"idVendor!": "0403"}}, "found 'idVendor!', expected the name alone"),
        (
            {"subsystem": "usb", "attrs": {"idVendor": "==0403"}},
            "attrs.idVendor: found '==0403', expected the value alone",
        ),
        ({"subsystem": "tty", "kernel": "/dev/ttyUSB0"}, "kernel: found '/dev/ttyUSB0', expected a name without /dev/"),
        ({"subsystem": "tty", "symlink": "/dev/a|gps"}, "symlink: found 'gps', expected paths below /dev, such as"),
        ({"subsystem": "tty", "symlink": {"none_of": "by-id/*"}}, "symlink: found 'by-id/*', expected paths below"),
        ({"subsystem": "usb", "attr": {"x": {"absent": True}}}, "an unknown key"),
        ({"subsystem": "usb", "file": {"uevent": "x"}}, "file: found {file:uevent}, expected a file and a key"),
        ({"subsystem": "usb", "file": {"/proc/{kernels}#x": "x"}}, "expected a test of the ancestor"),
    ],
)
def test_wrong_match_names_its_key(match, problem):
    with pytest.raises(ValueError, match=r"subsystem|kernel|attr|file|symlink") as caught:
        from_plain(match, Match)
    assert problem in str(caught.value)


@pytest.fixture
def sticks(stick):
    stick("1-1", "ttyUSB0", serial="A1", bMaxPower="90mA")
    stick("1-2", "ttyUSB1", product="6010", bMaxPower="100mA")


def names(roots, **match):
    look, rule = Look(roots), from_plain({"subsystem": "tty", **match}, Match)
    return [one.kernel for one in look.objects("tty") if isinstance(rule.look(look, one), Object)]


@pytest.mark.usefixtures("sticks")
@pytest.mark.parametrize(
    ("match", "found"),
    [
        ({}, "ttyUSB0 ttyUSB1"),
        ({"kernel": "*1"}, "ttyUSB1"),
        ({"attrs": {"idProduct": "6001"}}, "ttyUSB0"),
        ({"attrs": {"idProduct": ["6001", "6010"]}}, "ttyUSB0 ttyUSB1"),
        ({"attrs": {"serial": {"present": True}, "idVendor": "0403"}}, "ttyUSB0"),
        ({"attrs": {"serial": "0000:00:14.0", "idVendor": "0403"}}, ""),
        ({"kernels": "1-2", "drivers": "usb"}, "ttyUSB1"),
        ({"kernels": "1-2", "subsystems": "pci"}, ""),
        ({"subsystems": "pci"}, "ttyUSB0 ttyUSB1"),
        ({"attr": {"idProduct": "6001"}}, ""),
        ({"attr": {"device": "ttyUSB1"}}, "ttyUSB1"),
        ({"env": {"DEVNAME": "ttyUSB0"}}, "ttyUSB0"),
        ({"env": {"DEVTYPE": {"present": False}}}, "ttyUSB0 ttyUSB1"),
        ({"driver": {"present": False}}, "ttyUSB0 ttyUSB1"),
        ({"driver": "usb"}, ""),
    ],
)
def test_what_matches(roots, match, found):
    assert names(roots, **match) == found.split()


@pytest.mark.usefixtures("sticks")
def test_selects_the_nearest_ancestor(roots):
    look = Look(roots)
    thing = next(look.objects("tty"))
    for vendor, ancestor in (("*", thing.line[4]), ("1d6b", thing.line[5])):
        assert Match("tty", attrs={"idVendor": Test((vendor,))}).look(look, thing) == ancestor
    assert Match("tty").look(look, thing) == thing


@pytest.mark.usefixtures("sticks")
@pytest.mark.parametrize(
    ("match", "failed"),
    [
        ({"kernel": "ttyACM*"}, "kernel: found 'ttyUSB0', expected ttyACM*"),
        ({"attr": {"dev": ["1", "2"]}}, "attr.dev: found nothing, expected one of 1, 2"),
        ({"attr": {"device": {"present": False}}}, "attr.device: found 'ttyUSB0', expected nothing"),
        ({"attr": {"x": {"present": True}}}, "attr.x: found nothing, expected something"),
        ({"env": {"MINOR": {"at_least": 1, "at_most": 2}}}, "env.MINOR: found '0', expected at least 1 and at most 2"),
        ({"env": {"MINOR": {"glob": "4", "or_absent": True}}}, "env.MINOR: found '0', expected 4 or nothing"),
        ({"env": {"MINOR": {"none_of": ["0", "1"]}}}, "env.MINOR: found '0', expected none of 0, 1"),
        ({"env": {"MINOR": {"regex": "[1-9]"}}}, "env.MINOR: found '0', expected a match of [1-9]"),
        ({"attr": {"subsystem/x": {"exact": "a*"}}}, "attr.subsystem/x: found nothing, expected exactly a*"),
        ({"attr": {"power": "a"}}, "attr.power: found it is no regular file, expected a"),
        ({"attrs": {"idVendor": "0404"}}, "attrs.idVendor: found '0403' at 1-1, expected 0404"),
        ({"attrs": {"idVendor": "0403", "serial": "B"}}, "attrs.serial: found 'A1' at 1-1, expected B"),
        ({"kernels": "2-1", "drivers": "usb"}, "kernels: found 'ttyUSB0' at ttyUSB0, expected 2-1"),
    ],
)
def test_names_the_first_failed_test(tree, roots, match, failed):
    """Of ancestors the one that came nearest is meant."""
    look = Look(roots)
    thing = next(look.objects("tty"))
    tree.write(f"/sys/{thing.path}/power/")
    why = from_plain({"subsystem": "tty", **match}, Match).look(look, thing)
    assert isinstance(why, Mismatch)
    assert str(why) == failed


def test_files_elsewhere_are_tested_by_templates(sticks, tree, roots):
    tree.write("""
        /proc/1/net/route = Iface\tDestination\\nttyUSB1\t00000000\t0101A8C0
        /sys/class/kfd/nodes/0/properties = minor 0\\ncount 64
        /sys/class/kfd/nodes/1/properties = minor 1\\ncount 0
    """)
    place = "/sys/class/kfd/nodes/*/properties#minor={number}#count"
    assert names(roots, file={place: "0"}) == ["ttyUSB1"]
    assert names(roots, file={place: {"at_least": 0}}) == ["ttyUSB0", "ttyUSB1"]
    assert names(roots, file={"/proc/1/net/route#{kernel}\t00000000": {"present": False}}) == ["ttyUSB0"]
    absent = {"/proc/1/net/route#{attr:absent}": {"present": False}}
    assert names(roots, file=absent) == ["ttyUSB0", "ttyUSB1"]
    assert names(roots, attrs={"serial": "A1"}, file={"/proc/{attrs:serial}#x": {"present": False}}) == ["ttyUSB0"]


@pytest.mark.parametrize(
    ("mask", "found"), [("00000000", ["ttyUSB0"]), ("00000080", ["ttyUSB0", "ttyUSB1"]), ("", ["ttyUSB0", "ttyUSB1"])]
)
def test_star_is_any_word(sticks, tree, roots, mask, found):
    """Of a route to 0.0.0.0 only the mask, five words later, says whether it is the default route or 0.0.0.0/1."""
    lines = [f"ttyUSB1\t00000000\t0101A8C0\t0003\t0\t0\t100\t{one}\t0\t0\t0" for one in ("00000080", mask)]
    tree.write("/proc/1/net/route = Iface\tDestination\\n" + "\\n".join(lines))
    place = "/proc/1/net/route#{kernel}\t00000000\t*\t*\t*\t*\t*\t00000000"
    assert names(roots, file={place: {"present": False}}) == found


def test_of_many_routes_each_is_seen(sticks, tree, roots):
    lines = [f"eth0\t{number:08X}\t00000000" for number in range(1, 5000)]
    tree.write("/proc/1/net/route = Iface\tDestination\\n" + "\\n".join(lines) + "\\nttyUSB1\t00000000\t0101A8C0")
    assert names(roots, file={"/proc/1/net/route#{kernel}\t00000000": {"present": False}}) == ["ttyUSB0"]


def test_virtual_function_number(tree, roots):
    pf = "/sys/devices/pci0000:00/0000:18:00.0"
    for number in range(12):
        vf = f"/sys/devices/pci0000:00/0000:18:02.{number}"
        tree.write(f"{vf}/physfn -> {pf}\n{pf}/virtfn{number} -> {vf}")
        tree.write(f"/sys/bus/pci/devices/0000:18:02.{number} -> {vf}")
    tree.write(f"/sys/bus/pci/devices/0000:18:00.0 -> {pf}")
    rule = from_plain({"subsystem": "pci", "vf": {"at_least": 9}}, Match)
    look = Look(roots)
    found = [one.kernel for one in look.objects("pci") if isinstance(rule.look(look, one), Object)]
    assert found == ["0000:18:02.10", "0000:18:02.11", "0000:18:02.9"]


LINKS = ("serial/by-id/usb-FTDI_A1-if00", "serial/by-path/pci-1-usb-0:1:1.0"), ("serial/by-id/usb-FTDI_B2-if00",), ()


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("/dev/serial/by-id/*", ["ttyUSB0", "ttyUSB1"]),
        ("/dev/serial/by-id/*A1*|/dev/gps", ["ttyUSB0"]),
        ({"exact": ["/dev/serial/by-path/pci-1-usb-0:1:1.0"]}, ["ttyUSB0"]),
        ({"regex": ".*_B[0-9].*"}, ["ttyUSB1"]),
        ({"none_of": "*/by-path/*"}, ["ttyUSB1"]),
        ({"none_of": "*/by-path/*", "or_absent": True}, ["ttyUSB1", "ttyUSB2"]),
        ({"glob": "/dev/serial/by-id/*", "none_of": "*A1*"}, ["ttyUSB1"]),
        ({"present": False}, ["ttyUSB2"]),
    ],
)
def test_links_of_udev(stick, tree, roots, test, found):
    """One of them has to pass, and none of them may be one of none_of."""
    for number, links in enumerate(LINKS):
        stick(f"1-{number + 1}", f"ttyUSB{number}", minor=number)
        tree.write(f"/run/udev/data/c188:{number} = " + "\\n".join(f"S:{link}" for link in links))
    assert names(roots, symlink=test) == found


def test_no_link_that_passes_is_named(stick, tree, roots):
    stick("1-1", "ttyUSB0")
    look = Look(roots)
    (thing,) = look.objects("tty")
    rule = from_plain({"subsystem": "tty", "symlink": "/dev/gps"}, Match)
    assert str(rule.look(look, thing)) == "symlink: found nothing, expected /dev/gps"
    tree.write("/run/udev/data/c188:0 = S:serial/by-id/usb-A\\nS:modem")
    assert str(rule.look(Look(roots), thing)) == "symlink: found '/dev/modem', expected /dev/gps"
