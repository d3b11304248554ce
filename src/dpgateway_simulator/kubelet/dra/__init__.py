"""The kubelet's half of DRA: which drivers there are, what they prepared, and what containers have of it.

watcher     sockets of plugins_registry
registry    the registration of their plugins
drivers     drivers, their instances and connections, and the deletion of their slices
health      what drivers say of their devices
claims      the claims of the node's pods: cache, state file, calls
cdi         CDI specs, as a container runtime reads them
containers  what claims add to a container
"""
