"""The kubelet's side: its directory, its checkpoint, and registering with it."""
