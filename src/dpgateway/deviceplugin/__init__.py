"""The front that every kubelet since 1.8 knows: the device-plugin API, in all its versions.

plugin          one resource, from its driver to the kubelet: its parts, its run and its end
registration    makes the resource known to the kubelet
server          the resource's socket, with every API on it
handover        hands the resource over to a newer gateway, or takes it over from an older one
calls           what a kubelet asks of a resource, in no version's words
holdings        what containers hold, as the kubelet tells it
preferred       which ids a container should get
placement       the best of the free ids
stored_answers  refuses a start with an outdated answer
outdated        which answers are outdated
fitness         what a container may have with a device
cdi             how CDI names reach containers
values          what the calls take and return, in no version's words
api             one module per version of the API
wire            the generated messages
"""
