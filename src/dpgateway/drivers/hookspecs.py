"""The one hook through which driver packages are found (pluggy, entry-point group ``dpgateway``)."""

from __future__ import annotations

import pluggy

PROJECT = "dpgateway"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec(firstresult=True)
def dpgateway_driver() -> type | None:
    """Returns the driver's class. Its name is that of the entry point under which the package registers."""
