"""What a person sees of a cluster with a node that speaks DRA."""

from tests.simulator.cluster.conftest import Site
from tests.simulator.drivers import X


async def test_a_pod_gets_its_device_and_gives_it_back(site: Site) -> None:
    _, driver = await site.start()
    cluster = site.cluster
    await cluster.run("p1", {"c": {X: 1}})
    assert cluster.allocated("p1") == ["d0"]
    assert cluster.given("p1")["c"]["envs"] == {"DEVICE_0": "d0"}
    assert cluster.nodes_of("p1") == {"/dev/d0"}
    await cluster.run("p2", {"c": {X: 1}})
    cluster.create("p3", {"c": {X: 1}})
    await cluster.end("p1")
    await cluster.until("p3", "Running")
    assert (cluster.allocated("p2"), cluster.allocated("p3")) == (["d1"], ["d0"])
    assert [name for name, _ in driver.calls] == ["GetInfo", "prepare", "prepare", "unprepare", "prepare"]
