"""This node's configuration with its drivers, for commands that ask the drivers themselves."""

from __future__ import annotations

from dpgateway.cli.options import Settings
from dpgateway.config import Configuration, Document, read
from dpgateway.drivers import discovery
from dpgateway.drivers.loading import Loading


def read_whole(settings: Settings) -> tuple[Document, Configuration]:
    """Loads the drivers of the node's resources. Raises InvalidConfiguration with all problems, those of the drivers'
    options included.
    """
    document, wrong = read(settings.config)
    document = document.for_node(settings.node_name)
    loading = Loading(discovery.named(document.drivers), document)
    loading.wait()
    return document, loading.complete(discovery.installed(), {}, wrong)
