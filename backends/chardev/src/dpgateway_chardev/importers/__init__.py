"""Other plugins' configurations, made into options of this driver: one module for each plugin.

generic          generic-device-plugin
generic_config   what generic-device-plugin reads
generic_match    its groups that need a match
kubevirt         KubeVirt's permitted host devices
smarter          smarter-device-manager
sriov            sriov-network-device-plugin
sriov_selectors  its selectors, as alternatives of `match`
sriov_auxiliary  its selectors of auxiliary devices
"""

DRIVER = "chardev"

RUNNING = (
    "pods that run keep their devices under the old ids, and until these pods end all devices of the resource are "
    "Unhealthy, because nobody knows which of them these are: drain the node, or delete these pods, when you change "
    "the plugin"
)
"""What another id means. The kubelet's checkpoint has the old ids, the kubelet doesn't allocate again, and the gateway
gives away nothing that may be theirs (docs/design/holdings.md).
"""
