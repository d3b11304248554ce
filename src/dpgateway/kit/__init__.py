"""General tools, independent of the gateway.

observable   values and events that other tasks watch
tasks        asyncio: retry with backoff, a race, no cancellation, a timeout, aligned wake-ups, calls by key
threads      blocking calls on threads
limits       the process's limits of threads, descriptors and address space
memory       tunes the heap and the garbage collector
files        files shared with other processes, and private directories
inotify      one inotify instance for the process, and watches that survive without it
programs     the wait for the disks from which a program is loaded
locks        locks of files, and the wait for one
unix         unix sockets: addresses, listening, connecting, the peer's credentials
accepted     the process's accepted connections, and what their peers have read
seqpacket    messages and descriptors between two processes
channel      a gRPC channel to a unix socket
log          lines as text or JSON
complaint    logs a problem once, and repeats one that persists
timestamp    times in RFC 3339
clock        the time as a parameter, for tests
call_stats   numbers of calls, with their outcomes and durations
"""
