"""What the gateway costs, beside the least code that could do the same, in one run: ``python -m benchmarks --help``.

Everything runs as processes: ``dpgateway run`` as on a node, and *bare* (``bare.py``), grpc.aio handlers that know the
answer's bytes beforehand. Rounds of both alternate because machines are noisy: ratios say more than times.
"""
