"""The container image, made without a daemon: its root file system, its list of parts, its archive."""
