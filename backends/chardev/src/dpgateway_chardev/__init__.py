"""The driver for Linux device nodes: offers what paths and globs under /dev name, and notices hotplug at once."""

from dpgateway import hookimpl
from dpgateway_chardev.driver import CharDevices

__all__ = ["CharDevices"]


@hookimpl
def dpgateway_driver() -> type:
    return CharDevices
