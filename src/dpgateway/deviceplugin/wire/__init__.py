"""The kubelet's messages, generated from protos/ by tools/regenerate.py; only ``api`` imports them."""
