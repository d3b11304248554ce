"""A node on which one resource is listed."""

from contextlib import ExitStack

import pytest

from tests.resource.listing import Node


@pytest.fixture
def make():
    with ExitStack() as stack:

        def new(**named):
            node = Node(**named)
            stack.callback(node.close)
            return node

        yield new


@pytest.fixture
def node(make):
    return make()
