"""The messages of DRA, generated from protos/dra by tools/regenerate.py; only ``api`` imports them.

pool        their descriptor pool, separate from that of drivers' stubs
dra_pb2     generated: claims to prepare and to unprepare, v1 and v1beta1
health_pb2  generated: the health of devices, v1 and v1alpha1
"""
