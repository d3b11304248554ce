"""What goes over the sockets: grpclib made to speak as grpc-go, the messages, and the code generated for the APIs."""
