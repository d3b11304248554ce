"""Everything that a driver author imports, and nothing else.

docs/ says how to write a driver; ``dpgateway.testing`` has the test that every driver should pass. ARCHITECTURE.md says
how the packages work together. In their order, each imports only those before it:

errors          errors, by whose fault they are
kit             tools that know nothing of the gateway
model           what drivers and the gateway say to each other
sysfs           for driver authors: objects of sysfs, and watching them
config          YAML to typed values
cdi             CDI specs: read, expand, write
importing       other plugins' configurations
drivers         what is known of hardware: drivers, and one driver while it runs
node            what is known of the node: its kubelet, its pods, its container runtime
testing         the test of every driver
resource        one extended resource, whichever front offers it
cluster         the API server, for a front that needs it
registry        sockets in the kubelet's plugins_registry
deviceplugin    the front that speaks the device-plugin API
dra             the front for Dynamic Resource Allocation
switching       which of the two a resource has, if it may have either
fronts          both of them, and the parts that they share
status          everything there is to know of a gateway, as one value
web             the pages and metrics made of it
events          events of Kubernetes made of it
serving         one resource's task: driver, plugin, and their successors
other_gateways  those of the same node: what earlier ones left, and whether one follows
node_tasks      the tasks that no resource owns: DRA, changes of front, Kubernetes events
gateway         name -> resource, and what a new configuration changes
preflight       what the upgrade of a node's kubelet would do
daemon          the process
cli             the command line
"""

from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from dpgateway.drivers.contract import Context, Driver
    from dpgateway.drivers.hookspecs import hookimpl
    from dpgateway.errors import Busy, DeviceUnavailable, DriverError, refuse
    from dpgateway.kit.programs import await_program
    from dpgateway.model import Allocation, Candidate, Device, DeviceNode, Health, Mount

__all__ = [
    "Allocation",
    "Busy",
    "Candidate",
    "Context",
    "Device",
    "DeviceNode",
    "DeviceUnavailable",
    "Driver",
    "DriverError",
    "Health",
    "Mount",
    "await_program",
    "from_plain",
    "hookimpl",
    "refuse",
]

_T = TypeVar("_T")

_PLACES = {
    "dpgateway.drivers.contract": {"Context", "Driver"},
    "dpgateway.drivers.hookspecs": {"hookimpl"},
    "dpgateway.errors": {"Busy", "DeviceUnavailable", "DriverError", "refuse"},
    "dpgateway.kit.programs": {"await_program"},
    "dpgateway.model": {"Allocation", "Candidate", "Device", "DeviceNode", "Health", "Mount"},
}


def __getattr__(name: str) -> object:
    """A name of a driver's API, imported at its first use: `dpgateway status` needs none of it, nor its memory."""
    for place, names in _PLACES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(place), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def from_plain(value: object, kind: type[_T]) -> _T:
    """``value``, as ``json.loads`` returns it, as a ``kind``: a frozen dataclass, read as strictly as ``Options`` are.

    Raises ValueError with one line of text: each key that is wrong, with what was found there and what was expected.
    What ``kind`` itself raises is raised as it is, unless it is a ValueError or TypeError.
    """
    from dpgateway.config import strict  # noqa: PLC0415  most drivers need no YAML parser, and it loads slowly

    return strict.from_plain(value, kind)
