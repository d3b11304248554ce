"""Other plugins' configurations, made into options of this driver: one module for each plugin."""

DRIVER = "chardev"

RUNNING = (
    "pods that run keep their devices under the old ids, which stay listed as Unhealthy until these pods end, while "
    "the same devices are offered under new ids: drain the node, or delete these pods, when you change the plugin"
)
"""What another id means. The kubelet's checkpoint has the old ids, and the kubelet doesn't allocate again."""
