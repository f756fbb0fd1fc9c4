"""A real trainer leaves in time, whichever cloud tells it to, and stays when it may."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from asking import SETTINGS

from chaosspot import misbehaviour as m
from chaosspot.services.metadata import Instance, MetadataService

if TYPE_CHECKING:
    from conftest import Cluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

LEAD_S = 20.0
TAKES = {"aws": "terminate", "gcp": "preempt", "azure": "preempt"}
SPARES = {"aws": "rebalance", "gcp": "migrate", "azure": "freeze"}
SAYS = {"aws": "advice", "gcp": "maintenance", "azure": "maintenance"}


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_advice_is_reported_and_a_notice_is_kept(
    cloud: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with MetadataService(provider=cloud, settings=SETTINGS[cloud]) as service:
            await service.add(Instance(node="node-0", zone="a", family="f", pool="spot"))
            environ = service.environment("node-0")
            for name, value in environ.items():
                monkeypatch.setenv(name, value)
            endpoint = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "")
            cluster.start("a", steps=100_000, alone=True, imds=endpoint)
            await asyncio.to_thread(cluster.wait, "commit")
            # Every third answer is an error, and the trainer is none the worse for it.
            service.misbehave(m.Status(status=503, rate=0.3, seed=1))
            service.publish("node-0", lead_s=LEAD_S, action=SPARES[cloud])
            said = await asyncio.to_thread(cluster.wait, SAYS[cloud])
            assert (said["provider"], said["action"]) == (cloud, SPARES[cloud])
            assert cluster.events("drain") == []
            deadline_wall_s = service.publish("node-0", lead_s=LEAD_S, action=TAKES[cloud])
            code = await asyncio.to_thread(cluster.ended, "a")
            assert code == 0, cluster.logs()
            assert time.time() < deadline_wall_s - LEAD_S / 2

    asyncio.run(main())
    (notice,) = cluster.events("notice")
    assert (notice["provider"], notice["action"]) == (cloud, TAKES[cloud])
    drained = cluster.wait("drain")["step"]
    durable = [e["step"] for e in cluster.events("snapshot") if e["stage"] == "durable"]
    assert drained in durable
    assert cluster.events("exit")[-1]["reason"] == "drained"
