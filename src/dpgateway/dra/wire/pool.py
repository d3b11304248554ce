"""The descriptor pool of the generated messages, which would collide with drivers' stubs in the process-wide pool."""

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
