"""The simulated kubelet's exceptions, by whose fault they are."""


class Crashed(RuntimeError):
    """The kubelet panicked, as the real release does; the text is the panic's."""


class NotRunningError(RuntimeError):
    """A call on a kubelet that isn't running."""


class RefusedError(Exception):
    """The kubelet refuses a registration, with this text."""


class PluginError(Exception):
    """An RPC to the plugin failed; the text is grpc-go's, `rpc error: code = ... desc = ...`."""


class AllocationError(Exception):
    """The device manager can't satisfy a container's request."""
