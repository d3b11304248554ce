"""One gateway hands its resources over to the next, without a list or a call that a kubelet would miss.

protocol     what the two gateways say to each other, in which order, and what is left if one of them is killed
newer        the gateway that takes over: asks, serves, registers
older        the gateway that serves: hands over one resource
coordinator  hands over all resources of a pool in one moment
proxy        the calls that a kubelet still makes at the older gateway, answered by the newer one
parked       connections of a kubelet that outlive the gateway that accepted them

docs/design/handover.md tells the whole story, with what was measured.
"""
