"""The driver for Linux device nodes: offers what paths and globs under /dev name, and notices hotplug at once.

driver      the two kinds of devices, and their probes
options     what a resource can say about its device nodes, checked
keys        their keys, which the checks take
settings    the mappings within the options
paths       whether paths in the configuration can be meant
patterns    globs over paths
named       devices by paths and globs
matched     devices by what they are in sysfs
giving      what a matched object gives a container
given       what a container gets of matched devices, put together
templates   whether the templates of a configuration can be filled
jsons       JSON whose texts are templates
deviceinfo  the file in which Multus finds what a device is
owners      whether a path leads to a node of the object for which it was computed
hostfiles   files of the host other than its devices
probing     asks in child processes whether devices work
health      the probes of one device
doubts      what `dpgateway check` says of a match
importers   other plugins' configurations, made into options of this driver
"""

from dpgateway import hookimpl
from dpgateway_chardev.driver import CharDevices

__all__ = ["CharDevices"]


@hookimpl
def dpgateway_driver() -> type:
    return CharDevices
