"""The node's own messages, generated from protos/ by tools/regenerate.py.

pool              their descriptor pool, separate from that of drivers' stubs
podresources_pb2  generated
cri_pb2           generated
"""
