"""One unix socket per resource, with every version of the API on it at once. When to register is left to others.

sockets   the socket's name, and the hard links under which it is registered
streams   ListAndWatch: the list, in bytes
pace      lists one after another, for kubelets that can't take many at once
handlers  each API's RPCs, as gRPC handlers over the resource
callers   which streams are the kubelet's, by the processes that opened them
serving   a gRPC server
endpoint  brings them together
"""
