"""What a seed draws: a group of applications, what they send and read, and what befalls them, as plain data.

A schedule can be printed as JSON, made smaller, and run again; nothing of it depends on when or where it is run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

Ordering: TypeAlias = Literal["fifo", "causal-blocks", "co", "abcast", "tomp", "sequencer"]
ORDERINGS: Final[tuple[Ordering, ...]] = ("fifo", "causal-blocks", "co", "abcast", "tomp", "sequencer")
ON_RECOVERY: Final = ("fifo", "abcast", "tomp", "sequencer")  # these may be safe, and have a stability protocol
TOTAL: Final = ("abcast", "tomp", "sequencer")
CAUSAL: Final = ("causal-blocks", "co", *TOTAL)
STABILITIES: Final = (
    "vector-ack",
    "vector-ack",
    "timestamp-ack",
    "coordinator",
    "full-distribution",
    "train",
    "tree-coordinator",
    "tree-train",
)


class Setup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How the members join: the keywords of `antiphon.join` that are drawn."""

    ordering: Ordering = "sequencer"
    views: bool = True
    stability: str = "vector-ack"
    safe: bool = False
    partition: Literal["majority", "each-side"] = "majority"
    slow: Literal["block", "drop", "lag"] = "block"
    key: bool = False
    discover: Literal["", "multicast", "peers"] = ""  # peers: each knows the next one, and all but one know the first
    founders: int = 0  # with discover: how many are declared to found the group, and the rest join it; 0: all
    undeclared: bool = False  # with discover: nobody says how many found the group
    multicast: bool = False  # what goes to several goes to a multicast address
    window: int = 64
    window_bytes: int = 512 << 10
    inbox_bytes_max: int = 8 << 20
    snapshot_bytes: int | None = None  # how much the state weighs beside what was delivered; None: no snapshots
    suspect_ms: int = 500
    leave_ms: int = 5_000  # how long leaving may wait
    fixed_times: bool = False  # `suspect_ms` is given to the members, rather than measured by them


class Net(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How all links behave until the calm."""

    latency: str = "uniform 1ms 5ms"
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    skew: str = "0"
    offload: bool = False
    mtu: int = 1_500  # of every machine's way out
    bandwidth: int = 0  # bits a second of each link; 0: unlimited


BURST_BYTES: Final = 55_000  # the most that one burst holds
_STATE_BYTES_PER_MS: Final = 500  # at least so fast a state is brought to a joiner ...
_STATE_WINDOW_BYTES: Final = 150_000  # ... or so much of it for each latency
STATE_PIECES_MAX: Final = 9  # of a state that is given piece by piece


class Work(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What one application does: when it starts, what it sends, how it reads."""

    start_ms: int = 0
    messages: int = 5
    pause_ms: int = 100  # between two sends
    size: int = 40
    large: int = 0  # every so many messages one of `large_bytes`
    large_bytes: int = 100_000
    many: int = 1  # messages of one `send_many`
    batches: bool = False
    read_pause_ms: int = 0  # after each event, until the calm
    deaf_ms: tuple[int, int] = (0, 0)  # from when until when it reads nothing
    restore_ms: int = 0  # how long it takes in a state
    piece_ms: int = 0  # how long it takes to give each piece of its state; 0: it gives all of it at once, as bytes
    asks_ms: int = 0  # how long it waits for a stage of a receipt before it asks anew; 0: until it comes
    reads_ms: int = 0  # how long it waits for an event before it gives up and reads anew; 0: until one comes
    sends_ms: int = 0  # how long it waits for room before it gives a message up; 0: until there is room
    snapshot_fails: int = 0  # how often it fails to give its state, the first times that it is to
    restore_fails: int = 0  # how often it fails to take over a state, the first times that it is to


Kind: TypeAlias = Literal[
    "crash",  # members stop dead at `at`, and start again at `until`, if given
    "pause",
    "partition",  # `members` from all others
    "cut",  # from `members` to `others`, this direction only
    "link",  # the same links lose `share` of the packets, and take `delay_ms` longer
    "narrow",  # the same links carry packets of at most `size` bytes
    "clock",  # sets the wall clock of `members` by `delay_ms`
    "disk",  # writes of `members` fail
    "torn",  # members stop dead at the `place` in a write that follows `at`; start at `until`
    "leave",  # as `how` says; start again at `until`, if given
    "cancel",  # the tasks that send and read are cancelled, and begun again
    "keys",  # the group's key is replaced, step by step from `at` to `until`, by one member after the other
    "replay",  # whatever was sent until `at` is sent again by a stranger until `until`
    "forge",  # garbage, and packets with one bit changed
]


How: TypeAlias = Literal[
    "",  # in good order
    "hurry",  # without waiting for anything, and while it still joins, too
    "error",  # by an exception of the application
    "cancel",  # its task is cancelled, also while it still joins
    "return",  # in good order, and joins again at once, in the same process
]


class PlannedFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Something that befalls members at a time, in milliseconds."""

    kind: Kind
    at: int
    until: int | None = None  # None: for good
    members: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    forgets: bool = False  # crash: the state folder is gone
    old_ms: int = 0  # crash: the state folder holds what it held so long before
    lies: bool = False  # because the disk only said that it had synced what was written since; else a copy was put back
    power: bool = False  # crash, torn: the machine loses its power, and so what was not synced
    place: Literal["writing", "written", "synced"] = "writing"  # torn: before it is written, before it is synced, after
    share: float = 0.0
    delay_ms: int = 0
    size: int = 0
    silent: bool = False  # narrow: larger packets vanish, rather than be refused
    how: How = ""  # leave
    stale: bool = False  # keys: `members` keep the old key for good, and have no part in the group any more


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A whole run."""

    seed: int
    setup: Setup = Setup()
    odd: Setup | None = None  # the last member joins with this instead
    net: Net = Net()
    work: tuple[Work, ...] = (Work(), Work(), Work())
    faults: tuple[PlannedFault, ...] = ()
    lingers: bool = True  # to the end, though everyone has gone on and all is known: what comes late is seen too

    @property
    def members(self) -> int:
        """How many applications there are."""
        return len(self.work)

    @property
    def latency_ms(self) -> float:
        """About the longest that a packet takes, behind a window of others where links are slow."""
        return self._queue_ms + max(
            _milliseconds(word) for word in self.net.latency.split()[1:2] + self.net.latency.split()[-1:]
        )

    @property
    def _queue_ms(self) -> float:
        """How long a link takes for a window."""
        return 8_000 * (self.setup.window_bytes + BURST_BYTES) / self.net.bandwidth if self.net.bandwidth else 0.0

    @property
    def calm_ms(self) -> int:
        """When the last fault that ends has ended, and everyone has started."""
        times = [work.start_ms for work in self.work] + [work.deaf_ms[1] for work in self.work]
        times += [work.start_ms + work.messages * work.pause_ms for work in self.work]
        times += [fault.at if fault.until is None else fault.until for fault in self.faults]
        return max(times) + 100

    @property
    def settled_ms(self) -> int:
        """When everyone who can go on must be able to deliver again: a stated time after the calm."""
        slow_link = max((fault.delay_ms for fault in self.faults if fault.kind == "link"), default=0)
        large = self.setup.snapshot_bytes or 0
        transfers = (self.members - 1).bit_length()  # one after the other: as many are let in as have the state
        state = max(large // _STATE_BYTES_PER_MS, transfers * large * self.latency_ms / _STATE_WINDOW_BYTES)
        state += transfers * STATE_PIECES_MAX * max(work.piece_ms for work in self.work)
        refusals = sum(work.snapshot_fails for work in self.work)  # each time a joiner waits twice as long
        state += 2_000 * 2**refusals if refusals else 0
        backlog = max(map(self._rounds, self.work))  # what was sent before goes first
        wait = 12 * self.setup.suspect_ms + 40 * (self.latency_ms + slow_link) + self.window_ms * backlog
        return self.calm_ms + int(wait + state)

    @property
    def window_ms(self) -> float:
        """How long a window of messages may take until it is delivered and stable."""
        return 10 * self.latency_ms

    def _rounds(self, work: Work) -> float:
        """How often all that an application sends fills its window: by the number of bursts, and by their bytes."""
        large = work.messages // work.large if work.large else 0
        size = work.messages * work.size + large * work.large_bytes
        bursts = work.messages + size // BURST_BYTES
        return bursts / self.setup.window + size / (self.setup.window_bytes + BURST_BYTES)

    @property
    def end_ms(self) -> int:
        """When the run ends: what was sent after the calm must be delivered by then."""
        return self.settled_ms + int(4 * self.setup.suspect_ms + 40 * self.latency_ms)

    def to_json(self) -> str:
        """Print it."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()


def features(schedule: Schedule) -> Iterator[str]:
    """Name what a schedule has of all that can be drawn: once each, for a table of how often everything comes."""
    setup, net = schedule.setup, schedule.net
    yield f"{schedule.members} members"
    yield f"ordering {setup.ordering}"
    yield f"stability {setup.stability}"
    yield f"partition {setup.partition}"
    yield f"latency {net.latency}"
    yield f"discovery {setup.discover or 'none'}"
    yield f"snapshot {'none' if setup.snapshot_bytes is None else setup.snapshot_bytes}"
    readers = [work for work in schedule.work if work.read_pause_ms or work.deaf_ms[1]]
    yield from {f"slow reader, {setup.slow}"} if readers else ()
    kinds = {f"fault {fault.kind}{'' if fault.until is not None else ' for good'}" for fault in schedule.faults}
    one_way = {(fault.members, fault.others) for fault in schedule.faults if fault.kind == "cut"}
    seeds_start = schedule.work[0].start_ms
    ended = [fault for fault in schedule.faults if fault.until is not None]
    also = {
        "safe": setup.safe,
        "key": setup.key,
        "multicast": setup.multicast,
        "offload": net.offload,
        "large packets": net.mtu > 1_500,
        "black hole for large packets": any(fault.silent for fault in schedule.faults),
        "loss": net.loss > 0,
        "duplicates": net.duplicate > 0,
        "reordering": net.reorder > 0,
        "skewed clocks": net.skew != "0",
        "slow links": net.bandwidth > 0,
        "nobody says how many found the group": setup.undeclared,
        "fixed times": setup.fixed_times,
        "one keeps the old key": any(fault.stale for fault in schedule.faults),
        "one member set up differently": schedule.odd is not None,
        "late seed": setup.discover == "peers" and seeds_start > min(work.start_ms for work in schedule.work),
        "cut both ways": any((others, members) in one_way for members, others in one_way),
        "no views": not setup.views,
        "crash by a loss of power": any(fault.power for fault in schedule.faults if fault.kind == "crash"),
        "loss of power before a write is synced": any(
            fault.power and fault.place == "written" for fault in schedule.faults if fault.kind == "torn"
        ),
        "loss of power once a write is synced": any(
            fault.power and fault.place == "synced" for fault in schedule.faults if fault.kind == "torn"
        ),
        "an old copy of the state folder": any(fault.old_ms and not fault.lies for fault in schedule.faults),
        "a disk that lies about a sync": any(fault.lies for fault in schedule.faults),
        "crash without the state folder": any(fault.forgets for fault in schedule.faults),
        "the same befalls the same members again": len({(fault.kind, fault.members, fault.others) for fault in ended})
        < len(ended),
        "every member was started again in turn": {fault.members for fault in ended if fault.kind in ("crash", "leave")}
        >= {(member,) for member in range(schedule.members)},
        "state given piece by piece": any(work.piece_ms for work in schedule.work) and setup.snapshot_bytes is not None,
        "receipts asked again": any(work.asks_ms for work in schedule.work),
        "fewer founders than members": setup.founders > 0,
        "windows or inboxes at their bounds": 1 in (setup.window, setup.window_bytes, setup.inbox_bytes_max),
        "ten times as much to say": any(work.messages > 100 for work in schedule.work),
        "reads are given up": any(work.reads_ms for work in schedule.work),
        "sends are given up": any(work.sends_ms for work in schedule.work),
        "snapshot or restore fails": any(work.snapshot_fails or work.restore_fails for work in schedule.work),
        "pause of everyone": any(
            fault.kind == "pause" and len(fault.members) == schedule.members for fault in schedule.faults
        ),
        "leave of everyone": any(
            fault.kind == "leave" and len(fault.members) == schedule.members for fault in schedule.faults
        ),
        "many links cut at once": sum(fault.kind == "cut" for fault in schedule.faults) > 4,
        "crash of everyone": any(len(fault.members) == schedule.members for fault in schedule.faults),
        "pause longer than suspicion": any(
            fault.kind == "pause" and (fault.until or 0) - fault.at > setup.suspect_ms for fault in schedule.faults
        ),
        "clock step of a day": any(abs(fault.delay_ms) == 86_400_000 for fault in schedule.faults),
    }
    yield from kinds
    yield from {f"leave, {fault.how or 'in good order'}" for fault in schedule.faults if fault.kind == "leave"}
    yield from (name for name, has in also.items() if has)


def from_json(text: str | bytes) -> Schedule:
    """Read what `to_json` printed."""
    return msgspec.json.decode(text, type=Schedule)


def _milliseconds(word: str) -> float:
    for unit, factor in (("us", 0.001), ("ms", 1.0), ("s", 1000.0)):
        if word.endswith(unit):
            return float(word.removesuffix(unit)) * factor
    return 0.0


def draw(seed: int, *, small: bool = False) -> Schedule:
    """Draw the schedule of a seed; `small`: of at most four members, and without the few things that take longest."""
    rng = random.Random(f"{seed}/stack")
    members = rng.choice([size for size in (2, 3, 3, 3, 3, 4, 4, 5, 5, 6, 7) if size <= (4 if small else 7)])
    setup = _setup(rng, members)
    latency = _latency(rng)
    net = Net(
        latency=latency,
        loss=rng.choice((0.0, 0.0, 0.0, 0.02, 0.1, 0.2)),
        duplicate=rng.choice((0.0, 0.0, 0.1)),
        reorder=rng.choice((0.0, 0.0, 0.2)),
        skew=rng.choice(("0", "0", "50ms", "5s")),
        offload=rng.random() < 0.3,
    )
    schedule = Schedule(seed=seed, setup=setup, net=net)
    suspect_ms = max(500, int(12 * schedule.latency_ms))
    multicast = random.Random(f"{seed}/multicast").random() < 0.1
    setup = msgspec.structs.replace(setup, suspect_ms=suspect_ms, multicast=multicast)
    setup = _at_its_bounds(random.Random(f"{seed}/bounds"), setup)
    work = tuple(_work(rng, setup, index) for index in range(members))
    if setup.slow != "block" and random.Random(f"{seed}/deaf").random() < 0.7:
        setup, work = _with_a_deaf_reader(random.Random(f"{seed}/deaf reader"), setup, work)
    odd = _odd(rng, setup) if members > 3 and rng.random() < 0.06 else None
    faults = tuple(sorted(_faults(rng, setup, members), key=lambda fault: fault.at))
    faults += tuple(_torn_writes(rng, setup, members))
    if setup.stability == "timestamp-ack":  # with physical clocks its latency is, by design, how far they are apart
        faults = tuple(fault for fault in faults if fault.kind != "clock")
        net = msgspec.structs.replace(net, skew="50ms" if net.skew == "5s" else net.skew)
    ways = random.Random(f"{seed}/mtu")
    net = msgspec.structs.replace(net, mtu=ways.choice((1_280, 1_500, 1_500, 1_500, 9_000, 65_535)))
    faults = tuple(
        msgspec.structs.replace(fault, silent=ways.random() < 0.5) if fault.kind == "narrow" else fault
        for fault in faults
    )
    faults = tuple(_on_disk(random.Random(f"{seed}/disk"), faults))
    faults = tuple(_with_a_stale_key(random.Random(f"{seed}/stale"), members, faults))
    restores = random.Random(f"{seed}/restore")
    work = tuple(msgspec.structs.replace(one, restore_ms=restores.choice((0, 0, 0, 0, 20, 300))) for one in work)
    asks, pieces = random.Random(f"{seed}/asks"), random.Random(f"{seed}/pieces")
    work = tuple(
        msgspec.structs.replace(one, asks_ms=asks.choice((0, 0, 0, 10, 200)), piece_ms=pieces.choice((0, 0, 0, 1, 40)))
        for one in work
    )
    faults += tuple(_again(random.Random(f"{seed}/again"), faults))
    faults += tuple(_one_after_the_other(random.Random(f"{seed}/rolling"), setup, members))
    faults = tuple(_together(random.Random(f"{seed}/together"), members, faults))
    faults = tuple(_in_one_way_or_another(random.Random(f"{seed}/leaving"), faults))
    faults += tuple(_cuts_here_and_there(random.Random(f"{seed}/cuts"), setup, members))
    if any(fault.how == "return" for fault in faults):
        setup = msgspec.structs.replace(setup, leave_ms=_SOON_MS)
    if random.Random(f"{seed}/gives up").random() < 0.2:
        work = tuple(_that_gives_up(random.Random(f"{seed}/giving up"), setup, work))
    if random.Random(f"{seed}/much").random() < 0.03 and suspect_ms == 500:
        work = tuple(_with_much_to_say(random.Random(f"{seed}/much to say"), work))
    lingers = random.Random(f"{seed}/end").random() < 0.125
    schedule = Schedule(seed=seed, setup=setup, net=net, work=work, faults=faults, odd=odd, lingers=lingers)
    schedule = _quicker(schedule) if small else schedule
    schedule = _with_fewer_founders(random.Random(f"{seed}/founders"), schedule)
    if random.Random(f"{seed}/bandwidth").random() < 0.04:
        schedule = _over_slow_links(random.Random(f"{seed}/slow links"), schedule)
    if random.Random(f"{seed}/declared").random() < 0.15:
        schedule = _undeclared(random.Random(f"{seed}/undeclared"), schedule)
    if random.Random(f"{seed}/times").random() < 0.04:
        schedule = _with_fixed_times(random.Random(f"{seed}/fixed times"), schedule)
    if random.Random(f"{seed}/views").random() < 0.08:
        return _without_views(schedule)
    if random.Random(f"{seed}/old state").random() < 0.04:
        schedule = _that_goes_back_in_time(random.Random(f"{seed}/going back"), schedule)
    return schedule


_LARGE_STATE_BYTES: Final = 32 << 20  # of one schedule in a hundred: each costs as much as ten others
_LESSER_STATE_BYTES: Final = _LARGE_STATE_BYTES // 8  # of as many
_LONGEST_MS: Final = 300  # of all latencies


def _quicker(schedule: Schedule) -> Schedule:
    """Let a large state be an eighth as large, and nobody send through a small window over the longest way."""
    replace = msgspec.structs.replace
    changes: dict[str, int] = {}
    if schedule.setup.snapshot_bytes == _LARGE_STATE_BYTES:
        changes["snapshot_bytes"] = _LESSER_STATE_BYTES
    if schedule.latency_ms >= _LONGEST_MS:
        changes |= {"window": 64, "window_bytes": 512 << 10}
        schedule = replace(schedule, work=tuple(replace(one, large=0) for one in schedule.work))
    odd = None if schedule.odd is None else replace(schedule.odd, **changes)
    return replace(schedule, setup=replace(schedule.setup, **changes), odd=odd)


def _on_disk(rng: random.Random, faults: Sequence[PlannedFault]) -> Iterator[PlannedFault]:
    """Draw what each crash does to what was written and not synced, and where a write is torn."""
    places: tuple[Literal["writing", "written", "synced"], ...] = ("writing", "written", "written", "synced")
    for fault in faults:
        if fault.kind == "crash":
            yield msgspec.structs.replace(fault, power=rng.random() < 0.4)
        elif fault.kind == "torn":
            yield msgspec.structs.replace(fault, power=rng.random() < 0.6, place=rng.choice(places))
        else:
            yield fault


def _with_a_stale_key(rng: random.Random, members: int, faults: Sequence[PlannedFault]) -> Iterator[PlannedFault]:
    """Let one who is to replace its key not do so, where the others are a majority without it, whatever happens."""
    can_miss_one = members > 2 and not any(fault.until is None or fault.forgets for fault in faults)
    for fault in faults:
        stale = fault.kind == "keys" and can_miss_one and rng.random() < 0.5
        can_miss_one = can_miss_one and not stale
        yield msgspec.structs.replace(fault, stale=True) if stale else fault


def _again(rng: random.Random, faults: Sequence[PlannedFault]) -> Iterator[PlannedFault]:
    """Let something befall the same members again and again: a process that cannot stay up, a link that flaps."""
    some = [
        fault
        for fault in faults
        if fault.kind in ("crash", "pause", "partition", "cut", "link")
        and fault.until is not None
        and not fault.forgets
    ]
    if some and rng.random() < 0.12:
        fault = rng.choice(some)
        assert fault.until is not None
        every = fault.until - fault.at + rng.choice((20, 100, 400, 1_000))
        for turn in range(1, rng.choice((3, 4, 6))):
            yield msgspec.structs.replace(fault, at=fault.at + turn * every, until=fault.until + turn * every)


def _together(rng: random.Random, members: int, faults: Sequence[PlannedFault]) -> Iterator[PlannedFault]:
    """Let what befalls one befall several at once, or everyone: machines that stand still together, a planned stop."""
    for fault in faults:
        can = fault.kind in ("pause", "leave") and fault.until is not None
        if can and rng.random() < 0.25:
            some = rng.sample(range(members), rng.choice((members, members, max(2, members - 1), 2)))
            yield msgspec.structs.replace(fault, members=tuple(some))
        else:
            yield fault


_SOON_MS: Final = 500  # so long leaving may wait where members return: they are back before the calm


def _in_one_way_or_another(rng: random.Random, faults: Sequence[PlannedFault]) -> Iterator[PlannedFault]:
    """Let members leave in each of the ways in which an application may end."""
    ways: tuple[How, ...] = ("", "", "hurry", "error", "cancel", "return")
    for fault in faults:
        how = rng.choice(ways if fault.until is not None else ways[:-1])
        yield msgspec.structs.replace(fault, how=how) if fault.kind == "leave" else fault


def _cuts_here_and_there(rng: random.Random, setup: Setup, members: int) -> Iterator[PlannedFault]:
    """Cut some of all links, each in one direction: who hears whom is a web, until all heal within a moment."""
    if rng.random() < 0.06:
        scale = setup.suspect_ms / 500
        at = rng.randrange(0, 4_000)
        until, share = at + int(rng.choice((600, 2_000, 4_000)) * scale), rng.choice((0.15, 0.3, 0.5))
        for one in range(members):
            for other in range(members):
                if one != other and rng.random() < share:
                    begins, ends = at + rng.choice((0, 0, 50, 300)), until + rng.choice((0, 0, 50, 400))
                    yield PlannedFault(kind="cut", at=begins, until=ends, members=(one,), others=(other,))


def _that_gives_up(rng: random.Random, setup: Setup, work: Sequence[Work]) -> Iterator[Work]:
    """Let applications wait for an event, or for room, for a while only, and fail with their states at first."""
    has_state = setup.snapshot_bytes is not None
    failing = [rng.randrange(len(work)) for _ in range(rng.choice((0, 1, 2)))] if has_state else []
    for member, one in enumerate(work):
        yield msgspec.structs.replace(
            one,
            reads_ms=rng.choice((0, 0, 20, 200)),
            sends_ms=rng.choice((0, 0, 5, 100)),
            snapshot_fails=failing.count(member),
            restore_fails=rng.choice((0, 0, 0, 1, 2)) if has_state else 0,
        )


def _with_much_to_say(rng: random.Random, work: Sequence[Work]) -> Iterator[Work]:
    """Let some send ten times as much as usual, also by the hundred."""
    for one in work:
        much = rng.random() < 0.6
        messages, many, pause_ms = rng.choice((150, 300)), rng.choice((1, 1, 100)), rng.choice((0, 1, 5))
        yield msgspec.structs.replace(one, messages=messages, many=many, pause_ms=pause_ms, large=0) if much else one


def _at_its_bounds(rng: random.Random, setup: Setup) -> Setup:
    """Let windows and inboxes be as small as they may be; not over long ways, where that would take minutes."""
    if rng.random() < 0.06 and setup.suspect_ms == 500:
        return msgspec.structs.replace(
            setup,
            window=rng.choice((1, 1, 2)),
            window_bytes=rng.choice((1, setup.window_bytes)),
            inbox_bytes_max=rng.choice((1, setup.inbox_bytes_max)),
        )
    return setup


def _with_fewer_founders(rng: random.Random, schedule: Schedule) -> Schedule:
    """Let only some found a group that is discovered; the others come when it is there, and then all else happens.

    The others are at most half as many, since more than that would found a group of their own where they hear nobody.
    """
    replace, setup = msgspec.structs.replace, schedule.setup
    if not setup.discover or schedule.odd is not None or any(fault.forgets for fault in schedule.faults):
        return schedule
    if schedule.members < 3 or rng.random() < 0.5:
        return schedule
    founders = rng.randrange(-(-2 * schedule.members // 3), schedule.members)
    found = max(work.start_ms for work in schedule.work[:founders]) + 4 * setup.suspect_ms
    late = tuple(replace(work, start_ms=work.start_ms + found) for work in schedule.work[founders:])
    faults = tuple(
        replace(fault, at=fault.at + found, until=None if fault.until is None else fault.until + found)
        for fault in schedule.faults
    )
    setup = replace(setup, founders=founders)
    return replace(schedule, setup=setup, work=(*schedule.work[:founders], *late), faults=faults)


def _over_slow_links(rng: random.Random, schedule: Schedule) -> Schedule:
    """Let each link carry so much and no more, and a window be what it carries in a tenth of a second."""
    if (schedule.setup.snapshot_bytes or 0) > 300_000 or schedule.latency_ms > _SHORT_MS:
        return schedule
    replace = msgspec.structs.replace
    bandwidth = rng.choice((2_000_000, 10_000_000, 50_000_000))
    window_bytes = min(schedule.setup.window_bytes, bandwidth // 80)
    schedule = replace(
        schedule,
        net=replace(schedule.net, bandwidth=bandwidth),
        setup=replace(schedule.setup, window_bytes=window_bytes),
        odd=None if schedule.odd is None else replace(schedule.odd, window_bytes=window_bytes),
    )
    return _suspecting_after(schedule, max(schedule.setup.suspect_ms, int(12 * schedule.latency_ms)))


_SHORT_MS: Final = 60  # a latency


def _suspecting_after(schedule: Schedule, suspect_ms: int, **others: bool) -> Schedule:
    replace = msgspec.structs.replace
    odd = None if schedule.odd is None else replace(schedule.odd, suspect_ms=suspect_ms, **others)
    return replace(schedule, setup=replace(schedule.setup, suspect_ms=suspect_ms, **others), odd=odd)


def _undeclared(rng: random.Random, schedule: Schedule) -> Schedule:
    """Let nobody say how many found the group, so that there may be several, which become one when they meet."""
    setup = schedule.setup
    if not setup.discover or setup.founders or setup.partition == "each-side" or schedule.odd is not None:
        return schedule
    faults = schedule.faults
    if schedule.members > 2 and rng.random() < 0.6:
        side = rng.sample(range(schedule.members), rng.randrange(1, schedule.members // 2 + 1))
        apart = PlannedFault(kind="partition", at=0, until=rng.choice((1_500, 2_500, 4_000)), members=tuple(side))
        faults = (apart, *faults)
    return msgspec.structs.replace(schedule, setup=msgspec.structs.replace(setup, undeclared=True), faults=faults)


def _with_fixed_times(rng: random.Random, schedule: Schedule) -> Schedule:
    """Let the members be told after what time a silent one is dead, rather than measure that."""
    return _suspecting_after(schedule, schedule.setup.suspect_ms * rng.choice((1, 1, 2)), fixed_times=True)


def _that_goes_back_in_time(rng: random.Random, schedule: Schedule) -> Schedule:
    """Let a few things happen, and then a member start again with a state folder that knows nothing of some of them.

    All others are there then, and remember: "as long as it reaches those who know what it has forgotten". Over the
    longest ways it does not reach them before it decides, if it can do that alone.
    """
    if schedule.latency_ms >= _LONGEST_MS:
        return schedule
    scale = schedule.setup.suspect_ms / 500
    if schedule.members % 2 and schedule.setup.partition == "majority" and rng.random() < 0.4:
        return msgspec.structs.replace(schedule, faults=tuple(_two_votes(rng, schedule, scale)))
    kept = [
        fault
        for fault in schedule.faults
        if fault.until is not None and not fault.forgets and not fault.stale and fault.kind not in ("disk", "torn")
    ]
    before = tuple(kept[: rng.choice((0, 1, 2, 2))])
    member = rng.randrange(schedule.members)
    met = max(work.start_ms for work in schedule.work) + 1_000 * scale
    last = max([met, *(fault.until for fault in before if fault.until is not None)])
    at = int(last + rng.choice((700, 1_500, 2_500)) * scale)
    back = PlannedFault(
        kind="crash",
        at=at,
        until=at + int(rng.choice((20, 100, 600, 2_000)) * scale),
        members=(member,),
        old_ms=rng.randrange(1, at),
        lies=rng.random() < 0.5,
        power=True,
    )
    before += tuple(fault for fault in _in_the_meantime(rng, schedule, back))
    return msgspec.structs.replace(schedule, faults=(*before, back))


def _two_votes(rng: random.Random, schedule: Schedule, scale: float) -> Iterator[PlannedFault]:
    """Let one decide with half of the others, forget that, and come to the other half, which needs it to decide too."""
    one, *others = rng.sample(range(schedule.members), schedule.members)
    with_it, without_it = others[: len(others) // 2], others[len(others) // 2 :]
    met = max(work.start_ms for work in schedule.work) + int((1_000 + rng.choice((0, 500))) * scale)
    yield PlannedFault(kind="crash", at=met, until=met + int(1_500 * scale), members=(others[0],))  # two views more
    parted = met + int(4_000 * scale)
    turned = parted + int(rng.choice((1_500, 2_500)) * scale)
    yield PlannedFault(kind="partition", at=parted, until=turned, members=tuple(without_it))
    yield PlannedFault(kind="partition", at=turned, until=turned + int(3_000 * scale), members=tuple(with_it))
    yield PlannedFault(
        kind="crash",
        at=turned,
        until=turned + int(rng.choice((20, 300)) * scale),
        members=(one,),
        old_ms=turned - met + rng.choice((1, 300)),
        lies=rng.random() < 0.5,
        power=True,
    )


def _in_the_meantime(rng: random.Random, schedule: Schedule, back: PlannedFault) -> Iterator[PlannedFault]:
    """Let one start again once or twice between the copy and the crash, so that there is something to forget."""
    copied = back.at - back.old_ms
    others = [member for member in range(schedule.members) if member not in back.members]
    for member in (*back.members, rng.choice(others)):
        at = copied + 50 + rng.randrange(back.old_ms)
        gone = int(rng.choice((30, 800)) * schedule.setup.suspect_ms / 500)
        if rng.random() < 0.5 and at + gone < back.at - 600 * schedule.setup.suspect_ms / 500:
            yield PlannedFault(kind="crash", at=at, until=at + gone, members=(member,))


def _one_after_the_other(rng: random.Random, setup: Setup, members: int) -> Iterator[PlannedFault]:
    """Start every member again, in turn, as for an upgrade; not where ways are long, since it would take minutes."""
    if rng.random() < 0.06 and setup.suspect_ms <= 1_000:
        kind: Kind = rng.choice(("leave", "crash"))
        away, between = rng.choice((100, 600)) if kind == "crash" else 1_500, rng.choice((50, 500, 1_500))
        for turn, member in enumerate(rng.sample(range(members), members)):
            at = 1_500 + turn * (away + between)
            yield PlannedFault(kind=kind, at=at, until=at + away, members=(member,))


def _without_views(schedule: Schedule) -> Schedule:
    """Let the members of a group never change: nothing can be discovered, transferred or decided there.

    One of them may end, and be started again, once all have met it.
    """
    setup = msgspec.structs.replace(
        schedule.setup,
        views=False,
        discover="",
        founders=0,
        undeclared=False,
        fixed_times=False,
        snapshot_bytes=None,
        partition="majority",
        slow="block",
    )
    met = max(work.start_ms for work in schedule.work) + 1_000 + int(40 * schedule.latency_ms)
    ends = [fault for fault in schedule.faults if fault.kind in ("crash", "torn", "leave")]
    end = [
        msgspec.structs.replace(
            fault,
            kind="leave" if fault.kind == "leave" else "crash",  # nothing is written that could be torn
            at=met + fault.at,
            until=None if fault.until is None else met + fault.until,
            members=fault.members[:1],
        )
        for fault in ends[:1]
    ]
    others = [fault for fault in schedule.faults if fault not in ends]
    faults = end + [one for one in others if one.kind not in ("cut", "partition") or one.at > met or not ends]
    return msgspec.structs.replace(schedule, setup=setup, faults=tuple(faults), odd=None)


def _setup(rng: random.Random, members: int) -> Setup:
    ordering = rng.choice(ORDERINGS)
    on_recovery = ordering in ON_RECOVERY
    slow: Literal["block", "drop", "lag"] = rng.choice(("block", "block", "block", "drop"))
    if ordering == "causal-blocks" and rng.random() < 0.3:
        slow = "lag"
    return Setup(
        ordering=ordering,
        stability=rng.choice(STABILITIES) if on_recovery and rng.random() < 0.5 else "vector-ack",
        safe=on_recovery and rng.random() < 0.35,
        partition="each-side" if rng.random() < 0.15 else "majority",
        slow=slow,
        key=rng.random() < 0.5,
        discover=rng.choice(("", "", "", "", "multicast", "peers")),
        window=rng.choice((2, 8, 64, 64)),
        window_bytes=rng.choice((4_000, 512 << 10, 512 << 10)),
        inbox_bytes_max=rng.choice((2_000, 20_000, 200_000, 8 << 20)),
        snapshot_bytes=_state_bytes(rng),
    )


def _state_bytes(rng: random.Random) -> int | None:
    chance = rng.random()
    if chance < 0.98:
        return rng.choice((None, 0, 0, 0, 30_000, 300_000))
    return _LESSER_STATE_BYTES if chance < 0.99 else _LARGE_STATE_BYTES


def _latency(rng: random.Random) -> str:
    usual = (
        "uniform 1ms 5ms",
        "uniform 1ms 5ms",
        "fixed 2ms",
        "uniform 100us 1ms",
        "exponential 4ms",
        "uniform 1ms 20ms",
    )
    return rng.choice(usual) if rng.random() < 0.85 else rng.choice(("uniform 40ms 60ms", "fixed 110ms", "fixed 300ms"))


def _work(rng: random.Random, setup: Setup, index: int) -> Work:
    start = 0 if rng.random() < 0.6 else rng.randrange(0, 1_500)
    if setup.discover and index == 0 and rng.random() < 0.4:
        start = rng.randrange(1_000, 3_000)  # a late seed
    deaf = (0, 0)
    if rng.random() < 0.12:
        since = rng.randrange(500, 3_000)
        deaf = (since, since + rng.choice((300, 1_000, 2_500)))
    return Work(
        start_ms=start,
        messages=rng.choice((0, 3, 8, 15, 30)),
        pause_ms=rng.choice((0, 1, 20, 60, 150)),
        size=rng.choice((40, 40, 200, 1_000)),
        large=rng.choice((0, 0, 0, 4)),
        large_bytes=rng.choice((3_000, 20_000, 120_000)),
        many=rng.choice((1, 1, 1, 5)),
        batches=rng.random() < 0.3,
        read_pause_ms=rng.choice((0, 0, 0, 5, 40)),
        deaf_ms=deaf,
    )


def _with_a_deaf_reader(rng: random.Random, setup: Setup, work: tuple[Work, ...]) -> tuple[Setup, tuple[Work, ...]]:
    """Let one read nothing for longer than its group waits, while others fill its inbox; else policies do nothing."""
    reader = rng.randrange(len(work))
    since = work[reader].start_ms + rng.randrange(500, 1_500)
    deaf = msgspec.structs.replace(work[reader], deaf_ms=(since, since + rng.choice((1_500, 2_500, 3_500))))
    busy = [msgspec.structs.replace(one, messages=30, pause_ms=60, size=max(200, one.size), large=0) for one in work]
    setup = msgspec.structs.replace(setup, inbox_bytes_max=2_000)
    return setup, (*busy[:reader], deaf, *busy[reader + 1 :])


def _odd(rng: random.Random, setup: Setup) -> Setup:
    """Draw how one member may be set up differently by mistake."""
    others = [ordering for ordering in ORDERINGS if ordering != setup.ordering]
    changes = [
        msgspec.structs.replace(setup, ordering=rng.choice(others), safe=False, slow="block"),
        msgspec.structs.replace(setup, partition="majority" if setup.partition == "each-side" else "each-side"),
    ]
    if setup.ordering in ON_RECOVERY:
        changes.append(msgspec.structs.replace(setup, safe=not setup.safe))
        changes.append(
            msgspec.structs.replace(setup, stability="train" if setup.stability != "train" else "vector-ack")
        )
    return rng.choice(changes)


def _torn_writes(rng: random.Random, setup: Setup, members: int) -> Iterator[PlannedFault]:
    """Draw a crash in the middle of a write; another member crashes before, so that there is something to write."""
    if rng.random() < 0.1:
        one, other = rng.sample(range(members), 2)
        at, scale = rng.randrange(500, 4_000), setup.suspect_ms / 500
        yield PlannedFault(kind="crash", at=at, until=at + int(1_500 * scale), members=(other,))
        yield PlannedFault(kind="torn", at=at, until=at + int(2_500 * scale), members=(one,))


def _faults(rng: random.Random, setup: Setup, members: int) -> Iterator[PlannedFault]:
    scale = setup.suspect_ms / 500
    chaos = int(4_000 * scale)
    gone: set[int] = set()  # for good; a majority must remain
    kinds: list[Kind] = [
        *("crash", "crash", "crash", "pause", "pause", "partition", "partition", "cut", "cut", "link"),
        *("narrow", "clock", "disk", "leave", "cancel", "keys", "replay", "forge"),
    ]
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4, 5))):
        kind = rng.choice(kinds)
        at = rng.randrange(0, chaos)
        until = at + int(rng.choice((20, 100, 300, 600, 1_000, 2_000)) * scale)
        one, *rest = rng.sample(range(members), members)
        spare = (members - 1) // 2 - len(gone)  # how many more may be gone
        for_good = spare > 0 and rng.random() < 0.25
        match kind:
            case "crash":
                everyone = rng.random() < 0.1
                some = tuple(range(members)) if everyone else (one, *(two for two in rest if rng.random() < 0.15))
                forgets = len(some) <= spare and rng.random() < 0.2  # a name that forgets is a voter less
                gone.update(some if forgets else ())
                if for_good and len(some) == 1 and not forgets:
                    gone.add(one)
                    yield PlannedFault(kind=kind, at=at, members=some)
                else:
                    yield PlannedFault(kind=kind, at=at, until=until, members=some, forgets=forgets)
            case "pause":
                yield PlannedFault(kind=kind, at=at, until=until, members=(one,))
            case "partition":
                side = (one, *(two for two in rest[1:] if rng.random() < 0.35))
                if for_good and len(side) <= spare:
                    gone.update(side)
                    yield PlannedFault(kind=kind, at=at, members=side)
                else:
                    yield PlannedFault(kind=kind, at=at, until=until, members=side)
            case "cut" | "link" | "narrow":
                two = tuple(rest) if rng.random() < 0.3 else tuple(rest[: rng.choice((1, 1, 2))])
                source, target = ((one,), two) if rng.random() < 0.5 else (two, (one,))
                if for_good and kind == "cut":
                    gone.add(one)
                end = None if for_good and kind != "link" else until
                both = rng.random() < 0.4
                share, delay = rng.choice(((0.3, 0), (0.6, 0), (0.0, int(60 * scale)), (0.2, int(30 * scale))))
                size = rng.choice((1_280, 1_420)) if kind == "narrow" else 0
                for ends in ((source, target), (target, source)) if both else ((source, target),):
                    yield PlannedFault(
                        kind=kind,
                        at=at,
                        until=end,
                        members=ends[0],
                        others=ends[1],
                        share=share if kind == "link" else 0.0,
                        delay_ms=delay if kind == "link" else 0,
                        size=size,
                    )
            case "clock":
                day = 86_400_000
                yield PlannedFault(
                    kind=kind, at=at, until=at, members=(one,), delay_ms=rng.choice((day, -day, 60_000, -60_000))
                )
            case "disk":
                yield PlannedFault(kind=kind, at=at, until=until, members=(one,))
            case "leave":
                if for_good:
                    gone.add(one)
                yield PlannedFault(kind=kind, at=at, until=None if for_good else until + 1_500, members=(one,))
            case "cancel":
                yield PlannedFault(kind=kind, at=at, until=at, members=(one,))
            case "keys" | "replay" | "forge":
                if setup.key:
                    yield PlannedFault(kind=kind, at=at, until=at + 600 if kind == "keys" else until, members=(one,))
