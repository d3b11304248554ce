"""What events name, and which answers that touches."""

import pytest

from dpgateway.sysfs import ChangedPlaces, DevTree, Look, Object
from dpgateway.sysfs.changes import places

PF, VF = "devices/pci0000:00/0000:00:01.0", "devices/pci0000:00/0000:00:01.1"


@pytest.fixture
def tree(tree):
    tree.write(f"""
        /sys/{PF}/vendor = 0x8086
        /sys/{PF}/virtfn0 -> /sys/{VF}
        /sys/{VF}/physfn -> /sys/{PF}
        /sys/{VF}/uevent = MAJOR=240\\nMINOR=1
        /run/udev/data/c240:1 = E:ID_SERIAL=A1
        /proc/driver/x = 1
        c /dev/vfio/1 240:1
        /dev/link -> /dev/vfio/1
    """)
    return tree


ASKED = [
    ("its own attribute", lambda look: look.value(Object(VF), "vendor"), {PF: False, VF: True}),
    ("an ancestor's attribute", lambda look: look.value(Object("devices/pci0000:00"), "x"), {PF: True, VF: True}),
    ("through a link", lambda look: look.value(Object(VF), "physfn/vendor"), {PF: True, f"{PF}/net/a": True}),
    ("nothing there yet", lambda look: look.value(Object(PF), "net/a/type"), {f"{PF}/net/a": True, VF: False}),
    ("a pattern", lambda look: look.entries(Object(VF), "physfn/virtfn*"), {PF: True, VF: True}),
    ("a bus", lambda look: look.value(Object(VF), "vendor"), {"devices/pci0000:00": True, "devices/pci0000:01": False}),
    ("udev", lambda look: look.env(Object(VF), "ID_SERIAL"), {"/run/udev/data/c240:1": True, PF: False, VF: True}),
    ("udev's links", lambda look: look.symlinks(Object(VF)), {"/run/udev/data/c240:1": True}),
    ("a file of /proc", lambda look: look.text(Object(VF), "/proc/driver/x"), {PF: True, "/dev/other": True}),
    ("a file of /sys", lambda look: look.text(Object(VF), f"/sys/{PF}/vendor"), {PF: True, VF: False}),
    ("whether it is there", lambda look: look.exists(Object(VF)), {VF: True, PF: False}),
]


@pytest.mark.parametrize(("ask", "touched"), [row[1:] for row in ASKED], ids=[row[0] for row in ASKED])
def test_an_event_touches_what_was_asked(tree, roots, ask, touched):
    look = Look(roots)
    for _ in range(2):  # what is known by now depends on the same
        with look.trace.into(set()):
            ask(look)
            trace = places(look.trace.asked)
        found = {place: bool(changes(tree, place).touched([("", trace)])) for place in touched}
        assert found == touched, trace


def changes(tree, place):
    """An object's uevent, or an event in a directory."""
    if place.startswith("/"):
        return ChangedPlaces(files=frozenset({str(tree.at(place))}))
    return ChangedPlaces(frozenset({place}))


@pytest.mark.parametrize(
    ("path", "touched"),
    [
        ("vfio/1", {"/dev/vfio/1": True, "/dev/vfio": True, "/dev": True, "/dev/vfio/2": False, "/dev/link": False}),
        ("link", {"/dev/vfio/1": True, "/dev/link": True, "/dev/vfio/10": False}),
        ("snd/a/b", {"/dev/snd": True, "/dev/snd/a": False, "/dev/vfio": False}),
    ],
)
def test_events_touch_names_on_the_way(tree, path, touched):
    dev = DevTree(str(tree.at("/dev")))
    dev.look(path, "char")
    trace = places(dev.trace.asked)
    assert {place: bool(changes(tree, place).touched([("", trace)])) for place in touched} == touched, trace


def test_known_is_per_answer(tree, roots):
    """An attribute that was read for another object is none of this one's."""
    look, thing = Look(roots), Object(PF)
    with look.trace.into(set()):
        assert look.value(thing, "vendor") == "0x8086"
        assert look.known(thing, "vendor") == "0x8086"
    with look.trace.into(set()):
        assert look.known(thing, "vendor") is None
