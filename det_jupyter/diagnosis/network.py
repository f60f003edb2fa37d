"""Measures the network traffic between the computers of a run."""

from __future__ import annotations

from det_jupyter.contract.messages.verdicts import ComputerNetwork, NetworkUse
from det_jupyter.contract.values.text import size
from det_jupyter.diagnosis.run_facts import PERIODIC, RunMeasurements, Setting

_EXCHANGES = ("exchange_transfer", "average_training_metrics", "reduce_metrics")


def find_network(facts: RunMeasurements, setting: Setting) -> NetworkUse | None:
    """Return what the computers of a run exchange for each batch; None if there is only one."""
    if not setting.interfaces:
        return None
    held = sum(facts.periodic[kind].share for kind in PERIODIC if kind in facts.periodic)
    # Time of a batch, with its part of checkpoints and validations.
    elapsed_s = facts.batch_s / max(1 - held, 0.01)

    def per_batch(agent: str, name: str) -> float | None:
        rate = facts.host(agent, name)
        return None if rate is None else rate * elapsed_s

    return NetworkUse(
        seconds=sum(facts.part_s(name) for name in _EXCHANGES),
        batch_s=facts.batch_s,
        computers=[
            ComputerNetwork(
                agent=agent,
                interface=interface,
                sent_bytes=per_batch(agent, "net_gang_sent"),
                received_bytes=per_batch(agent, "net_gang_recv"),
            )
            for agent, interface in setting.interfaces.items()
        ],
    )


def over(network: NetworkUse | None) -> str:
    """Return the end of a clause on exchanges: over which interfaces, and how much.

    >>> over(None)
    ''
    """
    if network is None:
        return ""
    names = ", ".join(dict.fromkeys(one.interface for one in network.computers))
    sent = [one.sent_bytes for one in network.computers if one.sent_bytes is not None]
    return f" over the network ({names}{f': {size(max(sent))} a batch' if sent else ''})"
