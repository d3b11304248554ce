"""``front: auto``: the choice of a front for the resources of a node, and the change from front to front.

node_switch  the groups of a node, and what each front may offer meanwhile
switch     one group: leaves a front, waits, begins on the other one
view       the gateway, as these see it
claims     the claims that a pool which leaves DRA waits for
states     where a group is, on disk
watching   the facts of this node, as the kubelet and the API server tell them
trying     whether the API server keeps what the slices of a pool need
choosing   decides over them which front a group of resources is to have
classes    whether the scheduler's DeviceClass of a resource selects our devices
facts      what DRA needs, as plain values: known, false or unknown
"""
