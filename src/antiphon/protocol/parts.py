"""What the parts of a member have in common: pure machines that return what goes up and what goes down.

A part never calls another part. `Member` hands it what is its own, takes its `Step`, and carries each item to the
neighbour above (towards the application) or below (towards the network). Parts live for one view: sizes are fixed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Protocol, Self, TypeAlias, cast, final, runtime_checkable

import msgspec

from antiphon.protocol.machine import Deliver, Drop, Duration, Instant, Stable, Submit
from antiphon.protocol.pace import Pace
from antiphon.protocol.timers import jittered
from antiphon.protocol.wire import Pdu, Streamed


@final
class Out(msgspec.Struct, frozen=True, gc=False):
    """A PDU for the network: to the given ranks, or with None to all other members."""

    pdu: Pdu
    to: tuple[int, ...] | None = None
    sender: int | None = None  # the message that it carries, if it carries one
    seq: int | None = None
    repair: bool = False  # a copy sent again


@final
class Reliable(msgspec.Struct, frozen=True, gc=False):
    """A PDU for the member's reliable stream to all, through recovery."""

    pdu: Streamed
    seq: int | None = None  # the application message that it carries, if any


@final
class Accepted(msgspec.Struct, frozen=True, gc=False):
    """Recovery hands over the next PDU of a sender's stream."""

    source: int
    pdu: Streamed


@final
class Received(msgspec.Struct, frozen=True, gc=False):
    """A message was received for the first time (the trace's `receive`); nothing for the application yet."""

    sender: int
    seq: int


@final
class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """A copy came that was not needed."""

    sender: int
    seq: int | None = None


@final
class Decided(msgspec.Struct, frozen=True, gc=False):
    """The position of a message in the total order was learnt (the trace's `control`, detail `final`)."""

    sender: int
    seq: int
    source: int | None = None  # whose stream says so, if not its sender's


@final
class Frontier(msgspec.Struct, frozen=True, gc=False):
    """Stability's frontier moved: per rank, the stream number up to which everyone holds everything."""

    numbers: tuple[int, ...]


Up: TypeAlias = Deliver | Stable | Drop | Accepted | Received | Duplicate | Decided | Frontier
Down: TypeAlias = Out | Reliable


class Step(msgspec.Struct, gc=False):
    """What follows from one call of a part, in order."""

    up: list[Up] = []
    down: list[Down] = []


NOTHING = Step()  # what follows nearly always; shared, so nobody may add to it


class PartContext(msgspec.Struct, frozen=True):
    """What a part is told when it is made: its rank in a view of `size` members, its own randomness, the window."""

    rank: int
    size: int
    random: random.Random
    window: int = 64  # own messages that may be unstable at once
    streams: int = 0  # for stability: how many streams there are to hold; 0: one of each member
    pace: Pace = msgspec.field(default_factory=lambda: Pace(1))  # for how long what the member says gathers

    def jittered(self, pause_ns: Duration) -> Duration:
        """Return a random pause between the given one and half as much again."""
        return jittered(self.random, pause_ns)


class Ordering(Protocol):
    """Turns submissions into deliveries in a promised order.

    `needs_recovery` orderings are handed each sender's stream complete and in order (`accept`) and may ask for
    `Reliable` sending; the others are handed raw PDUs (`receive`) and repair losses themselves.
    """

    PDUS: ClassVar[tuple[type[Pdu], ...]]
    NEEDS_RECOVERY: ClassVar[bool]
    PROMISES: ClassVar[tuple[str, ...]]  # guarantees by their trace names, beyond integrity, validity and agreement
    Options: ClassVar[type[msgspec.Struct]]

    def __init__(self, context: PartContext, options: Any) -> None: ...

    @property
    def deadline(self) -> Instant | None:
        """When it wants `wake`."""

    @property
    def held(self) -> int:
        """How many messages it keeps in its buffers now."""

    def may_submit(self, priority: int) -> bool:
        """Say whether the ordering's own flow rule allows one more message now."""

    def submit(self, message: Submit, seq: int, now: Instant) -> Step:
        """Multicast the member's message number `seq`."""

    def accept(self, source: int, pdu: Streamed, now: Instant) -> Step:
        """Take the next PDU of a sender's reliable stream."""

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Take a PDU that came from the network as it is: lost, doubled or late as it may be."""

    def wake(self, now: Instant) -> Step:
        """Do what is due."""

    # When the view ends: see `FlushHooks`, which is there to inherit from

    def block(self) -> None:
        """Deliver nothing more before `finish`."""

    def claim(self) -> bytes:
        """Say what is known here of messages that are not yet delivered."""

    @staticmethod
    def settle(claims: Mapping[int, bytes], *, safe: bool) -> bytes:
        """Decide, from the claims of all that go on, what none of them could decide alone."""

    def finish(self, reach: Sequence[int], order: bytes) -> Step:
        """Deliver the rest of the view, in order."""


@runtime_checkable
class Gate(Protocol):
    """An ordering whose PDUs depend on PDUs of other streams: each is accepted after what it depends on."""

    def admits(self, source: int, pdu: Streamed) -> bool:
        """Say whether the next PDU of a stream may be accepted now."""


@runtime_checkable
class Gatherer(Protocol):
    """An ordering that says once what follows from all that one turn brought."""

    def gathered(self, room: int) -> Step:
        """Say it, in at most `room` PDUs of the member's stream; the rest has to wait."""


class RetransmissionBuffer(Protocol):
    """What keeps the PDUs that some member may lack: recovery, or an ordering that repairs losses itself.

    When a view ends, everyone's share in it is a number: what lies up to there is delivered by all that go on together.
    """

    def reach(self) -> Sequence[int]:
        """Say, per sender, up to which number this member holds its PDUs and all that they depend on."""

    def copies(self, source: int, above: int, upto: int) -> list[tuple[int, Pdu]]:
        """Give a sender's PDUs above one number, up to another, in order, as far as some member may lack them."""

    def adopt(self, source: int, pdu: Pdu) -> Step:
        """Take a PDU that belongs to the view and that this member had to fetch; each sender's come in order."""


class FlushHooks:
    """What an ordering does when its view ends; as it stands, for one that delivers whatever is accepted.

    A member that is asked to end its view stops, and says what others must know to finish its undelivered messages
    (`claim`). One of them settles from all the claims where unfinished messages go, the same for everyone (`settle`).
    Then each adopts what it lacks and delivers the rest in the ordering's own order (`finish`).
    """

    def block(self) -> None:
        """Deliver nothing more before `finish`."""

    def claim(self) -> bytes:
        """Say what is known here of messages that are not yet delivered."""
        return b""

    @staticmethod
    def settle(claims: Mapping[int, bytes], *, safe: bool) -> bytes:
        """Decide, from the claims of all that go on, by rank, what none of them could decide alone."""
        return b""

    def finish(self, reach: Sequence[int], order: bytes) -> Step:
        """Deliver the rest of the view, up to each sender's number in `reach`, in order."""
        return Step()


class Stability(Protocol):
    """Finds the frontier up to which every member holds everything."""

    PDUS: ClassVar[tuple[type[Pdu], ...]]
    Options: ClassVar[type[msgspec.Struct]]

    def __init__(self, context: PartContext, options: Any) -> None: ...

    @property
    def deadline(self) -> Instant | None:
        """When it wants `wake`."""

    def stamp(self, now: Instant) -> int:
        """Give the stamp of the next PDU of the member's own stream."""

    def advanced(self, source: int, pdu: Streamed, received: Sequence[int], now: Instant) -> Step:
        """Hear that this member now holds `received`, after accepting `pdu` from `source` (itself included)."""

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Take one of its own PDUs from another member."""

    def wake(self, now: Instant) -> Step:
        """Do what is due."""


@runtime_checkable
class Checked(Protocol):
    """A part's options that not every combination of values, or every size of a group, goes with."""

    def check(self, size: int) -> None:
        """Raise a `UsageError` that names the key, unless a group of `size` members can work with this."""


@runtime_checkable
class Shaped(Checked, Protocol):
    """A part's options that depend on the size of the group."""

    def fit(self, size: int) -> Self:
        """Give the options for a view of `size` members: what was shaped for another size gives way to the usual."""


@runtime_checkable
class Rider(Protocol):
    """A stability part whose PDUs may ride in a datagram that goes to all anyway."""

    def ride(self, now: Instant) -> list[Pdu]:
        """Give what is due, or would be soon, for a datagram to all that leaves now."""


@runtime_checkable
class Watcher(Protocol):
    """A stability part that can say who holds the frontier back."""

    def lag(self) -> dict[int, int | None]:
        """Say, as far as this member knows, who lacks how much of what it holds; None: not heard from."""


def message_times(part: object) -> int:
    """Return how many message times a stability part says that a round takes; a report and its way back, if nothing."""
    return getattr(part, "message_times", 2)


class Capabilities(msgspec.Struct, frozen=True):
    """What the parts of a member can do beside what every part can, found out once."""

    gate: Gate | None
    gatherer: Gatherer | None
    rider: Rider | None
    watcher: Watcher | None


def capabilities(ordering: Ordering, stability: Stability | None) -> Capabilities:
    """Find out what the parts of a member can do beside what every part can."""
    kinds: tuple[type, type] = type(ordering), type(stability)
    gate, gatherer, rider, watcher = _capable(*kinds)
    return Capabilities(
        cast(Gate, ordering) if gate else None,
        cast(Gatherer, ordering) if gatherer else None,
        cast(Rider, stability) if rider else None,
        cast(Watcher, ordering if stability is None else stability) if watcher else None,
    )


@lru_cache(maxsize=64)  # of classes: to look for methods takes as long as all else that a small member is made of
def _capable(ordering: type, stability: type) -> tuple[bool, bool, bool, bool]:
    knows_who_lags = ordering if stability is type(None) else stability
    return (
        issubclass(ordering, Gate),
        issubclass(ordering, Gatherer),
        issubclass(stability, Rider),
        issubclass(knows_who_lags, Watcher),
    )
