"""The network between a run's computers: bytes, time and interfaces, in the verdict."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from det_jupyter.contract.messages import SystemSample
from det_jupyter.contract.messages.verdicts import NetworkUse
from det_jupyter.diagnosis import RankSite, RunVerdict
from tests.unit.diagnosis.samples import interval, setting

AGENTS = ("node-b", "node-c")
PARTS = {"forward": 20.0, "exchange": 30.0}  # ms of each batch


def judged(rates: Mapping[str, float], interfaces: Mapping[str, str]) -> RunVerdict:
    """Return the verdict on two ranks on two agents, sampled with these rates."""
    places = [RankSite(agent_id=agent) for agent in AGENTS]
    current = RunVerdict(setting(places=places, interfaces=interfaces))
    for index in range(4):
        for rank, agent in enumerate(AGENTS):
            times = interval(index, PARTS)
            current.add_times(rank, times)
            if rates:
                current.add_sample(agent, SystemSample(at=times.at, values={"host": dict(rates)}))
    current.judge(100.0, is_last=True)
    return current


def network_of(current: RunVerdict) -> NetworkUse | None:
    assert current.verdict is not None
    return current.verdict.network


def test_network_has_bytes_and_time_of_each_batch_and_the_interfaces() -> None:
    rates = {"net_gang_sent": 100e6, "net_gang_recv": 80e6, "net_throughput_sent": 9e9}
    current = judged(rates, {"node-b": "eth0", "node-c": "ib0"})
    found = network_of(current)
    assert found is not None
    assert [found.seconds, found.batch_s] == pytest.approx([0.030, 0.050])
    assert [(one.agent, one.interface) for one in found.computers] == [
        ("node-b", "eth0"), ("node-c", "ib0"),
    ]  # fmt: skip
    assert [one.sent_bytes for one in found.computers] == pytest.approx([5e6, 5e6])
    assert [one.received_bytes for one in found.computers] == pytest.approx([4e6, 4e6])
    assert found.sentence == (
        "exchanges between 2 computers take 30 ms of 50 ms a batch; node-b uses eth0 "
        "(5.0 MB sent, 4.0 MB received) and node-c uses ib0 (5.0 MB sent, 4.0 MB received)"
    )
    assert current.verdict is not None
    assert current.verdict.sentence.startswith(
        "Communication-bound: 60 % of the time goes to exchanges between ranks over the network "
        "(eth0, ib0: 5.0 MB a batch)"
    )


def test_network_without_samples_has_times_and_interfaces() -> None:
    current = judged({}, {"node-b": "eth0", "node-c": "eth0"})
    found = network_of(current)
    assert found is not None
    assert found.sentence.endswith("a batch; node-b uses eth0 and node-c uses eth0")
    assert current.verdict is not None
    assert "between ranks over the network (eth0)." in current.verdict.sentence


def test_a_run_on_one_computer_has_no_network() -> None:
    current = judged({"net_throughput_sent": 9e9}, {})
    assert network_of(current) is None
    assert current.verdict is not None
    assert "exchanges between ranks. Next" in current.verdict.sentence
