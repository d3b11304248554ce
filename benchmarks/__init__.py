"""The gateway's costs beside the least code with the same effect, in one run: ``python -m benchmarks --help``.

Everything runs as processes: ``dpgateway run`` as on a node, and *bare* (``bare.py``), grpc.aio handlers with the
answer's bytes at hand. Rounds of both alternate, because machines are noisy: ratios are more reliable than times.
"""
