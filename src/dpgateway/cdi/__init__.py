"""The Container Device Interface: specs on disk that say what a container gets with a device of a given name.

spec         one spec, typed (pure)
expansion    names, expanded to env, mounts and device nodes (pure)
producer     a spec of the gateway's own, produced from an allocation (pure)
directories  reads the node's specs, and resolves names; blocks
own          stores the gateway's own specs, renews and removes them; blocks

What a container runtime does with a name is told by the specification and by its Go library, which the runtimes use
(cncf-tags/container-device-interface: SPEC.md, pkg/cdi). Which kubelets pass names on is left to the front.
"""
