"""Whether there may be claims without a record, which have devices that nobody here knows of.

Theory of operation. While there may be such claims, claims are in doubt: none gets devices, and an id that only a
journal knows stays in use. There are three reasons, and a text for people says which it is (``why``):

    not compared   ``state_dir`` is new or was lost, and the records weren't compared with the kubelet's claims yet
                   (``reconciling``), by this gateway or an earlier one
    lost           at the last comparison the kubelet had a claim without a record
    damaged        a file is no record, so it stands for devices that nobody knows. It is settled by its claim's end, by
                   another preparation of its claim, or by a person who removes it

Another front may offer such devices by now. It gives nothing of the resources in question (``in_doubt``): of all that
weren't served before claims were, until the first comparison, unless no kubelet can tell of claims; of the lost claims'
pools; and of all while a file is damaged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial

from dpgateway.dra.claims.files import ClaimDisk
from dpgateway.dra.claims.records import Damaged
from dpgateway.errors import RequestError
from dpgateway.kit.observable import Observable


class ClaimDoubts:
    """Used from the event loop."""

    def __init__(self, disk: ClaimDisk, log: logging.LoggerAdapter[logging.Logger]) -> None:
        self._disk, self._log = disk, log
        self.loaded = False
        """Whether the records were read and are this gateway's. Before, nothing is known of claims."""
        self.why = Observable("")
        """Why claims without a record may have devices; empty if none can."""
        self.in_doubt = Observable(frozenset[str]())
        """The resources of other fronts that claims without a record may have devices of."""
        self.others: Callable[[], Mapping[str, str]] = dict
        """The pool in slices of each resource that another front offers, by the resource's name."""
        self.served_before: Collection[str] = ()
        """Those that were served before claims were: these aren't taken away until the first comparison."""
        self.compared = self._saved = False
        """Whether the records were compared with the kubelet's claims; ``_saved``: whether the disk says so."""
        self.lost, self._lost_pools = "", frozenset[str]()
        """Why records are missing, empty if none is, as far as known; and the pools of their devices."""
        self.damaged: dict[str, Damaged] = {}
        """`damaged` contains the files that are no records, keyed by the uid of the claim whose record each was."""
        self._blind = False
        """Whether there is no kubelet that can tell."""

    async def complete(self) -> bool:
        """Whether some gateway has compared the records with the kubelet's claims. Raises GatewayError."""
        return await self._disk.run(lambda: self._disk.files.complete)

    def load(self, damaged: tuple[Damaged, ...], *, compared: bool) -> None:
        """The records were read. ``compared``: whether some gateway has compared them."""
        self.damaged, self.compared, self._saved = {one.uid: one for one in damaged}, compared, compared
        self._blind = False  # what has failed until now may have been the disk
        for one in damaged:
            text = "%s: not a claim's record, so what it stands for can't be freed: %s"
            self._log.error(text, self._disk.files.folder / one.file, one.why)
        self._look()
        self.loaded = True
        self.look_at_others()

    def rest(self) -> None:
        """The records are another gateway's from now on."""
        self.loaded = False

    @property
    def unsure(self) -> bool:
        """Whether there may be claims that aren't known here: they are another gateway's, or in doubt."""
        return not self.loaded or bool(self.why.value)

    def why_not(self, uid: str) -> str:
        """Why the claim gets no devices now. A claim whose own damaged record is the only doubt may be prepared again:
        its devices are its own.
        """
        own = self.compared and not self.lost and list(self.damaged) == [uid]
        return "" if own else self.why.value

    def missing(self, why: str, pools: Collection[str] = ()) -> None:
        """The records were compared with the kubelet's claims. ``why``: of those that are missing, empty if none is;
        ``pools``: of their devices.
        """
        self.compared = self.compared or not why
        if why and why != self.lost:
            self._log.error("no claim gets devices: %s", why)
        self.lost, self._lost_pools = why, frozenset(pools)
        self._look()

    async def save(self) -> None:
        """Writes that the records were compared, so that the next gateway knows. Raises GatewayError, OSError."""
        if self.compared and not self._saved:
            await self._disk.run(self._disk.files.completed)
            self._saved = True

    def kubelet_is_mute(self, *, mute: bool = True) -> None:
        """No kubelet can tell of claims here: it is one without DRA, or none of its sockets can be seen; or one may be
        able to again.
        """
        before, self._blind = self._blind, mute
        self.look_at_others()
        if mute != before:
            self.why.notify()

    @property
    def blind(self) -> bool:
        """Whether nobody can tell of claims without a record, and none is known to have lost it. Only what the journals
        know of is in use then: else other fronts could give nothing of whole pools, for as long as DRA can't be served.
        """
        return self._blind and not (self.damaged or self.lost)

    def look_at_others(self) -> None:
        """Other resources may be offered by another front now."""
        if self.loaded:
            others, untold = self.others(), not (self.compared or self._blind)
            lost = frozenset(name for name, pool in others.items() if self.damaged or pool in self._lost_pools)
            self.in_doubt.set(lost | (others.keys() - set(self.served_before) if untold else frozenset()))

    # damaged files

    async def set_aside(self, one: Damaged) -> None:
        """The claim of this file has ended. Raises RequestError."""
        try:
            await self._disk.change(one.uid, partial(self._disk.files.set_aside, one))
        except OSError as error:
            raise RequestError(f"{self._disk.files.folder / one.file} can't be set aside: {error}") from error
        self._log.warning("%s: the claim has ended; the file is kept as %s.damaged", one.file, one.file)
        self._settled([one])

    async def look_for_damage(self) -> None:
        """Forgets the damaged files that a person has removed. Raises GatewayError, OSError."""
        if self.damaged and (gone := await self._disk.run(partial(self._disk.files.gone, self.damaged.values()))):
            self._settled(gone)

    def written(self, uid: str) -> None:
        """The claim's record was written: a damaged file of it is gone."""
        if uid in self.damaged:
            self._settled([self.damaged[uid]])

    def _settled(self, some: Collection[Damaged]) -> None:
        self.damaged = {uid: one for uid, one in self.damaged.items() if one not in some}
        self._look()
        self.why.notify()  # its text may name another file than the one that a claim waits for

    def _look(self) -> None:
        if self.damaged:
            one = next(iter(self.damaged.values()))
            file = self._disk.files.folder / one.file
            why = (
                f"{file} isn't a claim's record ({one.why}), so it isn't known which devices its claim "
                "has: no claim gets devices before that claim has ended; if none of its pods runs any more, remove the "
                "file"
            )
        elif self.lost or self.compared:
            why = self.lost
        else:
            why = "it isn't known yet which claims pods have: the kubelet's PodResources hasn't told"
        self.why.set(why)
        self.look_at_others()
