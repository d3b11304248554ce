"""What goes over the sockets: grpclib made to speak as grpc-go, the messages, and the code generated for the APIs.

dialects      the APIs that a kubelet speaks: what Register and Allocate look like in each
client        a client that looks like grpc-go
server        a server that looks like grpc-go
device_list   ListAndWatchResponse read by hand
sockets       unix sockets with paths of any length
v1beta1       generated: the device-plugin API
deviceplugin  generated: the legacy device-plugin APIs
v1            generated: PodResources
runtime       generated: the Container Runtime Interface
"""
