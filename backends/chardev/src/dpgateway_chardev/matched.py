"""Devices by their properties in sysfs: dpgateway.sysfs finds them, and giving.py makes their contributions.

A device is read once more at allocation and compared with its listed value, since the kubelet chose it from an older
list. Any difference refuses the allocation, and triggers a look at everything, so that the next list is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from dpgateway import Allocation, Candidate, Context, Device, DeviceUnavailable, DriverError
from dpgateway.sysfs import ChangedError, FollowedSurvey, FoundDevice, Look, OutsideError, Survey
from dpgateway_chardev.deviceinfo import DeviceInfo
from dpgateway_chardev.given import Contribution, differing, together
from dpgateway_chardev.giving import Giver, MatchedDevice
from dpgateway_chardev.hostfiles import HostFiles
from dpgateway_chardev.options import CharDeviceOptions


class MatchedDevices:
    """The devices of one resource whose options have ``match``."""

    def __init__(self, options: CharDeviceOptions, context: Context) -> None:
        self._options, self._resource, self._held = options, context.resource, context.held
        survey = Survey(options.selection, self._maker, context.held)
        self._survey = FollowedSurvey(f"chardev {context.resource}", survey, context.changed, context.log)
        self._info = DeviceInfo(context.resource, options.host)

    def find(self) -> Mapping[str, MatchedDevice]:
        """The devices, keyed by id. Raises DriverError."""
        with _listing():
            return self._survey.find()

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        """Verifies each device, sets access to its files, and writes device-info files. Raises DeviceUnavailable,
        DriverError.
        """
        # verification and merging come before the first change to the host
        given: list[tuple[str, Contribution]] = []
        for device in devices:
            if not isinstance(device, MatchedDevice) or device.given is None:
                self._survey.doubt()
                raise DeviceUnavailable(f"{device.id}: it was never listed with what it gives")
            try:
                now = self._survey.again(device.id, device.parts)
            except ChangedError as error:
                raise DeviceUnavailable(f"{device.id}: {error}") from error
            if now.given is None or now.given != device.given:
                self._survey.doubt()
                why = now.health.reason if now.given is None else differing(device.given, now.given)
                raise DeviceUnavailable(f"{device.id}: {why}")
            given.append((device.id, now.given))
        files = HostFiles(self._options.roots, self._options.host)
        allocation = together(given, self._resource)
        for id_, one in given:
            files.permit(id_, one.access)
            if one.info:
                try:
                    self._info.write(id_, one.info)
                except (OSError, OutsideError) as error:
                    raise DriverError(f"{id_}: can't write its device-info file: {error}") from error
        return allocation

    def preview(self, device: Device) -> Allocation:
        given = device.given if isinstance(device, MatchedDevice) else None
        return together([] if given is None else [(device.id, given)], self._resource)

    def explain(self, about: str | None) -> Iterator[Candidate]:
        """A candidate for each matched device, and for each object without one. Raises DriverError."""
        with _listing():
            # a survey of its own, because each takes one look at a time
            explained = tuple(Survey(self._options.selection, self._maker, self._held).explain(about))
        for one in explained:
            if one.why is None:
                yield from (Candidate(one.name, one.path, device=id_) for id_ in one.ids)
            else:
                yield Candidate(one.name, one.path, test=one.why.test, found=one.why.found, expected=one.why.expected)

    def release(self, devices: Sequence[Device]) -> None:
        for device in devices:
            self._info.remove(device.id)

    def close(self) -> None:
        self._survey.close()

    def _maker(self, look: Look) -> Callable[[FoundDevice], MatchedDevice]:
        return Giver(self._options, look).device


@contextmanager
def _listing() -> Iterator[None]:
    """Converts an OSError into a DriverError that names the directory of sysfs."""
    try:
        yield
    except OSError as error:
        raise DriverError(f"{error.filename} can't be listed: {error.strerror}") from error
