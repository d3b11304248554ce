"""What a device manager answers, as it comes over its pipe."""

from typing import Any, NotRequired, TypedDict


class Capacity(TypedDict):
    """What the kubelet would write into its node's status now, by resource."""

    capacity: dict[str, int]
    allocatable: dict[str, int]
    removed: list[str]  # resources whose grace period ended: the node shows them with 0


class Mount(TypedDict):
    container_path: str
    host_path: str
    read_only: bool


class DeviceNode(TypedDict):
    container_path: str
    host_path: str
    permissions: str


class RunOptions(TypedDict):
    """What a container gets from its devices."""

    envs: dict[str, str]
    mounts: list[Mount]
    devices: list[DeviceNode]
    annotations: dict[str, str]
    cdi_devices: list[str]


class Started(TypedDict):
    """How the start of one container went."""

    name: str
    ok: bool
    options: RunOptions | None  # None: it holds no devices
    seconds: float
    error: NotRequired[str]


class Admission(TypedDict):
    """How the admission of a pod, and then the start of its containers, went."""

    ok: bool
    seconds: float  # of the admission alone
    containers: list[Started]  # empty when they weren't started
    error: NotRequired[str]
    stage: NotRequired[str]  # "admit" or "start": where the error came up
    reason: NotRequired[str]  # of a refusal, as the kubelet writes it into the pod's status


Devices = dict[str, Any]  # the release's own structures
Checkpoint = dict[str, Any]
