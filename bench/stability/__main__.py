"""Bytes per stable message, messages per member and round, time to stable: `python -m bench.stability [--sizes 8 64]`.

Eight members send 64 bytes each 10 ms on average; links take 1 to 5 ms; rounds and reports come every 50 ms at most.
Counted is what stability adds: its own PDUs, and the frames that carry nothing else.
"""

from __future__ import annotations

import argparse
import time
from statistics import mean
from typing import Any

import msgspec

from antiphon.protocol.machine import MILLISECOND
from antiphon.protocol.stability import STABILITIES
from antiphon.protocol.stability.collect import CollectPart
from antiphon.protocol.wire import Pdu
from antiphon.sim.cluster import Cluster
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload

SENDERS = 8
MESSAGES = {8: 50, 64: 30, 512: 3}  # per sender
SIZES = tuple(MESSAGES)

FORMS: dict[str, tuple[str, dict[str, Any]]] = {  # name -> ordering, options
    "plain": ("fifo", {}),
    "piggyback": ("fifo", {"piggyback": True}),
    "delta": ("fifo", {"delta": True}),
    "both": ("fifo", {"piggyback": True, "delta": True}),
    "abcast": ("abcast", {}),
    "abcast, positions": ("abcast", {"positions": True}),
    "abcast, positions riding": ("abcast", {"positions": True, "piggyback": True}),
}


class Cost(msgspec.Struct):
    """What was counted in a run."""

    bytes_sent: float  # per stable message; a multicast counts once
    bytes_carried: float  # per stable message; every copy counts
    datagrams: float  # per stable message; sent for stability alone, a multicast counts once
    processed_per_round: float | None  # stability PDUs sent and received, per member and round
    ms_to_stable: float  # from sending to the mark, mean over messages and members
    cpu_s: float


class Meter:
    """Counts what stability puts on the network, as a tap that loses nothing."""

    def __init__(self, cluster: Cluster, kinds: tuple[type[Pdu], ...]) -> None:
        self._codec = cluster.nodes[0].member._frames._codec  # type: ignore[attr-defined]
        self._kinds = kinds
        self._last: tuple[int, int] | None = None
        self._share = self._pdus = 0
        self.bytes_sent = self.bytes_carried = self.datagrams = self.pdus_sent = self.pdus_received = 0

    def tap(self, source: int, target: int, datagram: bytes, now: int) -> bool:
        if self._last != (source, id(datagram)):
            self._last = (source, id(datagram))
            self._keep = datagram  # so that its id stays its own
            pdus = self._codec.decode(datagram)[1]
            mine = [pdu for pdu in pdus if isinstance(pdu, self._kinds)]
            alone = len(mine) == len(pdus)
            self._share = len(datagram) if alone else sum(len(self._codec.encode_pdu(pdu)) for pdu in mine)
            self._pdus = len(mine)
            self.bytes_sent += self._share
            self.datagrams += alone
            self.pdus_sent += len(mine)
        self.bytes_carried += self._share
        self.pdus_received += self._pdus
        return False


def measure(size: int, stability: str, form: str, loss: float = 0.0, seed: int = 1) -> Cost | None:
    ordering, options = FORMS[form]
    part = STABILITIES[stability]
    known = part.Options.__struct_fields__
    if not set(options) <= set(known):
        return None
    pauses = {"interval_ns": 50 * MILLISECOND, "t_send_ns": 50 * MILLISECOND, "t_ack_ns": 50 * MILLISECOND}
    options = {**{key: value for key, value in pauses.items() if key in known}, **options}
    senders = list(range(min(size, SENDERS)))
    scenario = Scenario.of(
        "paper",
        members=size,
        messages=MESSAGES[size],
        ordering=ordering,
        stability=stability,
        stability_options=options,
        workload=Workload(senders=senders),
        network=NetworkOptions(loss=loss),
    )
    cluster = Cluster(scenario, seed)
    meter = Meter(cluster, part.PDUS)
    cluster.network.drop = meter.tap
    began = time.process_time()
    run = cluster.run()
    cpu_s = time.process_time() - began
    assert run.finished
    sent: dict[tuple[int, int], int] = {}
    for log in run.logs:
        for event in log.rows("bench"):
            if event.event == "send":
                sent[event.sender, event.seq] = event.time_ns
    waits = []
    for log in run.logs:
        marked = dict.fromkeys(senders, 0)
        for event in log.rows("bench"):
            if event.event == "stable":
                waits += [
                    event.time_ns - sent[event.sender, seq] for seq in range(marked[event.sender] + 1, event.seq + 1)
                ]
                marked[event.sender] = event.seq
    messages = len(sent)
    rounds = max(_rounds(node.member.stability) for node in cluster.nodes)  # type: ignore[attr-defined]
    return Cost(
        bytes_sent=meter.bytes_sent / messages,
        bytes_carried=meter.bytes_carried / messages,
        datagrams=meter.datagrams / messages,
        processed_per_round=(meter.pdus_sent + meter.pdus_received) / size / rounds if rounds else None,
        ms_to_stable=mean(waits) / MILLISECOND,
        cpu_s=cpu_s,
    )


def _rounds(part: Any) -> int:
    """Give the number of the last round that a part has heard of, if it has rounds."""
    return part.collect.number if isinstance(part, CollectPart) else getattr(part, "round", 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--protocols", nargs="+", default=list(STABILITIES), choices=list(STABILITIES))
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--loss", type=float, default=0.0)
    args = parser.parse_args()
    print("| n | protocol | form | bytes sent | bytes carried | datagrams | PDUs, member, round | ms stable | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size in args.sizes:
        for stability in args.protocols:
            for form in args.forms:
                cost = measure(size, stability, form, args.loss)
                if cost is not None:
                    load = "" if cost.processed_per_round is None else f"{cost.processed_per_round:.2f}"
                    print(
                        f"| {size} | {stability} | {form} | {cost.bytes_sent:,.0f} | {cost.bytes_carried:,.0f} "
                        f"| {cost.datagrams:.2f} | {load} | {cost.ms_to_stable:.0f} | {cost.cpu_s:.1f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
