"""What containers hold, as the kubelets of the device-plugin API tell it: for the front, and for its resources.

values         what containers hold of one resource, as arithmetic over values
observed       the same as it changes, and the resource that follows it
reading        reads the kubelet's checkpoint, and publishes what it says
asking         asks the kubelet which pods have what, and sees which pods are gone
node_holdings  the holdings of every resource, and their sources at work
"""
