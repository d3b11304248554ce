"""This node's configuration, for commands that ask its drivers themselves."""

from __future__ import annotations

from dpgateway.cli.options import Settings
from dpgateway.config import Configuration, Document, read
from dpgateway.drivers import discovery
from dpgateway.drivers.loading import Loading


def read_whole(settings: Settings) -> tuple[Document, Configuration]:
    """Loads the drivers that the node's resources want. Raises InvalidConfiguration with all that is wrong, also with
    the drivers' options.
    """
    document, wrong = read(settings.config)
    document = document.for_node(settings.node_name)
    loading = Loading(discovery.named(document.drivers), document)
    loading.wait()
    return document, loading.complete(discovery.installed(), {}, wrong)
