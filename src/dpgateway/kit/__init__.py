"""Tools that know nothing of the gateway.

observable   values and events that other tasks watch
tasks        asyncio: retry with backoff, a race, no cancellation, a timeout, aligned wake-ups
threads      blocking calls on threads
limits       how many threads and descriptors this process may have
memory       gives freed memory back to the system
files        files that others read and write, and private directories
inotify      one inotify instance for the process, and watches that survive without it
locks        locks of files, and the wait for one
unix         unix sockets: addresses, listening, connecting, the peer's credentials
accepted     the connections that this process accepted, and what their peers have read
seqpacket    messages and descriptors between two processes
channel      a gRPC channel to a unix socket
log          lines as text or JSON
complaint    logs once what is wrong, and repeats now and then what still is
timestamp    times in RFC 3339
call_stats   numbers of calls, with their outcomes and durations
"""
