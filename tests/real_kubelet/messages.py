"""The messages of every dialect of the device-plugin API, declared by hand as classes of their own pool.

They are written down a second time, beside protos/, so that a mistake there isn't made here too. A field is
(name, number, kind): s string, b bool, i int64, else a message's name; * before it for a repeated one.
"""

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

Fields = list[tuple[str, int, str]]
SCALARS = {"s": Field.TYPE_STRING, "b": Field.TYPE_BOOL, "i": Field.TYPE_INT64}

COMMON: dict[str, Fields] = {
    "Empty": [],
    "Mount": [("container_path", 1, "s"), ("host_path", 2, "s"), ("read_only", 3, "b")],
    "DeviceSpec": [("container_path", 1, "s"), ("host_path", 2, "s"), ("permissions", 3, "s")],
    "NUMANode": [("ID", 1, "i")],
    "TopologyInfo": [("nodes", 1, "*NUMANode")],
    "Device": [("ID", 1, "s"), ("health", 2, "s"), ("topology", 3, "TopologyInfo")],
    "ListAndWatchResponse": [("devices", 1, "*Device")],
    "Pair": [("key", 1, "s"), ("value", 2, "s")],  # what an entry of a map is on the wire
    "DevicePluginOptions": [("pre_start_required", 1, "b"), ("get_preferred_allocation_available", 2, "b")],
    "RegisterRequest": [
        ("version", 1, "s"),
        ("endpoint", 2, "s"),
        ("resource_name", 3, "s"),
        ("options", 4, "DevicePluginOptions"),
    ],
    "PluginInfo": [("type", 1, "s"), ("name", 2, "s"), ("endpoint", 3, "s"), ("supported_versions", 4, "*s")],
    "RegistrationStatus": [("plugin_registered", 1, "b"), ("error", 2, "s")],
}
IDS: Fields = [("devices_ids", 1, "*s")]
GRANT: Fields = [("envs", 1, "*Pair"), ("mounts", 2, "*Mount"), ("devices", 3, "*DeviceSpec")]
DIALECTS: dict[str, dict[str, Fields]] = {
    "0.1": {
        **COMMON,
        "AllocateRequest": IDS,
        "Spec": [("ID", 1, "s"), ("envs", 2, "*Pair"), ("mounts", 3, "*Mount"), ("devices", 4, "*DeviceSpec")],
        "AllocateResponse": [("spec", 1, "*Spec")],
    },
    "v1alpha2": {**COMMON, "AllocateRequest": IDS, "AllocateResponse": GRANT},
    "v1beta1": {
        **COMMON,
        "ContainerAllocateRequest": IDS,
        "AllocateRequest": [("container_requests", 1, "*ContainerAllocateRequest")],
        "CDIDevice": [("name", 1, "s")],
        "ContainerAllocateResponse": [*GRANT, ("annotations", 4, "*Pair"), ("cdi_devices", 5, "*CDIDevice")],
        "AllocateResponse": [("container_responses", 1, "*ContainerAllocateResponse")],
        "PreStartContainerRequest": IDS,
        "PreStartContainerResponse": [],
        "ContainerPreferredAllocationRequest": [("available", 1, "*s"), ("must_include", 2, "*s"), ("size", 3, "i")],
        "PreferredAllocationRequest": [("container_requests", 1, "*ContainerPreferredAllocationRequest")],
        "ContainerPreferredAllocationResponse": IDS,
        "PreferredAllocationResponse": [("container_responses", 1, "*ContainerPreferredAllocationResponse")],
    },
}


def messages(dialect: str) -> dict[str, Any]:
    """The classes of one dialect, by name."""
    file = FileDescriptorProto(name="dialect.proto", package="dialect", syntax="proto3")
    for name, fields in DIALECTS[dialect].items():
        message = file.message_type.add(name=name)
        message.field.extend(_field(*field) for field in fields)
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"dialect.{name}")) for name in DIALECTS[dialect]}


def _field(name: str, number: int, kind: str) -> Field:
    label = Field.LABEL_REPEATED if kind.startswith("*") else Field.LABEL_OPTIONAL
    kind = kind.removeprefix("*")
    if kind in SCALARS:
        return Field(name=name, number=number, label=label, type=SCALARS[kind])
    return Field(name=name, number=number, label=label, type=Field.TYPE_MESSAGE, type_name=f".dialect.{kind}")
