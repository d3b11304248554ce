"""The resources that another front offers, as claims see them: they may have devices of these, given before the
resource changed its front, or by a gateway whose records are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from dpgateway.dra.claims.choosing import OfferedElsewhere
from dpgateway.dra.publishing import Us
from dpgateway.dra.slices.names import key, label
from dpgateway.errors import RequestError
from dpgateway.resource.front import Unreleased
from dpgateway.resource.granting import Granting
from dpgateway.resource.resource import Common


class OtherFront:
    """Used from the event loop."""

    def __init__(self, us: Us, common: Common) -> None:
        """``common``: with this front's name."""
        self._us, self._common = us, common

    def granting(self, name: str) -> Granting | None:
        """The grants of a resource; None if it is going to be served. Raises RequestError if it isn't configured."""
        if name not in self._common.pools.configs:
            raise RequestError(f"resource {name} isn't configured any more")
        return self._common.served.granting(name)

    def owe(self, name: str, id_: str, entry: Unreleased) -> bool | None:
        """As the pools do; None until another front serves the resource. One that has just left this front is in its
        pool until then, and releases nothing any more.
        """
        pools = self._common.pools
        return pools.owe(name, id_, entry) if name not in pools.configs or self.granting(name) is not None else None

    def pools(self) -> Mapping[str, str]:
        """The pool in slices that each resource would have, by the resource's name."""
        configs = self._common.pools.configs.values()
        return {one.name: self._us.pool_of(one) for one in configs if one.on != self._common.front}

    def offered(self) -> Mapping[str, OfferedElsewhere]:
        """Those that are served, by name."""
        configs, found = self._common.pools.configs, dict[str, OfferedElsewhere]()
        for name, pool in self.pools().items():
            if (granting := self._common.served.granting(name)) is not None:
                found[name] = OfferedElsewhere(granting, pool, partial(_name, name, configs[name].pool))
        return found


def _name(resource: str, pool: str | None, id_: str) -> str:
    """The name of a device in slices."""
    return label(key(resource, pool, id_))
