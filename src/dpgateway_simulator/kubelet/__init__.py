"""The simulated kubelet: its device manager, its pods, and the user's controls over both.

kubelet          the user's interface: queries, pods, calls without a pod, mischief
restartable      start, stop, kill, restart, upgrade: one incarnation after another
cluster_node     what a node of a cluster has: API server, runtime, pauses
node             state that outlives an incarnation: the node, and injected faults
incarnation      one kubelet process: shared state, and the tasks that end with it
releases         the changes of each release
behaviour        one release's behaviour, as a value
device_manager   the device manager: its composition and its start
registration     Register: the checks, and the hand-over of a request that passes
connections      plugins registered per resource, up to 1.24
clients          the same from 1.25 on
endpoint         one registered plugin: dialling, its lists, whether it is stopped
plugin           the RPCs to one plugin
ledger           the device manager's memory
checkpoint       the four formats of `kubelet_internal_checkpoint`
store            the device-plugins directory: cleaning it, and the checkpoint file
workload         the pods of one incarnation
pods             pods, containers, and the general predicate
admission        pod admission, Allocate and container start, in the order of each release
topology         the topology manager
choice           the choice of a container's devices
starting         Allocate and PreStartContainer calls, and the options that a container starts with
dra              the kubelet's half of DRA
pod_objects      pods of the API server, as the kubelet reads them
pod_workers      the pods that the API server has bound to the node
node_status      the Node object
cluster_side     what a kubelet does for a cluster: its composition
pod_directories  the directory of each pod
pod_resources    PodResources List
status           reported capacity, and the devices of a container
events           the event log, to follow or wait on
clock            a clock that can be advanced
errors           the exceptions, by whose fault they are
"""
