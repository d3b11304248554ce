import re

import pytest

from dpgateway.sysfs import FIELDS, Look, Match, Matched, Object, Template, TemplateError, Test, Unfilled

STICKS = "devices/pci0000:00/0000:00:14.0/usb1"


@pytest.fixture
def fill(stick, tree, roots):
    """Fills templates for the tty of a stick, whose USB device is the selected ancestor."""
    stick("1-1", "ttyUSB12", 3, serial="A1")
    tree.write(
        "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/ttyUSB12/driver -> /sys/bus/usb-serial/drivers/ftdi"
    )
    tree.write("""
        /proc/driver/ttyUSB12/information = Model: x\\nDevice Minor: \t 7\\nDevice Minor Two: 8
        /sys/devices/x = sev 1\\ntdx 15
        /sys/devices/y/0/numa_node = 1
        /sys/devices/y/0/properties = minor 0\\nlocation 0
        /sys/devices/y/1/properties = minor 12\\nlocation 6400
        /sys/devices/y/2/properties = minor 12\\nlocation 6401\\ncount 4
        /run/udev/data/c188:3 = S:modem\\nS:serial/by-path/pci-1\\nS:serial/by-id/usb-A1\\nE:ID_SERIAL=A1
    """)
    tty = f"/sys/{STICKS}/1-1/1-1:1.0/ttyUSB12/tty/ttyUSB12"
    tree.write(f"""
        {tty}/physfn/virtfn1 -> /sys/devices/z/ttyUSB1
        {tty}/physfn/virtfn10 -> {tty}
    """)
    look = Look(roots)
    (thing,) = look.objects("tty")
    found = Matched(thing, Object(f"{STICKS}/1-1"))
    return lambda text, **others: Template.parse(text, others).fill(look, found, others)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("{kernel}", "ttyUSB12"),
        ("{number}", "12"),
        ("{devnode}", "/dev/ttyUSB12"),
        ("{major}:{minor}", "188:3"),
        ("{attr:device/driver}", "ftdi"),
        ("{entry:device/tty/*}", "ttyUSB12"),
        ("{env:DEVNAME}", "ttyUSB12"),
        ("{file:uevent#MAJOR}", "188"),
        ("{file:/proc/driver/{kernel}/information#Device Minor}", "7"),
        ("{file:/sys/devices/x#tdx}", "15"),
        ("{attr:device/tty/{kernel}/uevent}", "MAJOR=188\nMINOR=3\nDEVNAME=ttyUSB12"),
        ("{file:/sys/devices/y/*/properties#minor=12#location}", "6400"),
        ("{file:/sys/devices/y/*/properties#minor={number}#location=6401#count}", "4"),
        ("{file:/sys/devices/y/*/numa_node}", "1"),
        ("{entry:/proc/driver/*}", "ttyUSB12"),
        ("{symlink:/dev/serial/by-id/*}", "/dev/serial/by-id/usb-A1"),
        ("{slot:0000:b3:00.1}", "0000:b3:00"),
        ("{slot:0:6401}", "0000:19:00"),
        ("{slot:2:{file:/sys/devices/y/*/properties#minor=12#location}}", "0002:19:00"),
        ("{pci_number:0000:b3:00.1}", "45825"),
        ("{pci_number:0001:b3:1f.7}", "111615"),
        ("{vf}", "10"),
        ("{regex:{kernel}#tty[A-Z]+}", "ttyUSB"),
        ("{regex:{devnode}#/dev/(tty)USB([0-9]+)}-{number}", "tty-12"),
        ("{regex:a#b{kernel}#[0-9]{{2}}}", "12"),
        ("{regex:{kernel}#.[A-Z]{{3,}}}", "yUSB"),
        ("{kernels}", "1-1"),
        ("{drivers}", "usb"),
        ("a{attrs:idVendor}b{attrs:serial}c", "a0403bA1c"),
        ('{{"x": "{kernel}"}}', '{"x": "ttyUSB12"}'),
        ("{id}", "theirs"),
    ],
)
def test_a_template(fill, text, filled):
    assert fill(text, id="theirs") == filled


def test_every_field_is_tested():
    rows = next(mark for mark in test_a_template.pytestmark if mark.name == "parametrize").args[1]
    used = {name for text, _ in rows for name in re.findall(r"\{(\w+)", text)}
    assert FIELDS.keys() - used == {"driver", "each"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{attr:absent}", "attr absent of ttyUSB12 is absent"),
        ("{driver}", "driver of ttyUSB12 is absent"),
        ("{regex:{kernel}#x+}", "regex ttyUSB12#x+ of ttyUSB12 isn't there: x+ finds nothing in 'ttyUSB12'"),
        (
            "{regex:{kernel}#(x)?tty}",
            "regex ttyUSB12#(x)?tty of ttyUSB12 isn't there: (x)?tty finds nothing in 'ttyUSB12'",
        ),
        ("{regex:{driver}#x+}", "driver of ttyUSB12 is absent"),
        ("{file:uevent#MIN}", "file uevent#MIN of ttyUSB12 isn't there: uevent has no line with 'MIN'"),
        (
            "{file:/sys/devices/y/*/info#minor=3#x}",
            "file /sys/devices/y/*/info#minor=3#x of ttyUSB12 isn't there: no /sys/devices/y/*/info says minor=3",
        ),
        ("{file:/sys/devices/y/*/absent}", "file /sys/devices/y/*/absent of ttyUSB12 is absent"),
        ("{symlink:/dev/disk/*}", "symlink /dev/disk/* of ttyUSB12 isn't there: udev knows no such link"),
        ("{slot:b3.00}", "slot b3.00 of ttyUSB12 isn't there: 'b3.00' is no PCI address"),
        ("{pci_number:0000:b3:00}", "pci_number 0000:b3:00 of ttyUSB12 isn't there: '0000:b3:00' is no PCI address"),
        (
            "{file:/etc/passwd#root}",
            "file /etc/passwd#root of ttyUSB12 can't be read: /etc/passwd is neither below /sys nor /proc",
        ),
        ("{file:/proc/{attr:absent}#x}", "attr absent of ttyUSB12 is absent"),
        ("{each:tty/*}", "each tty/* of ttyUSB12 stands for several texts, and only one is wanted here"),
        ("{entry:uio/*}", "entry uio/* of ttyUSB12 finds nothing"),
        ("{file:uevent#{kernel}}", "file uevent#ttyUSB12 of ttyUSB12 isn't there: uevent has no line with 'ttyUSB12'"),
        ("{env:PCI_ID}", "env PCI_ID of ttyUSB12 is absent"),
    ],
)
def test_what_is_missing_is_named(fill, text, why):
    filled = fill(f"x{text}y")
    assert isinstance(filled, Unfilled)
    assert str(filled) == why


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{atr:x}", r"expected one of the fields kernel, .*, found \{atr:x\}; did you mean attr\?"),
        ("modem-$attr{serial}", r"expected fields such as \{attr:serial\}, .*, found '\$attr\{'"),
        ("{serial}", r"found \{serial\}; attributes are written \{attr:serial\}, or \{attrs:serial\} of the ancestor$"),
        ("{}", r"found \{\}$"),
        ("{attr}", r"expected the path of an attribute, as in \{attr:...\}, found \{attr\}"),
        ("{kernel:x}", r"expected \{kernel\}, found \{kernel:x\}"),
        ("{attr:../x}", r"expected paths of attributes, .* found '../x' in \{attr:../x\}"),
        ("{file:uevent}", r"expected a file and a key in it, .*, found \{file:uevent\}"),
        ("{regex:a}", r"expected a text, # and a regular expression, .*, found \{regex:a\}$"),
        ("{regex:{kernel}}", r"expected a text, # and a regular expression, .*, found \{regex:\{kernel\}\}$"),
        ("{regex:a#{kernel}}", r"expected a text, # and a regular expression, .*, found \{regex:a#\{kernel\}\}$"),
        ("{regex:{kernel}#(}", r"expected a regular expression that RE2 takes .*, found '\(' in \{regex:"),
        ("{attr:{x}}", r"expected one of the fields .* found \{x\}"),
        ("{attr:x", "expected a closing brace"),
        ("{a{b}}", "expected a closing brace"),
        ("{kernel", "expected a closing brace"),
        ("kernel}", "expected an opening brace"),
        ("{{kernel}", "expected an opening brace"),
    ],
)
def test_a_template_that_means_nothing_is_refused(text, message):
    with pytest.raises(TemplateError, match=message):
        Template.parse(text)


@pytest.mark.parametrize(
    ("text", "match", "why"),
    [
        ("{attrs:serial}", Match("usb"), "expected a test of the ancestor that "),
        ("{kernels}", Match("usb"), "expected a test of the ancestor that "),
        ("{attr:a}", Match("usb", attr={"a": Test(present=False)}), "found {attr:a}, which match wants absent"),
    ],
)
def test_unfillable_template_says_why(text, match, why):
    assert why in str(match.never(Template.parse(text)))
    assert match.never(Template.parse("{attr:b}")) is None


def test_interface_names_the_device_with_node(roots, tree):
    tree.write("""
        /sys/devices/usb1/uevent = DEVNAME=bus/usb/001/001
        /sys/devices/usb1/1-1/uevent = DEVNAME=bus/usb/001/004
        /sys/devices/usb1/1-1/1-1:1.0/uevent = DEVTYPE=usb_interface
        /sys/devices/usb1/1-1/1-1:1.0/host0/subsystem -> /sys/bus/scsi
    """)

    def why(path):
        return str(Template.parse("{devnode}").fill(Look(roots), Matched(Object(path), Object(path))))

    leave = "; nodes may have others, and env: {DEVNAME: {present: true}} in match leaves it out"
    named = "; 1-1, which it is in, has one: match that, with attr in place of attrs"
    assert why("devices/usb1/1-1/1-1:1.0") == f"devnode of 1-1:1.0 isn't there: it has no node{named}"
    assert why("devices/usb1/1-1/1-1:1.0/host0") == f"devnode of host0 isn't there: it has no node{leave}"


def test_values_of_other_objects_are_not_mixed(roots, tree):
    tree.write("/sys/devices/a/x = 1\n/sys/devices/b/x = 2")
    look, template = Look(roots), Template.parse("{attr:x}")
    filled = [template.fill(look, Matched(Object(f"devices/{name}"), Object(f"devices/{name}"))) for name in "ab"]
    assert filled == ["1", "2"]


def test_each_makes_one_text_per_match(roots, tree):
    tree.write("/sys/devices/a/drm/card0/\n/sys/devices/a/drm/controlD64/\n/sys/devices/a/drm/renderD128/")
    found = Matched(Object("devices/a"), Object("devices/a"))
    look = Look(roots)
    texts = Template.parse("/dev/dri/{each:drm/[!c]*}").all(look, found)
    assert texts == ("/dev/dri/renderD128",)
    assert Template.parse("{kernel}:{each:drm/c*}").all(look, found) == ("a:card0", "a:controlD64")
    assert str(Template.parse("{each:uio/*}").all(look, found)) == "each uio/* of a finds nothing"
    assert Template.parse("{kernel}").all(look, found) == ("a",)
