"""The wire: grpclib disguised as grpc-go, the messages, and the generated code of the APIs.

dialects            Register and Allocate in each device-plugin API
client              a client that looks like grpc-go
plugin_calls        the calls to a plugin of plugins_registry: its registration, DRA, health
server              a server that looks like grpc-go
device_list         a hand-written parser of ListAndWatchResponse
sockets             unix sockets with paths of any length
v1beta1             generated: the device-plugin API
deviceplugin        generated: the legacy device-plugin APIs
v1                  generated: PodResources, and the health of DRA's devices
k8s                 generated: DRA
pluginregistration  generated: the registration of plugins
runtime             generated: the Container Runtime Interface
"""
