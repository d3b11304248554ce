"""One kubelet release's behaviour, as a value. The defaults are 1.8's; `releases` contains the later changes."""

from dataclasses import dataclass
from typing import Literal

Layout = Literal["per device", "per container", "with checksum", "by NUMA node"]  # of the checkpoint


@dataclass(frozen=True)
class Behaviour:
    """One release. Fields named `*_error` are the kubelet's own messages, format strings with at most one `{}`."""

    version: str
    minor: int
    # the wire
    api: str = "0.1"  # the version string that Register accepts
    user_agent: str = "grpc-go/1.3.0"
    authority: Literal["path", "localhost"] = "path"
    receive_limit: int | None = None  # bytes in one message, None: unlimited
    # registering
    version_error: str = "unsupported API version by the Kubelet registry"
    empty_name_error: str | None = "invalid Empty ResourceName"  # None: name_error covers it
    name_error: str = "the ResourceName is invalid"
    qualified_names: bool = False
    clients: Literal["first list", "replaced", "newest", "one", "many"] = "first list"
    blocking_dial: bool = False
    synchronous: bool = False  # Register dials and asks for the options before it answers
    register_context: bool = False  # the kubelet abandons a Register that its caller cancels
    options_stay: bool = True  # options belong to the resource, and stay when its plugin is gone
    replaced_keep_health: bool = False  # kubernetes #62773
    disconnect_crashes: bool = False  # the kubelet panics when a client disconnects after its resource was forgotten
    # devices
    list_replaces: bool = False  # False: only the difference to the endpoint's last list counts
    hides_unhealthy: bool = True
    grace: float | None = (
        None  # seconds from a stream's end until the resource is forgotten; None: its devices go with it
    )
    topology: bool = False
    # the directory
    directory_mode: int = 0o755
    removes_socket: bool = False  # an orderly end removes kubelet.sock
    cleans: Literal["files", "sockets"] = "files"
    deprecation_file: bool = False
    checkpoint_writes: Layout = "per device"
    checkpoint_reads: tuple[Layout, ...] = ("per device",)
    checkpoint_renamed: bool = False
    checkpoint_each_list: bool = False
    checkpoint_each_container: bool = True
    no_numa_key: int = 0
    # pods
    allocates: Literal["start", "pod", "container"] = "start"
    admission_error: str = "{}"
    ignores_unknown: bool = False  # the predicate leaves out resources that the node doesn't know
    unregistered_error: str = "can't allocate unregistered device {}"
    unknown_plugin_error: str = "Unknown Device Plugin {}"
    empty_answer_error: str | None = None  # None: the kubelet panics
    vanished_crashes: bool = False  # the kubelet panics when an allocated id isn't in the list
    needs_healthy: bool = False  # without a healthy device nothing is allocated, not even 0 devices
    spares_running: bool = False  # until the sources are ready, containers found running keep what they have
    sidecars: bool = False
    pre_start: bool = False
    zero_pre_starts: bool = True  # PreStartContainer also for a limit of 0
    reallocates: Literal["never", "pod", "container"] = "never"
    preferred: bool = False
    cdi: bool = False
    cdi_annotation: bool = False
    topology_policies: bool = False
    health_status: bool = False  # a held device's change of health makes the kubelet write the pod's status
    resource_status: bool = False  # a container's status names its devices and their health
    # PodResources
    lists: tuple[str, ...] = ()  # the versions of its API
    list_entries: Literal["resource", "node", "device"] = "resource"  # one ContainerDevices for each
    list_frees: bool = False  # List frees the devices of pods that are gone
    lists_finished: bool = True  # also lists finished pods until their deletion; if it frees, without devices
    dynamic_resources: bool = False  # List names the devices of claims, too
    share_ids: bool = False  # ... and which share each is
    list_burst: int | None = None  # burst of the rate limiter, which refills ten times that a second; None: unlimited
    # plugins_registry and DRA
    registry: bool = False  # plugins register in plugins_registry, too
    dra: Literal["none", "claims", "extended"] = "none"  # extended: a pod's extended resource may come by a claim
    dra_services: tuple[str, ...] = ()  # of DRA, as a plugin registers them
    health_services: tuple[str, ...] = ()  # of DRA's health: the packages, the best first
