"""The Container Device Interface: specs on disk that say what a container gets with a device of a given name.

spec         one spec: what it may say (pure)
expansion    names' specs as env, mounts and device nodes, for kubelets and runtimes that don't know CDI (pure)
making       an allocation as a spec of the gateway's own (pure)
directories  reads the specs, and finds what a name stands for; blocks
own          writes the gateway's own specs, keeps and removes them; blocks

What a container runtime does with a name is told by the specification and by its Go library, which the runtimes use
(cncf-tags/container-device-interface: SPEC.md, pkg/cdi). Which kubelets pass names on is left to the front.
"""
