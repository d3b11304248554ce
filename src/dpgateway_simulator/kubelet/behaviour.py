"""What one kubelet release does, as a value. `releases` has the values."""

from dataclasses import dataclass
from typing import Literal

Layout = Literal["per device", "per container", "with checksum", "by NUMA node"]  # of the checkpoint


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
    empty_name_error: str | None  # None: an empty name is as bad as any other
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
    grace: float | None  # seconds from the end of the stream until the resource is forgotten; None: devices go with it
    topology: bool
    # the directory
    directory_mode: int
    removes_socket: bool  # kubelet.sock goes when the kubelet ends in order
    cleans: Literal["files", "sockets"]
    deprecation_file: bool
    checkpoint_writes: Layout
    checkpoint_reads: tuple[Layout, ...]
    checkpoint_renamed: bool
    checkpoint_each_list: bool
    checkpoint_each_container: bool
    no_numa_key: int
    # pods
    allocates: Literal["start", "pod", "container"]
    admission_error: str
    ignores_unknown: bool  # a resource that the node doesn't know is none of the predicate's business
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
    resource_status: bool  # the status of a container has the health of its devices
