"""The simulated network: every ordered pair of members is a link that delays, loses, doubles, reorders and may be cut.

A datagram is lost on its link, waits for the link's bandwidth, takes a random latency, and then needs a place in the
receiver's buffer: a receiver that takes `service` for each datagram and has `receive_buffer` places overruns.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import inf

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.machine import SECOND, Duration, Instant
from antiphon.sim.distributions import Sampler, duration, sampler
from antiphon.sim.kernel import Kernel


class LinkRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from", "target": "to"}):
    """What differs on the links from some members to others."""

    source: list[int]
    target: list[int]
    latency: str | None = None
    loss: float | None = None


class NetworkOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the network behaves; the same words in a scenario file and as flags."""

    latency: str = "uniform 1ms 5ms"
    matrix: list[list[float]] | None = None  # milliseconds from row to column, instead of `latency`
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0  # share of datagrams that are held back
    reorder_delay: str = "uniform 1ms 20ms"
    fifo: bool = False  # a link never lets one datagram overtake another
    bandwidth: int = 0  # bits per second of each link; 0: unlimited
    receive_buffer: int = 0  # datagrams; 0: unlimited
    service: str = "0"  # time to take in one datagram
    links: list[LinkRule] = []

    def check(self, size: int) -> None:
        """Raise a `UsageError` unless a group of `size` members can talk over this."""
        for key, share in (("loss", self.loss), ("duplicate", self.duplicate), ("reorder", self.reorder)):
            if not 0 <= share <= 1:
                raise UsageError(f"network.{key}: a probability from 0 to 1, not {share}")
        losses = [("network.loss", self.loss), *(("network.links.loss", rule.loss or 0.0) for rule in self.links)]
        for key, share in losses:
            if share == 1:
                raise UsageError(
                    f"{key}: {share} loses everything, so nothing could ever be delivered; give less than 1"
                )
            if not 0 <= share < 1:
                raise UsageError(f"{key}: a probability from 0 to 1, not {share}")
        for key, text in (("latency", self.latency), ("reorder_delay", self.reorder_delay)):
            sampler(text, f"network.{key}")
        for rule in self.links:
            sampler(rule.latency or self.latency, "network.links.latency")
        if self.fifo and self.reorder > 0:
            raise UsageError("network.reorder: a FIFO link does not reorder; drop `fifo` or set reorder to 0")
        for key, limit in (("bandwidth", self.bandwidth), ("receive_buffer", self.receive_buffer)):
            if limit < 0:
                raise UsageError(f"network.{key}: 0 (unlimited) or more, not {limit}")
        if self.receive_buffer and duration(self.service, "network.service") == 0:
            raise UsageError(
                "network.service: a receive_buffer overruns only if a datagram takes time; set service too"
            )
        for rule in self.links:
            for member in (*rule.source, *rule.target):
                if not 0 <= member < size:
                    raise UsageError(f"network.links: there is no member {member}; members are 0 to {size - 1}")
        rows = [[0.0] * size] * size if self.matrix is None else self.matrix
        if len(rows) != size or any(len(row) != size or not all(0 <= ms < inf for ms in row) for row in rows):
            raise UsageError(f"network.matrix: needs {size} rows of {size} milliseconds, none negative")


class _Link:
    """What one direction between two members has of its own."""

    __slots__ = ("busy_until", "last_arrival", "latency", "loss")

    def __init__(self, latency: Sampler, loss: float) -> None:
        self.latency, self.loss = latency, loss
        self.busy_until: Instant = 0
        self.last_arrival: Instant = 0


class Network:
    """Carries datagrams between members, in simulated time."""

    def __init__(
        self,
        kernel: Kernel,
        size: int,
        options: NetworkOptions,
        rng: random.Random,
        arrive: Callable[[tuple[int, bytes]], None],
    ) -> None:
        options.check(size)
        self._kernel, self._size, self._options, self._rng, self._arrive = kernel, size, options, rng, arrive
        self._links = _links(size, options)
        self._reorder_delay = sampler(options.reorder_delay, "network.reorder_delay")
        self._service: Duration = duration(options.service, "network.service")
        self._queued = [0] * size
        self._busy_until: list[Instant] = [0] * size
        self._cut: dict[tuple[int, int], int] = {}  # link -> how many faults cut it now
        self.drop: Callable[[int, int, bytes, Instant], bool] | None = None  # a test's own loss
        self._everyone = tuple(range(size))
        self._datagrams = self._bytes = 0
        self.bytes_lost = 0  # of datagrams that were lost, overrun or cut off
        self._mishaps: Counter[str] = Counter()
        self._lost_on: Counter[tuple[int, int]] = Counter()  # per link, what was lost or cut off
        # Nothing can happen to a datagram but its latency: the common case, worth a short way
        self._calm = not (options.duplicate or options.reorder or options.bandwidth or options.fifo or self._service)
        self._calm &= options.loss == 0 and not any(rule.loss for rule in options.links)

    @property
    def counts(self) -> dict[str, int]:
        """What was sent, and what became of what did not arrive once and in time."""
        return {"datagrams": self._datagrams, "bytes": self._bytes, **self._mishaps}

    @property
    def lost_on_one_link(self) -> int:
        """How many datagrams the link lost that had the worst luck, those that were cut off included."""
        return max(self._lost_on.values(), default=0)

    def cut(self, links: Iterable[tuple[int, int]], by: int) -> None:
        """Cut links (by = 1) or mend them (by = -1); a link that two faults cut needs both mended."""
        for link in links:
            self._cut[link] = self._cut.get(link, 0) + by

    def cut_links(self) -> list[tuple[int, int]]:
        """List the links that carry nothing now."""
        return sorted(link for link, faults in self._cut.items() if faults > 0)

    def behind_ns(self) -> Duration:
        """Return how much later than now what is sent now leaves the slowest link."""
        latest = max((link.busy_until for links in self._links for link in links), default=0)
        return max(0, latest - self._kernel.now)

    def late_ns(self) -> Duration:
        """Return how much later than now the last datagram arrives that is on its way."""
        latest = self._kernel.latest(self._arrive, self._queue)
        return 0 if latest is None else latest - self._kernel.now

    def send(self, source: int, targets: Sequence[int] | None, datagram: bytes) -> None:
        """Send a datagram to the given members, or to all others."""
        rng, links = self._rng, self._links[source]
        if targets is None:
            targets = self._everyone[:source] + self._everyone[source + 1 :]
        self._datagrams += len(targets)
        self._bytes += len(targets) * len(datagram)
        if self._calm and not self._cut and self.drop is None:
            after, arrive = self._kernel.after, self._arrive
            for target in targets:
                after(links[target].latency(rng), arrive, (target, datagram))
            return
        now, options = self._kernel.now, self._options
        for target in targets:
            link = links[target]
            if self._cut and self._cut.get((source, target)):
                self._mishaps["cut"] += 1
                self._lose(source, target, datagram)
            elif (link.loss and rng.random() < link.loss) or (
                self.drop is not None and self.drop(source, target, datagram, now)
            ):
                self._mishaps["lost"] += 1
                self._lose(source, target, datagram)
            else:
                self._travel(link, target, datagram)
                if options.duplicate and rng.random() < options.duplicate:
                    self._mishaps["duplicated"] += 1
                    self._travel(link, target, datagram)

    def _lose(self, source: int, target: int, datagram: bytes) -> None:
        self._lost_on[source, target] += 1
        self.bytes_lost += len(datagram)

    def _travel(self, link: _Link, target: int, datagram: bytes) -> None:
        options, rng = self._options, self._rng
        departure = self._kernel.now
        if options.bandwidth:
            departure = max(departure, link.busy_until) + len(datagram) * 8 * SECOND // options.bandwidth
            link.busy_until = departure
        arrival = departure + link.latency(rng)
        if options.reorder and rng.random() < options.reorder:
            arrival += self._reorder_delay(rng)
        if options.fifo:
            arrival = link.last_arrival = max(arrival, link.last_arrival)
        self._kernel.at(arrival, self._queue if self._service else self._arrive, (target, datagram))

    def _queue(self, arrival: tuple[int, bytes]) -> None:
        target = arrival[0]
        if self._options.receive_buffer and self._queued[target] >= self._options.receive_buffer:
            self._mishaps["overrun"] += 1
            self.bytes_lost += len(arrival[1])
            return
        self._queued[target] += 1
        self._busy_until[target] = max(self._kernel.now, self._busy_until[target]) + self._service
        self._kernel.at(self._busy_until[target], self._serve, arrival)

    def _serve(self, arrival: tuple[int, bytes]) -> None:
        self._queued[arrival[0]] -= 1
        self._arrive(arrival)


def _links(size: int, options: NetworkOptions) -> list[list[_Link]]:
    usual = sampler(options.latency, "network.latency")
    if options.bandwidth or options.fifo:
        links = [[_Link(usual, options.loss) for _ in range(size)] for _ in range(size)]
    else:  # links that remember nothing can be one and the same
        links = [[_Link(usual, options.loss)] * size for _ in range(size)]
    if options.matrix is not None:
        for source, row in enumerate(options.matrix):
            for target, ms in enumerate(row):
                latency = sampler(f"fixed {round(ms * 1_000_000)}ns", "network.matrix")
                links[source][target] = _Link(latency, options.loss)
    for rule in options.links:
        for source in rule.source:
            for target in rule.target:
                link = links[source][target]
                latency = link.latency if rule.latency is None else sampler(rule.latency, "network.links.latency")
                links[source][target] = _Link(latency, link.loss if rule.loss is None else rule.loss)
    return links
