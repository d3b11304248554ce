"""How a resource makes itself known to the kubelet, and stays known.

lifecycle  the table that decides when to register
registrar  does what the table says
record     what the rest of the gateway sees of the registration
client     sends Register
refusals   warns of a kubelet that speaks none of our APIs
rival      notices another plugin with the same resource name
"""
