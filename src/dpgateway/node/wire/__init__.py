"""The node's own messages, generated from protos/ by tools/regenerate.py; only ``podresources`` imports them."""
