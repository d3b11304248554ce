"""How a resource makes itself known to the kubelet, and stays known."""
