"""Converts other plugins' configurations into options of this driver.

akri             Akri's Configurations
generic          generic-device-plugin
generic_config   generic-device-plugin's configuration format
generic_match    generic-device-plugin's groups that need a match
paths            classifies paths in /dev
host_device      k8s-host-device-plugin
hostdev          k8s-hostdev-plugin
intel            Intel's device plugins
intel_settings   their settings: objects, charts' values, flags
intel_flags      the flags of their containers
intel_version    the version of the one for GPUs
kubevirt         KubeVirt's permitted host devices
rdma_shared      k8s-rdma-shared-dev-plugin
smarter          smarter-device-manager
sriov            sriov-network-device-plugin
sriov_selectors  its selectors, as alternatives of `match`
sriov_auxiliary  its selectors of auxiliary devices
sriov_policy     the policies of its operator
"""

DRIVER = "chardev"

RUNNING = (
    "pods that run keep their devices under the old ids, and until these pods end all devices of the resource are "
    "Unhealthy, because nobody knows which of them these are: drain the node, or delete these pods, when you change "
    "the plugin"
)
"""The effect of a changed id on running pods: the kubelet's checkpoint has the old ids, the kubelet doesn't allocate
again, and the gateway allocates no device that may be theirs (docs/design/holdings.md).
"""

MOST_SHARES = 1000
TOO_MANY = f"shares are at most {MOST_SHARES}"
