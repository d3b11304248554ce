"""Tools that know nothing of the gateway.

observable    values and events that others watch
tasks         retry, backoff, deadlines and shared wake-ups for asyncio
threads       calls that block, on threads
limits        how many threads and descriptors this process may have
inotify       one inotify instance for the process
watch         its events for a task that looks from time to time anyway
locks         locks of files, and the wait for one
files         files that others read and write, and private directories
unix          unix sockets: paths, connections and what their peers have read
channel       a gRPC channel to a unix socket
accepted      which process is at the other end of an accepted connection
seqpacket     one process talks to another, and passes descriptors
log           lines as text or JSON
complaint     says once what is wrong, until it changes or is over
reminder      repeats what is still wrong
call_stats    how many calls there were, and how long they took
timestamp     times in RFC 3339
memory        gives freed memory back to the system
"""
