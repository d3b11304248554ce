"""Seamless handover: one gateway passes its resources to its successor, and the kubelet misses no list and no call.

protocol     the messages between the two gateways, their order, and the outcome if either is killed
newer        the successor's side: asks, serves, registers
older        the predecessor's side, for one resource
coordinator  the predecessor's side, for all resources: hands over each pool in one moment
proxy        forwards calls that still reach the older gateway to the newer one
parked       connections of a kubelet that outlive the gateway that accepted them

docs/design/handover.md explains the design, with measurements.
"""
