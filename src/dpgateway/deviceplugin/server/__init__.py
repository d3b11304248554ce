"""One unix socket per resource, with every dialect on it at once.

sockets   the socket's name, its lock, and the hard links under which it is registered
streams   ListAndWatch: the inventory, in bytes
handlers  each API's RPCs, as gRPC handlers over the resource
endpoint  the gRPC server that brings them together
"""
