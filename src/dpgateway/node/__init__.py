"""The node: its kubelet, what that kubelet writes and answers, its pods, and the container runtime. It knows no front.

node          the kubelet: whether it runs, which incarnation it is, and when it may have written its checkpoint
watch         watches the kubelet's directory
directory     the kubelet's directory: places, the checkpoint file, and why no kubelet is there
incarnation   tells one life of a kubelet from the next by its kubelet.sock
checkpoint    parses the kubelet's checkpoint, in every format
podresources  a client of the kubelet's PodResources API
pods          directories of the kubelet's pods
runtime       a client of the container runtime: its version, and whether it knows CDI
sandboxes     pods whose sandboxes have stopped, by the container runtime
versions      differences between Kubernetes versions
holders       containers that hold an id, as the checkpoint and PodResources name them
wire          the generated messages
"""
