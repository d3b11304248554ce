"""What a node tells: which kubelet is there, what it wrote down and answers, and what runs. No front is known here.

node          one node: says what became of kubelet.sock, and when the checkpoint may be another one
watch         says when to look at the kubelet's directory
directory     the kubelet's directory: its files, and what is wrong with it
incarnation   which life of the kubelet a kubelet.sock belongs to
checkpoint    the formats of the kubelet's checkpoint
podresources  one question to the kubelet's PodResources API, and its answer
pods          the directories of the kubelet's pods
runtime       one container runtime: whether it knows CDI, and its events
sandboxes     which pods' sandboxes have stopped, as the runtime says
versions      what differs between versions of Kubernetes
holders       who has an id, as each source says it
wire          the generated messages
"""
