"""The descriptor pool of the generated messages.

It is separate, because in the process-wide pool a driver's Kubernetes stubs (package ``v1beta1``, file ``api.proto``)
would collide with ours, and the second import would fail.
"""

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
