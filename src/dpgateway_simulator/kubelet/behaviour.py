"""One kubelet release's behaviour, as a value. `releases` contains the values."""

from dataclasses import dataclass
from typing import Literal

Layout = Literal["per device", "per container", "with checksum", "by NUMA node"]  # of the checkpoint


@dataclass(frozen=True)
class Behaviour:
    """One release. Fields named `*_error` are the kubelet's own messages, format strings with at most one `{}`."""

    version: str
    minor: int
    # the wire
    api: str  # the version string that Register accepts
    user_agent: str
    authority: Literal["path", "localhost"]
    receive_limit: int | None  # bytes in one message, None: unlimited
    # registering
    version_error: str
    empty_name_error: str | None  # None: name_error covers it
    name_error: str
    qualified_names: bool
    clients: Literal["first list", "replaced", "newest", "one", "many"]
    blocking_dial: bool
    synchronous: bool  # Register dials and asks for the options before it answers
    register_context: bool  # the kubelet abandons a Register that its caller cancels
    options_stay: bool  # options belong to the resource, and stay when its plugin is gone
    replaced_keep_health: bool  # kubernetes #62773
    disconnect_crashes: bool  # the kubelet panics when a client disconnects after its resource was forgotten
    # devices
    list_replaces: bool  # False: only the difference to the endpoint's last list counts
    hides_unhealthy: bool
    grace: float | None  # seconds from a stream's end until the resource is forgotten; None: its devices go with it
    topology: bool
    # the directory
    directory_mode: int
    removes_socket: bool  # an orderly end removes kubelet.sock
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
    ignores_unknown: bool  # the predicate leaves out resources that the node doesn't know
    unregistered_error: str
    unknown_plugin_error: str
    empty_answer_error: str | None  # None: the kubelet panics
    vanished_crashes: bool  # the kubelet panics when an allocated id isn't in the list
    needs_healthy: bool  # without a healthy device nothing is allocated, not even 0 devices
    spares_running: bool  # until the sources are ready, containers found running keep what they have
    sidecars: bool
    pre_start: bool
    zero_pre_starts: bool  # PreStartContainer also for a limit of 0
    reallocates: Literal["never", "pod", "container"]
    preferred: bool
    cdi: bool
    cdi_annotation: bool
    topology_policies: bool
    health_status: bool  # a held device's change of health makes the kubelet write the pod's status
    resource_status: bool  # a container's status names its devices and their health
    # PodResources
    lists: tuple[str, ...]  # the versions of its API
    list_entries: Literal["resource", "node", "device"]  # one ContainerDevices for each
    lists_finished: bool  # also lists finished pods, without devices, until their deletion
    list_burst: int | None  # burst of the rate limiter, which refills ten times that a second; None: unlimited
