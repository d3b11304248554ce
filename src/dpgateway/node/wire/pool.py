"""The descriptor pool of the generated messages. In the process-wide pool others' stubs would collide with them."""

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
