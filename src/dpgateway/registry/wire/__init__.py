"""The messages of the kubelet's plugin registration, generated from protos/pluginregistration by tools/regenerate.py.

pool                    their descriptor pool, separate from that of drivers' stubs
pluginregistration_pb2  generated
"""
