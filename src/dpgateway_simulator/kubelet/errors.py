"""What can go wrong with a simulated kubelet, named by whose fault it is."""


class Crashed(RuntimeError):
    """The kubelet panicked, as the real release does; the text is the reason."""


class NotRunningError(RuntimeError):
    """A kubelet that isn't running was asked for something."""


class RefusedError(Exception):
    """The kubelet refuses a registration, with this text."""


class PluginError(Exception):
    """An RPC to the plugin failed; the text is what grpc-go would print, `rpc error: code = ... desc = ...`."""


class AllocationError(Exception):
    """The device manager can't give a container what it asks for."""
