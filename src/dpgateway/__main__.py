"""``python -m dpgateway``: the command line."""

from dpgateway.cli import main

main()
