"""The pages that say how the gateway is. They change nothing.

metrics  the gateway in numbers, as Prometheus reads them
rows     which numbers these are
"""
