"""The kubelet's messages, generated from protos/ by tools/regenerate.py; only ``api`` imports them.

pool          their descriptor pool, separate from that of drivers' stubs
v1beta1_pb2   generated
v1alpha2_pb2  generated
v0_1_pb2      generated: the differences of v1alpha1
"""
