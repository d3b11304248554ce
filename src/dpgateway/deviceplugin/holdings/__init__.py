"""The holdings, from the kubelet's sources of the device-plugin API: for the front and its resources.

values         the holdings of one resource: each event returns the next value
evidence       what the sources told last, and what follows: held, in use, freed
struck         the part of it that the kubelet takes for free although its pods may run
observed       the observable holdings, and the resource that follows them
reading        reads the kubelet's checkpoint, and publishes its notes
asking         asks PodResources for the holders, and watches for the end of pods
node_holdings  the holdings of all resources, and their running sources
"""
