"""The simulated kubelet: its device manager, the pods that it admits, and how it is started, stopped and misled.

kubelet          what a user can ask of it, tell it, and do to it
restartable      from incarnation to incarnation: start, stop, kill, restart, upgrade
node             what stays when it ends: its node, and what it is told to do wrong or late
incarnation      one life of it: what its parts share, and the tasks that end with it
releases         what changed in which release
behaviour        what one release does, as a value
device_manager   the device manager, put together
registration     Register: the checks of a request, and what becomes of one that passes
connections      who is registered for a resource, up to 1.24
clients          the same from 1.25 on
endpoint         one registered plugin: its lists, and whether it still counts
plugin           the RPCs to one plugin
ledger           what the device manager keeps in memory
checkpoint       the four formats of `kubelet_internal_checkpoint`
store            the directory: what a start deletes, and the checkpoint file
workload         the pods of one incarnation
pods             pods and their containers, and whether the node has what they ask for
admission        admitting pods and starting containers, in the order of each release
topology         the topology manager
choice           which devices a container gets
allocation       Allocate, and the record of its answer
starting         PreStartContainer, and what a container starts with
pod_directories  the directory of each pod
pod_resources    PodResources List
status           what it reports of capacity and of containers
events           what it sees and does, to follow or wait for
clock            a clock that can be turned forward
errors           what can go wrong, by whose fault
"""
