"""Registers a resource with the kubelet, and keeps it registered.

lifecycle  the state table: when to register
registrar  executes the table's actions
record     the registration's state, for the rest of the gateway
client     sends Register
refusals   warns of a kubelet that speaks none of our APIs
rival      detects another plugin with the same resource name
"""
