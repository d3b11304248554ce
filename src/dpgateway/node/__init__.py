"""What the node tells: which kubelet is there, and what its containers hold. No front is known here.

node         one node: publishes the holdings of each resource, says what became of kubelet.sock
watch        says when to look at the kubelet's directory
directory    the kubelet's directory: its files, and what is wrong with it
incarnation  which life of the kubelet a kubelet.sock belongs to
reading      reads the kubelet's checkpoint, and publishes what it says
checkpoint   the formats of the kubelet's checkpoint
asking       asks the kubelet which pods have what, and sees which pods are gone
podresources one question to the kubelet's PodResources API, and its answer
pods         the directories of the kubelet's pods
journal      what must outlive this process, one file for each resource
holdings     what containers hold of one resource, as arithmetic over values
holders      who has an id, as each source says it
"""
