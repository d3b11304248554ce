"""A resource's devices as ResourceSlices of resource.k8s.io/v1, in their JSON form: pure functions over plain values.

names       ids and names as the API accepts them
attributes  a device's attributes, for CEL expressions
counters    hardware behind several devices as shared counters
offered     one device of a slice, and what of it can't be said
layout      devices and counters on slices, within the API's limits
changes     slices wanted against slices seen: what to create, update and delete
due         changes of all pools, and what of them can't wait
"""
