"""The process: its signals and its end, its configuration's files, its control socket, and what systemd learns of it.

main           the process from its start to its end
reloading      another configuration, while it runs
config_reader  reads the configuration in another process
files          watches the configuration's files
control        answers ``dpgateway status``
shared_socket  a path that several gateways of a node bind one after another
ending         waits for a successor before it ends
systemd        readiness and status for systemd
signals        SIGTERM, SIGINT and SIGHUP
"""
