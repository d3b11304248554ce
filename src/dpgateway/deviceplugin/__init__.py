"""The front for every kubelet since 1.8: the device-plugin API, in all its versions.

plugin          one resource: its parts, its run and its end
remainder       what the kubelet has to see of a resource that DRA offers
registration    registers the resource with the kubelet
server          the resource's socket, with every API on it
handover        hands the resource over to a newer gateway, or takes it over from an older one
calls           the kubelet's calls, independent of the API's version
holdings        the containers' holdings, as the kubelet reports them
preferred       GetPreferredAllocation
placement       chooses the best free ids (pure)
stored_answers  keeps the kubelet's stored answers valid, or refuses the start
outdated        compares stored answers with present ones (pure)
cdi             delivers CDI devices to containers
values          arguments and results of the calls, independent of the version
api             one module per version of the API
wire            the generated messages
"""
