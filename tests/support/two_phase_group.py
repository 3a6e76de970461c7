"""Two-phase parts connected by queues, with no network: a test says which host takes what, when.

One channel per ordered pair carries stream and unreliable PDUs alike, as bytes. Everything a host does is checked on
the way against what the protocol owes: no bound above the final timestamp, nothing deliverable left lying.
"""

from __future__ import annotations

import copy
import pickle
import random
from typing import NamedTuple

from antiphon.protocol.machine import Deliver, Instant, Submit
from antiphon.protocol.ordering.two_phase import Decision, Stamp, TimedData, TwoPhase, takeover
from antiphon.protocol.parts import Decided, Out, PartContext, Step
from antiphon.protocol.wire import Codec, Header, Pdu, Streamed

Message = tuple[int, int]
HEADER = Header(0, 0, 0, 0, 0)


class Item(NamedTuple):
    """A PDU on its way."""

    reliable: bool
    encoded: bytes


class Group:
    """A group of `size` hosts, ranks from 0, all of one protocol."""

    def __init__(self, protocol: type[TwoPhase], size: int, **options: object) -> None:
        self.parts = [
            protocol(PartContext(rank, size, random.Random(rank)), protocol.Options(**options)) for rank in range(size)
        ]
        self.codec = Codec(protocol.PDUS)
        self.channels: dict[tuple[int, int], list[Item]] = {(a, b): [] for a in range(size) for b in range(size)}
        self.sent = [0] * size
        self.delivered: list[list[Message]] = [[] for _ in range(size)]
        self.final: dict[Message, Stamp] = {}
        self.decisions: dict[Message, Decision] = {}
        self.highest_bound: dict[Message, Stamp] = {}  # that any host believed in
        self.streams: list[list[Streamed]] = [[] for _ in range(size)]
        self.taken: dict[tuple[int, int], int] = dict.fromkeys(self.channels, 0)  # how far each stream is held
        self.lagging: list[str] = []
        self.now: Instant = 0

    @property
    def size(self) -> int:
        return len(self.parts)

    def send(self, host: int) -> Message:
        """Let a host multicast its next message."""
        self.sent[host] += 1
        self.carry(host, self.parts[host].submit(Submit(b"%d" % self.sent[host]), self.sent[host], self.now))
        return host, self.sent[host]

    def take(self, source: int, target: int, place: int = 0) -> None:
        """Let a host take an item from a channel, the first one if not said otherwise."""
        self.hand_over(source, target, self.channels[source, target].pop(place))

    def hand_over(self, source: int, target: int, item: Item) -> None:
        pdu = self.codec.decode(Codec.frame(HEADER, [item.encoded]))[1][0]
        if item.reliable:
            assert isinstance(pdu, Streamed)
            self.taken[source, target] += 1
            self.carry(target, self.parts[target].accept(source, pdu, self.now))
        else:
            self.carry(target, self.parts[target].receive(source, pdu, self.now))

    def wake(self, host: int) -> None:
        self.carry(host, self.parts[host].wake(self.now))

    def carry(self, host: int, step: Step) -> None:
        for down in step.down:
            encoded = self.codec.encode_pdu(down.pdu)
            if isinstance(down, Out):
                for target in down.to or ():
                    self.channels[host, target].append(Item(False, encoded))
                continue
            if isinstance(down.pdu, Decision):
                self.final[host, down.pdu.seq] = (down.pdu.time, down.pdu.host)
                self.decisions[host, down.pdu.seq] = down.pdu
            self.streams[host].append(down.pdu)
            self.taken[host, host] += 1
            for target in range(self.size):
                if target != host:
                    self.channels[host, target].append(Item(True, encoded))
            self.carry(host, self.parts[host].accept(host, down.pdu, self.now))
        for up in step.up:
            if isinstance(up, Deliver):
                assert up.payload == b"%d" % up.seq
                self.delivered[host].append((up.sender, up.seq))
            else:
                assert isinstance(up, Decided)
        self._note_bounds(host)

    def clone(self) -> Group:
        """Copy everything but the codec, which has no state."""
        return copy.deepcopy(self, {id(self.codec): self.codec})

    def fingerprint(self) -> object:
        """Give all that the future depends on, bounds that were believed included."""
        parts = pickle.dumps([vars(part) for part in self.parts])
        channels = tuple(map(tuple, self.channels.values()))
        delivered = tuple(map(tuple, self.delivered))
        return parts, channels, delivered, tuple(sorted(self.highest_bound.items())), tuple(sorted(self.final.items()))

    def kind(self, source: int, target: int, place: int = 0) -> type[Pdu]:
        """Say what lies in a channel."""
        return type(self.codec.decode(Codec.frame(HEADER, [self.channels[source, target][place].encoded]))[1][0])

    def finish(self) -> None:
        """Let everything arrive, in turn, with no further loss."""
        for _ in range(10_000):
            for (a, b), channel in self.channels.items():
                while channel:
                    self.take(a, b)
            if not any(part.held for part in self.parts) and not any(self.channels.values()):
                return
            self.now += 1_000_000_000
            for host in range(self.size):
                self.wake(host)
        raise AssertionError("stuck")

    def _note_bounds(self, host: int) -> None:
        part = self.parts[host]
        undecided = {(m.sender, m.seq): part.provisional(m) for waiting in part.undecided for m in waiting.values()}
        for message, stamp in undecided.items():
            self.highest_bound[message] = max(self.highest_bound.get(message, stamp), stamp)
        decided = part.pending().final
        if decided and min(decided.values()) <= min(undecided.values(), default=(2**63, 0)):
            self.lagging.append(f"{min(decided)} could be delivered at {host}")

    def unfaithful(self) -> list[str]:
        """List what is wrong at the end: the obvious oracle sorts all messages by their final timestamps."""
        wrong = self.lagging[:1]
        everything = [(host, seq + 1) for host, count in enumerate(self.sent) for seq in range(count)]
        if sorted(self.final) != everything:
            return ["undecided"]
        order = sorted(everything, key=lambda message: self.final[message])
        wrong += [f"order at {host}" for host, delivered in enumerate(self.delivered) if delivered != order]
        wrong += [f"bound of {m}" for m in everything if self.highest_bound.get(m, (0, 0)) > self.final[m]]
        wrong += [f"held at {part.rank}" for part in self.parts if part.held or part.deadline is not None]
        wrong += [
            f"kept at {part.rank}" for part in self.parts if any(part.undecided) or part.queue or part.polls.polls
        ]
        return wrong


def adversary(
    group: Group, seed: int, *, messages: int = 8, fifo: bool = True, loss: float = 0.3, stop: float = 0
) -> Group:
    """Run a group under a seeded adversary that picks who acts, loses, doubles and reorders what channels allow.

    With `stop`, each action is the last one with that probability.
    """
    rng = random.Random(seed)
    pairs = [pair for pair in group.channels if pair[0] != pair[1]] or [(0, 0)]
    slow = rng.choice(pairs)  # one channel that seldom moves, for long overlaps
    left = [rng.randint(0, messages) for _ in range(group.size)]
    while any(left) or any(group.channels.values()):
        if rng.random() < stop:
            return group
        host = rng.randrange(group.size)
        if left[host] and rng.random() < 0.1:
            left[host] -= 1
            group.send(host)
        if rng.random() < 0.02:
            group.now += rng.choice((1_000_000, 60_000_000, 2_000_000_000))
            group.wake(rng.randrange(group.size))
        pair = rng.choice(pairs)
        channel = group.channels[pair]
        if not channel or (pair == slow and rng.random() < 0.9):
            continue
        place = rng.randrange(len(channel))
        if channel[place].reliable:
            if fifo:
                place = next(index for index, item in enumerate(channel) if item.reliable)
            group.take(*pair, place)
        elif rng.random() >= loss:
            item = channel[place] if rng.random() < loss / 2 else channel.pop(place)
            group.hand_over(*pair, item)
        else:
            channel.pop(place)
    group.finish()
    return group


def explore(group: Group, sends: list[int], *, fifo: bool, states_max: int) -> tuple[int, set[str]]:
    """Try every interleaving of sends (hosts, in this order) and arrivals; give the states seen and all that is wrong.

    Nothing is lost: a lost proposal and its repetition are one that is late. States that were reached before are not
    gone through again.
    """
    seen: set[object] = set()
    wrong: set[str] = set()
    todo = [(group, 0)]
    while todo:
        current, sent = todo.pop()
        successors = [(pair, place) for pair, channel in current.channels.items() for place in range(len(channel))]
        if fifo:  # unreliable items may overtake, stream items not each other
            successors = [
                (pair, place)
                for pair, place in successors
                if not current.channels[pair][place].reliable
                or not any(item.reliable for item in current.channels[pair][:place])
            ]
        if not successors and sent == len(sends):
            wrong.update(current.unfaithful())
        for choice in [*successors, *([None] if sent < len(sends) else [])]:
            following = current.clone()
            if choice is None:
                following.send(sends[sent])
            else:
                following.take(*choice[0], choice[1])
            state = (sent + (choice is None), following.fingerprint())
            if state not in seen:
                assert len(seen) < states_max, f"more than {states_max} states"
                seen.add(state)
                todo.append((following, state[0]))
    return len(seen), wrong


def survive(group: Group, survivors: list[int]) -> list[list[Message]]:
    """End a view: complete the streams among the survivors, take over what is undecided, deliver the rest in order."""
    states = {rank: group.parts[rank].pending() for rank in survivors}
    sent: set[Message] = set()
    final: dict[Message, tuple[Stamp, bool]] = {}
    for source, stream in enumerate(group.streams):
        for pdu in stream[: max(group.taken[source, rank] for rank in survivors)]:
            if isinstance(pdu, Decision):
                final[source, pdu.seq] = ((pdu.time, pdu.host), False)
            elif isinstance(pdu, TimedData):
                sent.add((source, pdu.seq))
    for message in sent - final.keys():
        final[message] = (takeover(message, states), True)
    rest = sorted(sent, key=lambda message: (*final[message], *message))
    return [
        [*group.delivered[rank], *(message for message in rest if message not in group.delivered[rank])]
        for rank in survivors
    ]
