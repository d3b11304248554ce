"""Other plugins' configurations, made into options of this driver: one module for each plugin."""

DRIVER = "chardev"

RUNNING = (
    "pods that run keep their devices under the old ids, and until these pods end all devices of the resource are "
    "Unhealthy, because nobody knows which of them these are: drain the node, or delete these pods, when you change "
    "the plugin"
)
"""What another id means. The kubelet's checkpoint has the old ids, the kubelet doesn't allocate again, and the gateway
gives away nothing that may be theirs (docs/design/holdings.md).
"""
