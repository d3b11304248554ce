"""Kubernetes events: what became of a pod's devices and of a node's resources, for ``kubectl describe``.

conditions  what there is to say of each object now, from the status: pure values
book        what was said of each object, and what is to be said next: pure values
objects     the events as the API server has them: pure values
writing     writes them, while the API server answers and while it doesn't
"""
