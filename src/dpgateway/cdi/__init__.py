"""The Container Device Interface: spec files on disk that define a container's edits for each named device.

spec         one spec, typed (pure)
expansion    names, expanded to env, mounts and device nodes (pure)
producer     a spec of the gateway's own, produced from an allocation (pure)
directories  reads the node's specs, and resolves names; blocks
own          stores, renews and removes the gateway's own specs; blocks

Sources: the specification, and its Go library, which the container runtimes use (cncf-tags/container-device-interface:
SPEC.md, pkg/cdi). The front knows which kubelets pass names on.
"""
