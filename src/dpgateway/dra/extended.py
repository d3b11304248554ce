"""By which extended resource a pod asked for the devices of its claim.

The scheduler makes a claim for a pod's extended resources, and its requests name classes only. A class has the name of
one extended resource, and each class another one, ``deviceclass.resource.kubernetes.io/<class>``: of a pod that asked
for that it looks as if it had asked for the first. It matters after a change of the front alone (``resource.use``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from dpgateway.cluster.server import ApiServer, ObjectKind
from dpgateway.dra.claims.reading import Allocated
from dpgateway.errors import GatewayError

FRESH = 300.0
"""Seconds for which a class isn't looked up again, whether or not there is one."""
PATIENCE = 1.0
"""Seconds that a claim waits for it."""


class ExtendedResources:
    """Used from the event loop."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._known: dict[str, tuple[str, float]] = {}
        """`_known` contains a class's extended resource, and when it was looked up on the monotonic clock."""

    async def asked(self, wanted: Allocated) -> Mapping[str, str]:
        """The extended resource of each request of a claim; without those that can't be found out."""
        classes = tuple(dict.fromkeys(wanted.classes.values()))  # together: all of them wait for PATIENCE once
        names = dict(zip(classes, await asyncio.gather(*map(self._name, classes)), strict=True))
        return {request: name for request, class_ in wanted.classes.items() if (name := names[class_])}

    async def _name(self, class_: str) -> str:
        """The extended resource of a class; empty if it has none, or the server doesn't say."""
        name, since = self._known.get(class_, ("", float("-inf")))
        if time.monotonic() - since < FRESH:
            return name
        try:
            async with asyncio.timeout(PATIENCE):
                # accounts may list classes, but not get one
                found = await self._server.list(ObjectKind.CLASS, {"metadata.name": class_})
        except (GatewayError, TimeoutError):  # a claim doesn't fail for it, and the next one asks again
            return name
        name = next((str((one.get("spec") or {}).get("extendedResourceName") or "") for one in found.objects), "")
        self._known[class_] = name, time.monotonic()
        return name
