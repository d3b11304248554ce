"""One unix socket per resource, with every version of the API on it at once. ``registration`` decides when to register.

sockets     the socket's names: its path, and the hard links that are registered
streams     ListAndWatch: the encoded list, and the throttle for kubelets that can't take many lists at once
handlers    gRPC handlers for the RPCs of each API
callers     tells the kubelet's streams from other clients', by process
serving     the gRPC server, with reflection
endpoint    the servers and names of one resource
"""
