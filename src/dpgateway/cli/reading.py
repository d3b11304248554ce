"""This node's configuration with its drivers loaded, for commands that ask the drivers directly."""

from __future__ import annotations

from dpgateway.cli.options import Settings
from dpgateway.config import Configuration, Document, read
from dpgateway.drivers import discovery
from dpgateway.drivers.loading import Loading


def read_whole(settings: Settings) -> tuple[Document, Configuration]:
    """Reads the configuration and loads the drivers of the node's resources. Raises InvalidConfiguration with all
    problems, including those of drivers' options.
    """
    document, wrong = read(settings.config)
    document = document.for_node(settings.node_name)
    loading = Loading(discovery.named(document.drivers), document)
    loading.wait()
    return document, loading.complete(discovery.installed(), {}, wrong)
