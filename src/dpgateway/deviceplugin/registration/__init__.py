"""How a resource makes itself known to the kubelet, and stays known.

lifecycle  the table that decides when to register
registrar  does what the table says
client     sends Register
"""
