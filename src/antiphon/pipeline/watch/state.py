"""What is kept of a run that is still going on: enough to judge what comes next, and no more.

A message is kept until everyone who must handle it has, and everyone has marked it stable (if the run has marks at
all); then only its number remains, in a span of retired numbers. A member's rows wait, unread, at the first delivery
whose send has not been read yet: so each delivery is judged when all that happened before it is known.

What is kept does not grow with the number of members and views that there have been: a view that everyone has gone on
from is closed, and a member that has departed is let go once others have departed after it. Of a closed view remains
who of those that are kept was in it (a *remnant*), of one that was let go that it was there.

Each view has a *line*: its messages in the order in which whoever was first delivered them. A member whose deliveries
in the view are the beginning of the line *follows* it, and all that is kept of it is how far it has come. Two
followers agree on the order, and one that has come as far as a sender had when it sent has handled all that the
message depends on. A member that leaves the line is kept track of message by message, and in comparison with everyone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
import numpy as np

from antiphon.pipeline.columns import NULL_TIME, Array
from antiphon.pipeline.ingesting.foreign.tags import PublishedTags
from antiphon.pipeline.results import WATCHED_GUARANTEES
from antiphon.pipeline.store.location import Location, open_binary, replacement
from antiphon.pipeline.watch.consumers import BROKER_ARRAYS, BrokerWords, Consumers, ConsumersSaid

NOT_IN: Final = -3
NOTHING: Final = -2
GONE: Final = -1

# in place of the view in which a message was sent: one that nobody who is kept was in; of numbers of which some were
# perhaps never used
NOWHERE: Final = -1
PERHAPS: Final = -2

# counts of a run
DELIVERIES, REPEATED, LATE, CAUSAL_EXAMINED, CAUSAL_VIOLATIONS, NODES, NEWEST_NS, HAS_MARKS, HAS_DISCARDS, ROWS = range(
    10
)
HAS_ENDS: Final = 10  # some log of the run has its end, or run.json says that every whole one has
SERIALS: Final = 11  # how many views there have been
CLOSED_NUMBER: Final = 12  # the highest number of a view that was closed
PAIRS, PAIRS_DIFFERING = 13, 14  # of members of which one was let go: with two common messages; in different orders
UNSENT, UNSENT_BY_SILENT = 15, 16  # deliveries of what somebody let go never sent; of one whose log just stopped
HANDLED_BY_SILENT: Final = 17  # deliveries and discards of the latter
# of members that were let go, and of views that were closed: what validity, agreement and view-synchrony have examined
OWN_SENT, OBLIGING, VIEW_PAIRS, VIEW_PAIRS_DIFFERING = range(18, 22)
OWN_MISSING, MISSING = 22, 23  # what is missing at members that were let go
# the same, of those whose logs just stopped; and how many of these owe more if their logs were cut short
OWN_MISSING_AT_SILENT, MISSING_AT_SILENT, MAY_OWE_AT_SILENT = range(24, 27)
COUNTS: Final = 27
INTEGRITY, VALIDITY, AGREEMENT, FIFO, CAUSAL, TOTAL, VIEW_SYNCHRONY = range(7)
GUARANTEES: Final = WATCHED_GUARANTEES


def _record(**fields: int) -> Array:
    """A record with these fields, at their first values."""
    return np.array(tuple(fields.values()), [(name, np.int64) for name in fields])


# Records rather than one array a field: compiled code then passes a handful of arrays around, not sixty.

NEW_ACTOR: Final = _record(  # a member, or a sender that no log is known of
    has_log=0,
    named=0,  # some view has named it
    ended=0,
    gone=0,  # it crashed or left, and has not come back
    has_left=0,  # it crashed or left at some time
    last_step=int(np.iinfo(np.int64).min),
    next_position=0,  # how many messages it has delivered or discarded
    current=0,  # the view that it is in
    highest_view=-1,  # the highest number of a view that it installed
    # what it delivered since its last send: a list of nodes, and a stretch of a line, all sent in one view
    past=-1,
    stretch_line=0,
    stretch_low=0,  # the first position on the line, and the one after the last
    stretch_high=0,
    stretch_last=-1,  # the last message of it that is kept, or one before it
    stretch_view=0,
    off_line=0,  # whether some of its deliveries are in `WatchedRun.cells`
    last_ns=NULL_TIME,  # the newest time in the run when a row of it was judged last: its own clock may be wrong
    own_sent=0,  # how many messages it has sent, those with topics aside
    own_handled=0,  # how many of these it has delivered or discarded
    own_told=0,  # of how many an alarm said that they are missing at its end
    may_owe=0,  # something is missing that it owes if its log was cut short
    missing=0,  # how many messages are that it owes, of those that are no longer listed
)
NEW_VIEW: Final = _record(
    length=0,  # of its line
    last=-1,  # the last message of the line that is kept
    left=0,  # how many have left the line
    ended_ns=NULL_TIME,  # when somebody first went on from it to another view
    serial=0,  # which of all views that there have been it is; 0 for the initial view and for remnants
    number=0,
)
NEW_SEAT: Final = _record(  # view by actor
    belongs=0,
    follows=NOT_IN,  # the serial of the view that follows this one at the actor, or GONE, NOTHING, NOT_IN
    without=0,  # somebody went on from here to a view without the actor
    overlooked=0,  # a message that was sent here was let go although the actor, which was away, had not handled it
    come=0,  # how far along the line it has come
    come_from=0,  # its own position of the first message of the line
    row=-1,  # its row of `WatchedRun.pairs` if it has left the line
    installed=0,  # not only begun in
    next_number=0,  # of the view that follows this one at the actor
    delivered=0,  # how many messages it first delivered here
    obliging=0,  # how many of these had no topic
    accompanied=0,  # somebody who went on together with it has been let go
    unsure=0,  # a message delivered here was let go, and what follows here at the actor decides who owes it
)
NEW_HEARD: Final = _record(  # actor by sender
    highest=0,  # number delivered
    marked=0,  # the highest number marked stable
)
NEW_MESSAGE: Final = _record(  # that is not retired
    sender=0,
    seq=0,
    sent=0,
    to_be_sent=0,  # its send is among the rows that wait
    retired=0,
    released=0,  # it may be (1) or has been (2) handled although its send is not known
    send_view=0,
    send_ns=NULL_TIME,
    past=-1,  # its direct predecessors: a list of nodes, and a stretch of a line
    stretch_line=0,
    stretch_low=0,
    stretch_high=0,
    stretch_last=-1,
    stretch_view=0,
    seen_in=-1,  # the view of its first delivery
    rank=-1,  # its position on that view's line, if it is there
    before=-1,  # the message before it on the line that is kept
    delivered=0,  # by how many members
    handled=0,  # by how many members
    mixed=0,  # some member did not just deliver it in the view of its first delivery
    own=0,  # validity asks whether its sender handles it
    obliges=0,  # 1: it was delivered without a topic, 2: with one, 3: both
)
NEW_PAIR: Final = _record(  # one who left the line, by actor; the cell of a pair is that of the first who left
    here=0,  # the furthest position at the first, plus 1, of what both delivered
    there=0,  # the furthest position at the other
    common=0,  # how many both delivered; 2 stands for more
    differs=0,  # whether their orders do; in both rows if there are two
)
NEW_NODE: Final = _record(  # of a linked list of messages
    message=-1,  # of one that is retired only the view in which it was sent remains, as ~view
    next=-1,
)


def enlarged(array: Array, blank: Array, *shape: int) -> Array:
    """An array of records with room for more of them."""
    fresh = np.zeros(shape, blank.dtype)  # memory that is not touched costs nothing
    if any(blank.tolist()):
        fresh[...] = blank
    fresh[tuple(slice(0, size) for size in array.shape)] = array
    return fresh


class Queue(NamedTuple):
    """NewRows that wait, in order of (actor, step)."""

    actor: Array
    code: Array
    sender: Array  # an actor, -1 if none
    seq: Array
    step: Array
    time: Array
    installs: Array  # of a view row: the view
    words: Array  # an index into `WatchedRun.words`, -1 of a row that has nothing to do with a broker
    offset: Array  # in its partition, NO_OFFSET where unknown


class WatchedView(msgspec.Struct, frozen=True):
    """A view is its number and its members; None: all that have a log. Without a number: a remnant of closed views."""

    number: int | None
    members: tuple[int, ...] | None


PROVISIONAL: Final = 1 << 40  # numbers from here on are of ids that nobody has sent yet
Message = tuple[int, int]  # sender and number, as in the trace


class Translation(msgspec.Struct, array_like=True):
    """What must be kept of a run to go on numbering its messages."""

    counted: bool | None = None  # whether ids are numbers, and senders are said with them
    stepped: bool | None = None  # whether rows have steps of their own
    ids: dict[str, Message] = {}
    numbers: dict[int, int] = {}  # author -> how many numbers it has used
    awaited: dict[str, Message] = {}  # ids that nobody has sent yet -> provisional numbers
    provisional: int = 0
    forgotten: bool = False  # some ids are
    delivers: dict[str, bool] = {}  # member ("" for all) -> whether deliveries are logged apart from receipts
    first_sent: dict[str, int] = {}  # topic -> when
    subscribed: list[tuple[str, int]] = []  # (topic, when) where nothing had been sent before
    tags: PublishedTags = msgspec.field(default_factory=PublishedTags)
    recent: list[bytes] = []  # digests of its last records that have times, to know those that are written again


class WatchedRun(msgspec.Struct):
    """One run under watch."""

    name: str
    ids: list[int]
    views: list[WatchedView]
    counts: Array
    inexact: Array  # by guarantee: something came too late to be judged
    actors: Array
    lines: Array  # by view
    seats: Array
    heard: Array
    messages: Array
    nodes: Array
    pairs: Array
    cells: Array  # actor by message, of those off the line: what it did, where and when (see `handling`); 0 if nothing
    queue: Queue
    retired: Array  # spans of numbers, as rows (actor, low, high, view of sending), in order
    met: Array  # actor by actor, in closed views: how many messages both delivered (2 stands for more), 4 more if in
    # different orders
    let_go: Array  # spans of incarnations, as rows (name, low, high): the members that were let go
    missing: Array  # rows (member, sender, number), ids as in the trace: what is owed for a view that is over
    splits: Array  # rows (view, actor, actor, deliverer, sender's id, number, told): who differ in what they delivered
    retired_initially: bool = False  # something sent before any view was recorded
    words: list[BrokerWords] = []  # what rows that wait say of brokers
    brokers: Consumers = msgspec.field(default_factory=Consumers)
    translation: Translation = msgspec.field(default_factory=Translation)
    sends_recorded: bool = True

    def leave_open(self) -> None:
        """Note that something came too late: nothing can be said to hold any more."""
        self.inexact[:] = 1
        self.brokers.leave_open()

    @property
    def has_ends(self) -> bool:
        """Whether some log has its end: those that do not say farewell were cut short then."""
        return bool(self.counts[HAS_ENDS])

    def cut_short(self) -> Array:
        """Whose log lacks its tail, if nothing more comes."""
        known = (self.actors["has_log"] > 0) | (self.seats["belongs"][1:] > 0).any(axis=0)
        result: Array = known & (self.actors["ended"] == 0) & (self.actors["has_left"] == 0) & self.has_ends
        return result

    def renumber_waiting(self, found: dict[Message, Message]) -> None:
        """Give rows that wait the numbers of their messages, which are known now."""
        actor = {one: at for at, one in enumerate(self.ids)}
        queue, messages = self.queue, self.messages
        for (sender, number), message in found.items():
            old = actor.get(sender, -1)
            if ((messages["sender"] == old) & (messages["seq"] == number) & (messages["handled"] > 0)).any():
                self.leave_open()  # it was taken for one that was never sent
            rows = (queue.sender == old) & (queue.seq == number)
            if rows.any() and message[0] in actor:
                queue.sender[rows], queue.seq[rows] = actor[message[0]], message[1]


def new_run(name: str) -> WatchedRun:
    """A run of which nothing has been read."""
    counts = np.zeros(COUNTS, np.int64)
    counts[NEWEST_NS] = NULL_TIME
    return WatchedRun(
        name,
        [],
        [WatchedView(0, None)],
        counts,
        inexact=np.zeros(len(GUARANTEES), np.int64),
        actors=np.zeros(0, NEW_ACTOR.dtype),
        lines=np.full(1, NEW_VIEW),
        seats=np.zeros((1, 0), NEW_SEAT.dtype),
        heard=np.zeros((0, 0), NEW_HEARD.dtype),
        messages=np.zeros(0, NEW_MESSAGE.dtype),
        nodes=np.zeros(0, NEW_NODE.dtype),
        pairs=np.zeros((0, 0), NEW_PAIR.dtype),
        cells=np.zeros((0, 0), np.int64),
        queue=Queue(*(np.zeros(0, np.int64) for _ in Queue._fields)),
        retired=np.zeros((0, 4), np.int64),
        met=np.zeros((0, 0), np.int8),
        let_go=np.zeros((0, 3), np.int64),
        missing=np.zeros((0, 3), np.int64),
        splits=np.zeros((0, 7), np.int64),
    )


def make_room(run: WatchedRun, has_log: set[int]) -> None:
    """Make room for all actors and views, and note who belongs to which view as it is known now."""
    a, v, before, views_before = len(run.ids), len(run.views), len(run.actors), len(run.lines)
    run.actors = enlarged(run.actors, NEW_ACTOR, a)
    run.lines = enlarged(run.lines, NEW_VIEW, v)
    for number in range(views_before, v):
        run.counts[SERIALS] += 1
        run.lines["serial"][number] = run.counts[SERIALS]
        run.lines["number"][number] = run.views[number].number
    run.seats = enlarged(run.seats, NEW_SEAT, v, a)
    run.heard = enlarged(run.heard, NEW_HEARD, a, a)
    run.pairs = enlarged(run.pairs, NEW_PAIR, len(run.pairs), a)
    met = np.zeros((a, a), np.int8)
    met[:before, :before] = run.met
    run.met = met
    cells = np.zeros((a, len(run.messages)), np.int64)
    cells[: len(run.cells)] = run.cells
    run.cells = cells
    run.actors["has_log"] = [one in has_log for one in run.ids]
    for number, view in enumerate(run.views):
        if view.members is None:
            run.seats["belongs"][number] = run.actors["has_log"]
        elif number >= views_before or a > before:
            members = set(view.members)
            run.seats["belongs"][number] = [one in members for one in run.ids]
            run.actors["named"] |= run.seats["belongs"][number]
    run.seats["follows"][0, before:] = NOTHING  # everyone begins in the initial view
    gone_on = (run.seats["follows"] >= 0).any(axis=1, keepdims=True)
    run.seats["without"][:, before:] = gone_on  # none of the views that they went on to names it


# --- on disk ----------------------------------------------------------------------------------------------------------

_ARRAYS: Final = (
    "counts",
    "inexact",
    "actors",
    "lines",
    "seats",
    "heard",
    "messages",
    "nodes",
    "pairs",
    "retired",
    "met",
    "let_go",
    "missing",
    "splits",
)


class _StateHeader(msgspec.Struct, frozen=True, array_like=True):
    """What of a run's state is no array."""

    name: str
    ids: list[int]
    views: list[WatchedView]
    retired_initially: bool
    words: list[BrokerWords]
    brokers: ConsumersSaid
    translation: Translation
    sends_recorded: bool


def save(run: WatchedRun, path: Location) -> None:
    """Write a run's state; the file appears when it is whole."""
    arrays: dict[str, Array] = {name: getattr(run, name) for name in _ARRAYS}
    arrays |= {f"queue.{name}": column for name, column in run.queue._asdict().items()}
    arrays["cells"] = run.cells[run.actors["off_line"] > 0]
    arrays |= {f"brokers.{name}": getattr(run.brokers, name) for name in BROKER_ARRAYS}
    header = msgspec.msgpack.encode(
        _StateHeader(
            run.name,
            run.ids,
            run.views,
            run.retired_initially,
            run.words,
            run.brokers.said,
            run.translation,
            run.sends_recorded,
        )
    )
    arrays["header"] = np.frombuffer(header, np.uint8)
    with replacement(path, durable=True) as fresh, fresh.open("wb") as out:
        np.savez(out, allow_pickle=False, **arrays)


def load(path: Location) -> WatchedRun:
    """Read a run's state."""
    with open_binary(path) as file, np.load(file, allow_pickle=False) as found:
        header = msgspec.msgpack.decode(found["header"].tobytes(), type=_StateHeader)
        arrays = {part: found[part] for part in _ARRAYS}
        cells = np.zeros((len(header.ids), len(arrays["messages"])), np.int64)
        cells[arrays["actors"]["off_line"] > 0] = found["cells"]
        return WatchedRun(
            header.name,
            header.ids,
            header.views,
            **arrays,
            cells=cells,
            queue=Queue(*(found[f"queue.{column}"] for column in Queue._fields)),
            retired_initially=header.retired_initially,
            words=header.words,
            brokers=Consumers(header.brokers, *(found[f"brokers.{name}"] for name in BROKER_ARRAYS)),
            translation=header.translation,
            sends_recorded=header.sends_recorded,
        )
