"""The changes of each kubelet release after 1.8, as a change log with one row per release.

Rows come from the releases' sources (package `devicemanager`, `deviceplugin` up to 1.9) and from running them. A row's
key is (minor, patch), its fields are those of `Behaviour`. Other modules ask a Behaviour and compare no versions. A fix
that was backported has a row in each minor release, and the next minor's row sets it back: its early patches lack it.
"""

import re
from dataclasses import replace
from typing import Any

from dpgateway_simulator.kubelet.behaviour import Behaviour

OLDEST, NEWEST = 8, 37  # minor versions
_NEWEST_PATCH = 99

_VERSION_ERROR = 'requested API version {} is not supported by kubelet. Supported version is "v1alpha2"'
_NO_CONTAINERS = "no containers return in allocation response "

CHANGES: dict[tuple[int, int], dict[str, Any]] = {
    (9, 0): {
        "api": "v1alpha2",
        "version_error": _VERSION_ERROR,
        "empty_name_error": None,
        "name_error": "the ResourceName {} is invalid",
        "clients": "replaced",
        "replaced_keep_health": True,  # #62773
        "grace": 300.0,
        "removes_socket": True,
        "checkpoint_writes": "per container",
        "checkpoint_reads": ("per container",),
        "checkpoint_each_list": True,
        "allocates": "pod",
        "admission_error": "Update plugin resources failed due to {}, which is unexpected.",
    },
    (9, 8): {"replaced_keep_health": False},  # #63231
    (10, 0): {
        "api": "v1beta1",
        "user_agent": "grpc-go/1.7.5",
        "receive_limit": 4 << 20,
        "version_error": _VERSION_ERROR.replace("version is", "versions are").replace('"v1alpha2"', '["v1beta1"]'),
        "qualified_names": True,
        "blocking_dial": True,
        "replaced_keep_health": True,
        "hides_unhealthy": False,
        "checkpoint_renamed": True,
        "ignores_unknown": True,
        "pre_start": True,
    },
    (10, 3): {"replaced_keep_health": False},  # #63229
    (11, 0): {"checkpoint_writes": "with checksum", "checkpoint_reads": ("with checksum",)},
    (12, 0): {
        "version_error": _VERSION_ERROR.replace('"v1alpha2"', '["v1beta1"]'),
        "clients": "newest",
        "options_stay": False,
        "list_replaces": True,
        "deprecation_file": True,  # GetWatcherHandler
        "empty_answer_error": _NO_CONTAINERS.capitalize() + "&AllocateResponse{ContainerResponses:[],}",
        "reallocates": "pod",
    },
    (13, 0): {"user_agent": "grpc-go/1.13.0", "registry": True},
    (15, 0): {"lists": ("v1alpha1",)},  # in 1.13 and 1.14 only with the gate KubeletPodResources
    (16, 0): {
        "user_agent": "grpc-go/1.23.1",
        "list_frees": True,  # #79409, of 1.18; backported to 1.16 and 1.17
        "topology": True,
        "empty_answer_error": _NO_CONTAINERS + "&AllocateResponse{ContainerResponses:[],}",
    },
    (17, 0): {"directory_mode": 0o750},
    (18, 0): {
        "user_agent": "grpc-go/1.26.0",
        "allocates": "container",
        "admission_error": "Allocate failed due to {}, which is unexpected",
        "reallocates": "container",
        "topology_policies": True,
    },
    (19, 0): {
        "user_agent": "grpc-go/1.27.1",
        "preferred": True,
        "unknown_plugin_error": "unknown Device Plugin {}",
        "checkpoint_each_container": False,
        "zero_pre_starts": False,
        "empty_answer_error": _NO_CONTAINERS + "&AllocateResponse{ContainerResponses:[]*ContainerAllocateResponse{},}",
    },
    # #102880: the first patches of 1.20 to 1.22 can't read the older checkpoint; the newest can (#102882)
    (20, 0): {
        "checkpoint_writes": "by NUMA node",
        "checkpoint_reads": ("by NUMA node", "with checksum"),
        "lists": ("v1", "v1alpha1"),
        "list_entries": "node",
    },
    (21, 0): {"list_entries": "device"},
    (22, 0): {"user_agent": "grpc-go/1.38.0"},
    (23, 0): {"user_agent": "grpc-go/1.40.0", "no_numa_key": -1},
    # #109016 moves the connections to plugin/v1beta1; the manager's GetPluginHandler is no longer called
    (25, 0): {
        "user_agent": "grpc-go/1.47.0",
        "clients": "one",
        "synchronous": True,
        "disconnect_crashes": True,
        "deprecation_file": False,
    },
    # #116376 for #109595, and #118635 for its fallout, were both backported
    (25, 10): {"needs_healthy": True, "unregistered_error": "cannot allocate unregistered device {}"},
    (25, 14): {"spares_running": True},
    (26, 0): {
        "user_agent": "grpc-go/1.49.0",
        "authority": "localhost",  # #112597
        "needs_healthy": False,
        "spares_running": False,
    },
    (26, 5): {"needs_healthy": True},
    (26, 11): {"spares_running": True},
    (27, 0): {"user_agent": "grpc-go/1.51.0", "needs_healthy": False, "spares_running": False, "list_burst": 10},
    (27, 2): {"needs_healthy": True},
    (27, 8): {"spares_running": True},
    (28, 0): {"user_agent": "grpc-go/1.54.0"},
    (29, 0): {
        "user_agent": "grpc-go/1.58.3",
        "disconnect_crashes": False,
        "sidecars": True,
        "cdi": True,  # the gate DevicePluginCDIDevices: off in 1.28, on from 1.29
        "cdi_annotation": True,
    },
    (31, 0): {"user_agent": "grpc-go/1.65.0", "checkpoint_reads": ("by NUMA node",), "resource_status": True},
    (32, 0): {
        "cdi_annotation": False,  # #126435
        "dra": "claims",  # in 1.32 and 1.33 only with the gate DynamicResourceAllocation
        "dra_services": ("v1beta1.DRAPlugin",),
    },
    (33, 0): {"user_agent": "grpc-go/1.68.1", "cleans": "sockets"},
    (34, 0): {
        "user_agent": "grpc-go/1.72.1",
        "vanished_crashes": True,  # allDevices becomes a map of pointers
        "lists_finished": False,  # KubeletPodResourcesListUseActivePods
        "empty_answer_error": _NO_CONTAINERS,
        "dra_services": ("v1.DRAPlugin", "v1beta1.DRAPlugin"),
    },
    (35, 0): {"user_agent": "grpc-go/1.72.2", "register_context": True},
    (36, 0): {
        "user_agent": "grpc-go/1.79.3",
        "health_status": True,  # the gate ResourceHealthStatus, on from 1.36
        "dynamic_resources": True,  # before only with the gate KubeletPodResourcesDynamicResources
        "dra": "extended",  # the gate DRAExtendedResource, on from 1.36
        "health_services": ("v1alpha1",),
    },
    (37, 0): {
        "user_agent": "grpc-go/1.82.1",
        "clients": "many",  # #135437
        "health_services": ("v1", "v1alpha1"),
        "share_ids": True,
    },
}


class UnknownVersionError(ValueError):
    """Not a kubelet's version, or one that this simulator doesn't know."""


def behaviour(version: str) -> Behaviour:
    """The behaviour of kubelet "1.24", "v1.24" or "1.24.17"; without a patch, of the minor's newest patch release."""
    match = re.fullmatch(r"v?1\.(\d+)(?:\.(\d+))?", version.strip())
    if not match or not OLDEST <= int(match[1]) <= NEWEST:
        raise UnknownVersionError(
            f"unknown kubelet version {version!r}, expected 1.{OLDEST} to 1.{NEWEST}, such as 1.24"
        )
    minor, patch = int(match[1]), int(match[2] or _NEWEST_PATCH)
    known = Behaviour(version.strip().removeprefix("v"), minor)
    for since, changes in CHANGES.items():
        if since <= (minor, patch):
            known = replace(known, **changes)
    return known


def versions() -> tuple[str, ...]:
    """Every version, oldest first."""
    return tuple(f"1.{minor}" for minor in range(OLDEST, NEWEST + 1))
