"""One unix socket per resource, with every version of the API on it at once. When to register is left to others.

sockets     the names of the socket, and the hard links under which it is registered
streams     ListAndWatch: the list, in bytes; and the throttle for kubelets that can't take many lists at once
handlers    each API's RPCs, as gRPC handlers over the resource
callers     which streams are the kubelet's, by the processes that opened them
reflecting  gRPC's reflection, for people
serving     a gRPC server
endpoint    brings them together
"""
