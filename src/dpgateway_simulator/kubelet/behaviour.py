"""What one kubelet release does, as a value. A version without a patch means the newest patch release."""

import re
from dataclasses import dataclass
from typing import Literal

from dpgateway_simulator.kubelet import releases

OLDEST, NEWEST = 8, 37
_NEWEST_PATCH = 99


class UnknownVersionError(ValueError):
    """A version that isn't a kubelet's, or one that this simulator doesn't know."""


@dataclass(frozen=True)
class Behaviour:
    """One release. Words in quotes are the kubelet's own texts; `{}` fields are filled in where they are used."""

    version: str
    minor: int
    # the wire
    api: str  # the version string that Register accepts
    user_agent: str
    authority: Literal["path", "localhost"]
    receive_limit: int | None  # bytes in one message, None: unlimited
    # registering
    version_error: str
    name_error: str
    qualified_names: bool
    clients: Literal["first list", "replaced", "newest", "one", "many"]
    blocking_dial: bool
    synchronous: bool  # Register dials and asks for the options before it answers
    register_context: bool  # a Register that its caller gives up is given up
    options_stay: bool  # a Register without options keeps those of the one before
    replaced_keep_health: bool  # kubernetes #62773
    disconnect_crashes: bool  # the end of a client whose resource is already forgotten
    # devices
    list_replaces: bool  # else a list is compared with the endpoint's own last one
    hides_unhealthy: bool
    grace: float  # seconds from the end of the stream until the resource is forgotten
    topology: bool
    # the directory
    directory_mode: int
    cleans: Literal["files", "sockets"]
    deprecation_file: bool
    checkpoint_writes: Literal["1.8", "1.9", "1.11", "1.20"]
    checkpoint_reads: tuple[str, ...]
    checkpoint_renamed: bool
    checkpoint_each_list: bool
    checkpoint_each_container: bool
    no_numa_key: int
    # pods
    allocates: Literal["start", "pod", "container"]
    admission_error: str
    unregistered_error: str
    unknown_plugin_error: str
    empty_answer_error: str | None  # None: the kubelet crashes
    vanished_crashes: bool  # an allocated id that isn't in the list is a nil pointer
    needs_healthy: bool  # no allocation, not even of nothing, without a healthy device
    spares_running: bool  # containers found running at start are left alone until the sources are ready
    sidecars: bool
    pre_start: bool
    zero_pre_starts: bool  # PreStartContainer also for a limit of 0
    reallocates: Literal["never", "pod", "container"]
    preferred: bool
    annotations: bool
    cdi: bool
    cdi_annotation: bool
    topology_policies: bool
    health_status: bool  # health changes of held devices go into the pod's status

    @property
    def package(self) -> str:
        """The gRPC package of the API."""
        return "v1beta1" if self.api == "v1beta1" else "deviceplugin"


def behaviour(version: str) -> Behaviour:
    """What kubelet `version` does: "1.24", "v1.24" or "1.24.17"."""
    match = re.fullmatch(r"v?1\.(\d+)(?:\.(\d+))?", version.strip())
    if not match or not OLDEST <= int(match[1]) <= NEWEST:
        raise UnknownVersionError(
            f"unknown kubelet version {version!r}, expected 1.{OLDEST} to 1.{NEWEST}, such as 1.24"
        )
    minor, patch = int(match[1]), int(match[2] or _NEWEST_PATCH)
    known = dict(releases.OLDEST)
    for since, changes in releases.CHANGES.items():
        if since <= (minor, patch):
            known.update(changes)
    return Behaviour(version=version.strip().removeprefix("v"), minor=minor, **known)  # type: ignore[arg-type]


def versions() -> tuple[str, ...]:
    """Every version, oldest first."""
    return tuple(f"1.{minor}" for minor in range(OLDEST, NEWEST + 1))
