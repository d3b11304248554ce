"""The front for Dynamic Resource Allocation (DRA): devices as ResourceSlices, grants as prepared ResourceClaims.

plugin       one resource: its devices in the slices, its grants by claims
front        the parts that all resources share: the instance, claims and slices
members      the resources, and what they offer
instance     this gateway's instance of the driver: lock, service, registration
handover     one gateway hands the driver over to the next, while both run
service      the socket that the kubelet calls
health       how devices are, for the status of their pods
preparing    claims prepared for the kubelet
waiting      what a claim waits for before it is prepared
reconciling  claims compared with the kubelet and the API server
abandoned    claims that nobody ends
pods         the pods of claims, as they come and go
extended     the extended resource by which a pod asked for the devices of its claim
giving       what the drivers give to a claim, as CDI specs
ending       claims ended: released, and forgotten
beside       what another front offers, as claims see it
debts        what another front's drivers owe for claims without a record
obstacles    why a node can't give devices by DRA
pools        what the resources offer, as the content of their pools
owner        the Node that owns the slices
dryruns      what of the slices can be published at this API server
publishing   slices at the API server, kept as they should be
refusals     pools that the API server refuses: each rests by itself
writing      slices written, and deletions by others
report       what the front says of itself, for status and metrics
claims       what a claim has: at the API server, on disk, and as holdings
slices       a resource's devices as ResourceSlices, and the changes that publish them: pure values
wire         generated messages
"""
