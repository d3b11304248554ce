"""What the drivers give to a claim, as CDI specs: a claim's answer has only names."""

from __future__ import annotations

import logging
from functools import partial

from dpgateway.cdi.own import OwnSpecs
from dpgateway.dra.claims.records import ClaimRecord, Given
from dpgateway.dra.claims.store import ClaimStore
from dpgateway.drivers.parameters import with_parameters
from dpgateway.errors import CdiError, RequestError
from dpgateway.model import Allocation
from dpgateway.resource.granting import Granting, Terms

API = "DRA"
"""The name of this API in the log."""
LOSSES = ("annotations",)
"""Fields of an allocation that no CDI spec can express; the log names those that a container loses."""


class ClaimGrants:
    """Used from the event loop."""

    def __init__(self, store: ClaimStore, specs: OwnSpecs) -> None:
        self._store, self._specs = store, specs

    async def give(self, one: Given, claim: ClaimRecord) -> tuple[str, ...]:
        """The CDI names of what the driver gives for a request. Raises GatewayError; then nothing is given."""
        offering = self._store.offerings.get(one.resource)
        granting = offering.granting if offering is not None else self._store.elsewhere(one.resource)
        if granting is None or (one.admin and offering is None):
            raise RequestError(f"resource {one.resource} isn't served here any more")
        deliver = partial(self._deliver, granting, one, claim.uid)
        if one.admin and offering is not None:
            devices = [offering.id_of(one.pool, device) or device for device, _ in one.devices]
            return (await granting.show(devices, deliver)).cdi_devices

        # Class and claim choose options of the driver's type.
        options: object = None
        if one.parameters:
            config = granting.config.value
            if config.options is None:
                raise RequestError(f"resource {one.resource}: its driver {config.driver} isn't running; see the log")
            try:
                options = await self._store.disk.run(partial(with_parameters, config.options, one.parameters))
            except ValueError as error:
                text = f"{claim}: parameters of request {one.request} for {one.resource}: {error}"
                raise RequestError(text) from error

        # The claim's own record holds the ids already: that is no obstacle.
        terms = Terms(API, deliver, repeats=True, prepares=True, options=options)
        if offering is None:
            return (await granting.repeat(self._store.behind(one), terms)).cdi_devices
        return (await granting.grant(one.ids, terms)).cdi_devices

    async def _deliver(self, granting: Granting, one: Given, uid: str, allocation: Allocation) -> Allocation:
        """Puts all that a container gets into a CDI spec, which is kept for the ids of the claim."""
        for field in LOSSES:
            if getattr(allocation, field):
                granting.log_once(logging.WARNING, f"DRA has no {field}: containers don't get them")
        try:
            write = partial(self._specs.write, one.resource, one.spec_ids(uid), allocation, lasting=False)
            return await self._store.disk.change(uid, write)
        except CdiError as error:
            raise RequestError(f"resource {one.resource}: {error}") from error
