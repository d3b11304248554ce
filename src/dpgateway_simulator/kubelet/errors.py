"""What can go wrong with a simulated kubelet, named by whose fault it is."""


class Crashed(RuntimeError):
    """The kubelet's own code panicked, as the real release does; the text is the reason."""


class NotRunningError(RuntimeError):
    """Something was asked of a kubelet that isn't started."""


class RefusedError(Exception):
    """The kubelet says no to a registration; gRPC code UNKNOWN with this text, as for any plain Go error."""


class PluginError(Exception):
    """An RPC to the plugin failed; the text is what grpc-go would print, `rpc error: code = ... desc = ...`."""


class AllocationError(Exception):
    """The device manager can't give a container what it asks for."""
