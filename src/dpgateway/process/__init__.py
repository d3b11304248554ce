"""One process: its signals and its end, its log, its threads and memory, and what systemd learns of it."""
