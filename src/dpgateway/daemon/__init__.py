"""The process: configuration, signals, shutdown, control socket, and systemd.

main           the life of the process, from start to end
config_reader  parses the configuration in a child process
config_child   that process
files          watches the configuration's files
last_good      keeps the configuration for a start with a wrong one
reloading      applies a new configuration at run time
control        answers ``dpgateway status``
shared_socket  a socket path that several gateways of a node share
systemd        readiness and status for systemd
signals        SIGTERM, SIGINT and SIGHUP
ending         lingers until a successor has taken over
"""
