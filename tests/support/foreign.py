"""A client that isn't the kubelet, in a process of its own, and says that it is written in Go: run as a program."""

import sys

import grpc

OPTIONS = [("grpc.primary_user_agent", "grpc-go/1.72.1"), ("grpc.use_local_subchannel_pool", 1)]


def main() -> None:
    """Opens ListAndWatch at each path that it reads, says so after the first list, and takes lists until it ends."""
    held = []
    for path in map(str.strip, sys.stdin):
        channel = grpc.insecure_channel(f"unix:{path}", options=OPTIONS)
        stream = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"")
        next(stream)
        held.append((channel, stream))
        sys.stdout.write("listed\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
