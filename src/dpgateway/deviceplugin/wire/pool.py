"""The descriptor pool of the generated messages.

A pool of our own: in the process-wide one, a driver's Kubernetes stubs (package ``v1beta1``, file ``api.proto``) would
collide with ours, and the import that comes second would fail.
"""

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
