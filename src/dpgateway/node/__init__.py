"""The node: its kubelet with checkpoint and APIs, its pods, and the container runtime. Independent of the fronts.

node          the kubelet: its presence, its incarnation, and the times of its checkpoint's writes
watch         watches the kubelet's directory
directory     the kubelet's directory: its paths, the checkpoint file, and reasons for a missing kubelet
incarnation   tells one life of a kubelet from the next by its kubelet.sock
checkpoint    parses the kubelet's checkpoint, in every format
podresources  a client of the kubelet's PodResources API
pods          directories of the kubelet's pods
runtime       a client of the container runtime: its version, and whether it knows CDI
cgroups       pods with a running process, by their cgroups
sandboxes     pods with stopped sandboxes, by the container runtime
versions      differences between Kubernetes versions
holders       containers that hold an id, as the checkpoint and PodResources name them
wire          the generated messages
"""
