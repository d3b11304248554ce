"""``python -m dpgateway``: the command line."""

from dpgateway_start import main

main()
