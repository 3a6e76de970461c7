"""All that a driver knows of a protocol: inputs, effects, and a machine that turns one into the other.

A driver (the simulator, the live loop, a test) reads `deadline`, calls `handle`, and carries out the effects.
Time is an argument, in integer nanoseconds of the member's own clock; a spurious `Wake` is harmless.
"""

from __future__ import annotations

import builtins
from collections import Counter
from typing import Literal, Protocol, TypeAlias, final

import msgspec

Instant: TypeAlias = int  # nanoseconds on the member's own clock
Duration: TypeAlias = int  # nanoseconds

MILLISECOND: Duration = 1_000_000
SECOND: Duration = 1_000_000_000


@final
class Submit(msgspec.Struct, frozen=True, gc=False):
    """The application multicasts a payload."""

    payload: bytes
    lifetime_ns: Duration | None = (
        None  # after this it may be discarded instead of delivered, where the ordering offers it
    )
    priority: int = 0  # a full buffer sheds lower priorities first, where the ordering offers it


@final
class Receive(msgspec.Struct, frozen=True, gc=False):
    """The transport hands over a datagram, as it came."""

    datagram: bytes


@final
class ReceiveMany(msgspec.Struct, frozen=True, gc=False):
    """The transport hands over all that one wake-up brought: what follows from it together is sent together."""

    datagrams: list[bytes]


@final
class Wake(msgspec.Struct, frozen=True):
    """The deadline has passed (or not: a spurious wake is harmless)."""


@final
class Leave(msgspec.Struct, frozen=True):
    """The application leaves the group."""


class Meet(msgspec.Struct, frozen=True):
    """Names were found that may want to be members; an input of machines with views only."""

    names: tuple[int, ...]


class Intake(msgspec.Struct, frozen=True):
    """Whether the application is too far behind to take in more, and so does not join; with views only."""

    full: bool


class Disband(msgspec.Struct, frozen=True):
    """Another group of the same name stands: end here, what was not sent stays in the queue; with views only."""


Input: TypeAlias = Submit | Receive | ReceiveMany | Wake | Leave


class Snapshot(msgspec.Struct, frozen=True):
    """The application's answer to a `Capture`: its state can be read; an input of machines with views only.

    Members that give the same digest have the same bytes, so that one can go on where another stopped.
    """

    view: int
    size: int | None  # None: there is none, since taking or reading it failed
    digest: bytes = b""  # at most 32 bytes


class Chunk(msgspec.Struct, frozen=True):
    """The driver's answer to a `ReadChunk`: part of a captured state; an input of machines with views only."""

    view: int
    offset: int
    data: bytes
    to: int


@final
class Send(msgspec.Struct, frozen=True, gc=False):
    """Give a datagram to the transport, for the named members or, with None, for all others."""

    to: tuple[int, ...] | None
    datagram: bytes


@final
class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Hand a message to the application, in the promised order."""

    sender: int
    seq: int
    payload: bytes


@final
class Stable(msgspec.Struct, frozen=True, gc=False):
    """All of the sender's messages up to seq are held by every member."""

    sender: int
    seq: int


class Install(msgspec.Struct, frozen=True):
    """A view begins."""

    view: int
    members: tuple[int, ...]
    elders: tuple[int, ...] = ()  # who comes from the view before: their state stands
    wire: int = 0  # the version of the wire that they speak


@final
class Drop(msgspec.Struct, frozen=True):
    """Something will not be delivered: a message discarded by policy or, without sender, a datagram of garbage."""

    reason: str
    sender: int | None = None
    seq: int | None = None


class Persist(msgspec.Struct, frozen=True):
    """Write this down in place of what was written before, so that it survives a crash, before going on.

    What `may_wait` need not be on the disk before the effects after it: nothing that is said depends on it.
    """

    state: bytes
    may_wait: bool = False


class StandingChanged(msgspec.Struct, frozen=True):
    """The application should know: too few are within reach (stalled), or enough again (resumed).

    Or the group went on without us (excluded), or two sides met again and the other's state stands (yielded).
    """

    what: Literal["stalled", "resumed", "excluded", "yielded"]
    links: tuple[tuple[int, int], ...] = ()  # with `stalled`: the broken links, as (from, to), by name


@final
class Capture(msgspec.Struct, frozen=True):
    """Give the application's state at this point of its stream back as a `Snapshot`, for those who join this view."""

    view: int


class ReadChunk(msgspec.Struct, frozen=True):
    """Read part of the state that was captured for a view, and give it back as a `Chunk` with the same `to`."""

    view: int
    offset: int
    length: int
    to: int  # the joiner that it is for


class Release(msgspec.Struct, frozen=True):
    """Let the state go that was captured for a view: nobody needs it any more."""

    view: int


class RestoreChunk(msgspec.Struct, frozen=True):
    """Keep part of an older member's state, behind what came before; with offset 0, in place of what came before."""

    view: int
    offset: int
    data: bytes


@final
class Restore(msgspec.Struct, frozen=True):
    """Replace the application's state by what was received: an older member's when the view began."""

    view: int


class HoldBack(msgspec.Struct, frozen=True):
    """Keep what has its place in the application's stream behind a state that has not come yet."""

    effect: Deliver | Install | Capture


class EndHoldBack(msgspec.Struct, frozen=True):
    """Hand over all that was held back, in its order; or throw it away, for this incarnation is over."""

    hand_over: bool
    lost: bool = False  # the state that it was to follow: nobody has it any more
    refused_by: tuple[int, ...] = ()  # if nobody could give the state: those who were asked, which are all


class TraceRow(msgspec.Struct, frozen=True, gc=False):
    """Write a row of the trace; said only by a machine that was told to.

    The row happens at the instant of the input that it follows from. `view` and `members` say, with the event `view`,
    that a view begins, in which the rows after it happen. `payload` is what is sent, for a log that tells it.
    """

    member: int
    event: str
    sender: int | None = None
    seq: int | None = None
    bytes: int | None = None
    detail: str | None = None
    view: int | None = None
    members: tuple[int, ...] | None = None
    payload: builtins.bytes | None = None


Effect: TypeAlias = (
    Send
    | Deliver
    | Stable
    | Install
    | Drop
    | Persist
    | StandingChanged
    | Capture
    | ReadChunk
    | Release
    | RestoreChunk
    | Restore
    | HoldBack
    | EndHoldBack
    | TraceRow
)


class Machine(Protocol):
    """A deterministic protocol machine."""

    @property
    def deadline(self) -> Instant | None:
        """When the machine wants to be woken; state that the driver reads, not a timer that the machine sets."""

    def handle(self, event: Input, now: Instant) -> list[Effect]:
        """Take one input at an instant and say what follows from it."""


class Driven(Machine, Protocol):
    """What a driver may ask a member, or a process with views, besides driving it."""

    @property
    def counts(self) -> Counter[str]:
        """What it said and what happened, by kind."""

    @property
    def room(self) -> int:
        """How many more submissions it takes."""

    @property
    def held(self) -> int:
        """How many messages it keeps."""

    @property
    def drained(self) -> bool:
        """Whether nothing waits and nothing is kept."""


def earliest(*instants: Instant | None) -> Instant | None:
    """Give the first of several deadlines, any of which may be absent."""
    first = None
    for instant in instants:
        if instant is not None and (first is None or instant < first):
            first = instant
    return first
