"""The process: its configuration, its signals and its end, its control socket, and what systemd learns of it.

main           the story of the process, from start to end
config_reader  parses the configuration in a child process
files          watches the configuration's files
reloading      takes a new configuration over while it runs
control        answers ``dpgateway status``
shared_socket  a socket path that several gateways of a node share
systemd        readiness and status for systemd
signals        SIGTERM, SIGINT and SIGHUP
ending         serves on until a successor has taken over
"""
