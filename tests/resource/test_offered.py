"""The published list of one resource: when it changes, and while another front is going to offer the devices."""

from dpgateway.model import Device, Health
from dpgateway.resource.offered import QUIET
from tests.resource.listing import NOBODY, WET, A, B


def test_no_id_leaves_for_another_front_during_an_allocate(node):
    """A kubelet from 1.34 on crashes otherwise: first there is nothing to choose, then nothing is listed."""
    node.take(A, B)
    end = node.begin("a")
    node.run(node.inventory.list.offer, offered=False)
    assert node.listed == {"a": True, "b": False}
    node.sleep(QUIET * 5)
    assert node.listed.keys() == {"a", "b"}
    end()
    node.sleep(QUIET / 2)
    assert node.listed.keys() == {"a", "b"}
    node.sleep(QUIET * 2)
    assert node.listed == {}
    node.run(node.inventory.list.offer, offered=True)
    assert node.listed == {"a": True, "b": True}
    node.sleep(QUIET * 3)
    assert node.listed == {"a": True, "b": True}


def test_a_first_list_for_another_front(node):
    node.run(node.inventory.list.offer, offered=False)
    node.sleep(QUIET * 3)
    node.take(A)
    assert node.listed == {"a": False}
    node.sleep(QUIET * 2)
    assert node.listed == {}


def test_the_same_devices_are_no_news(node):
    devices = (A, B)
    node.take(*devices)
    version = node.inventory.list.version
    node.take(*devices)
    assert node.inventory.list.version == version
    for change in (lambda: node.fail("no answer"), lambda: node.take(A), lambda: node.take(A, Device("b", WET))):
        change()
        assert node.listed != {"a": True, "b": True}
        node.take(*devices)
        assert node.listed == {"a": True, "b": True}


def test_after_the_end_no_timer_is_set_whatever_happens(node):
    node.take(A, B)
    node.take(B)
    node.inventory.list.close()
    node.take()
    node.allocate("b")
    node.write(NOBODY)
    reads = node.reads
    node.sleep(3600)
    assert node.reads == reads


def test_another_reason_is_no_new_list(node):
    node.take(Device("a", WET), Device("b"))
    version = node.inventory.list.version
    node.take(Device("a", Health.unhealthy("frozen")), Device("b"))
    assert node.inventory.list.version == version
    assert node.offers["a"].health.reason == "frozen"
    for devices in ([Device("a"), Device("b")], [Device("a"), Device("b", numa_nodes=(1,))]):
        node.take(*devices)
        assert node.inventory.list.version == (version := version + 1)
