"""What the node tells: which kubelet is there, and what its containers hold. No front is known here.

node         one node: publishes the holdings of each resource, says what became of kubelet.sock
watch        says when to look at the kubelet's directory
directory    the kubelet's directory: its files, and what is wrong with it
incarnation  which life of the kubelet a kubelet.sock belongs to
reading      reads the kubelet's checkpoint, and publishes what it says
checkpoint   the formats of the kubelet's checkpoint
holdings     what containers hold of one resource, as arithmetic over values
"""
