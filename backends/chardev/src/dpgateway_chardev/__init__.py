"""The driver for Linux device nodes, by paths and globs under /dev or by sysfs properties, with immediate hotplug.

driver      the driver: named or matched devices, and their probes
options     a resource's options, with checks
keys        the options' keys and defaults, without checks
settings    the mappings within the options
paths       checks of paths in the configuration
patterns    globs over paths
named       devices by paths and globs
matched     devices by their properties in sysfs
giving      from a matched device's templates to its nodes, mounts and environment
given       the contributions of several devices, merged for one container
templates   checks of templates in the configuration
jsons       JSON whose texts are templates
deviceinfo  device-info files for Multus and CNI plugins
owners      verification that a path's node belongs to the matched object
hostfiles   files of the host other than device nodes
probing     health probes in child processes
children    the child process of a probe
health      the probes of one device
doubts      the warnings of `dpgateway check` about a match
importers   converters for other plugins' configurations
"""

from dpgateway import hookimpl
from dpgateway_chardev.driver import CharDevices

__all__ = ["CharDevices"]


@hookimpl
def dpgateway_driver() -> type:
    return CharDevices
