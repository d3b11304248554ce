"""The front that every kubelet since 1.8 knows: the device-plugin API, in all its versions.

plugin        one resource, from its driver to the kubelet: its parts, its run and its end
registration  makes the resource known to the kubelet
server        the resource's socket, with every API on it
resource      what a kubelet may ask of a resource, in no version's words; preferring: its preferences
elsewhere     what other gateways of the node serve
offer         what a resource lists
fitness       what a container may have with a device
held          which devices containers hold, for drivers that ask
api           one module per version of the API
wire          the generated messages

What is known of hardware is in ``dpgateway.drivers``, what is known of the node in ``dpgateway.node``.
"""
