"""The pieces of membership one by one, and small groups in which one thing happens."""

from __future__ import annotations

import random
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pyarrow.parquet as pq
import pytest

from antiphon.errors import LocalProtocolError, UsageError
from antiphon.protocol.machine import (
    MILLISECOND,
    SECOND,
    Deliver,
    Drop,
    Effect,
    Input,
    Install,
    Instant,
    Leave,
    Persist,
    Receive,
    RestoreChunk,
    Send,
    StandingChanged,
    Submit,
    Wake,
)
from antiphon.protocol.membership.agreement import ViewAgreement
from antiphon.protocol.membership.connectivity import LinkReports, broken_links, connected
from antiphon.protocol.membership.failure_detector import FailureDetector
from antiphon.protocol.membership.flush import Flush
from antiphon.protocol.membership.messages import (
    Accept,
    Acceptance,
    Alive,
    Commit,
    Fetch,
    Fill,
    MembershipCodec,
    MembershipMessage,
    Newer,
    NoSnapshot,
    Prepare,
    Refusal,
    SnapshotChunk,
    SnapshotRequest,
    State,
    Superseded,
    Vote,
)
from antiphon.protocol.membership.outbox import OwnProcess
from antiphon.protocol.membership.partitionable import PartitionableAgreement, outranks
from antiphon.protocol.membership.process import MembershipOptions, Process, Saved
from antiphon.protocol.membership.views import (
    NO_BALLOT,
    Change,
    Cut,
    GroupView,
    ViewId,
    before_the_first,
    incarnation_of,
    name_of,
    process,
)
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.ordering import ORDERINGS
from antiphon.protocol.ordering.abcast import Abcast
from antiphon.protocol.ordering.two_phase import Claim, TimedData, TwoPhaseOptions, settle
from antiphon.protocol.ordering.two_phase.takeover import takeover
from antiphon.protocol.parts import PartContext
from antiphon.protocol.rules import replaced
from antiphon.protocol.timers import Backoff
from antiphon.protocol.wire import Malformed, group_of, group_tag
from antiphon.sim.cluster import Node
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Fault, Scenario, Workload, from_table, to_toml
from antiphon.sim.view_cluster import ViewCluster
from antiphon.sim.view_schedules import QUICK, flaw, flaw_of
from antiphon.trace.writer import write_trace
from support.mutants_membership import ACCEPTING_AT_ONCE, SAFE_BY_BODY, WITHOUT_JOINER_LIMIT, WithoutTheSendersStamp

# Who is who


def test_a_process_is_a_name_and_an_incarnation() -> None:
    assert process(3, 1) == 3
    assert process(3, 3) == 20_003
    assert (name_of(20_003), incarnation_of(20_003)) == (3, 3)


@pytest.mark.parametrize(
    ("number", "members", "names", "enough"),
    [
        (1, (0, 1, 2), {0, 1}, True),
        (1, (0, 1, 2), {2}, False),
        (1, (10_000, 1), {0}, True),  # half with the first, by name
        (1, (0, 1), {1}, False),
        (1, (0, 1, 2, 3), {2, 3}, False),
        (1, (0, 1, 2, 3), {0, 3}, True),
        (1, (4,), set(), False),
        (0, (0, 1), {0}, False),  # nobody is first before the first view
        (0, (0, 1, 2), {1, 2, 7}, True),
    ],
)
def test_a_quorum_is_more_than_half_or_half_with_the_first(
    number: int, members: tuple[int, ...], names: set[int], enough: bool
) -> None:
    view = GroupView(number, NO_BALLOT, members, (0,) * len(members), 0)
    assert view.is_quorum(names) is enough


def test_before_the_first_view_nobody_is_a_member() -> None:
    assert not before_the_first([0, 1]).lists(0)
    assert GroupView(1, (1, 0), (0, 1), (0, 0), 0).lists(0)


def test_views_of_one_number_have_different_tags() -> None:
    assert GroupView(2, (1, 0), (0,), (0,), 1).tag != GroupView(2, (1, 1), (0,), (0,), 1).tag


# Messages


def long_message() -> Prepare:
    members = tuple(range(300))
    return Prepare((1, 2), GroupView(7, (1, 1), members, tuple(members), 3))


def test_long_messages_come_in_pieces_and_lost_ones_are_made_good_by_sending_all_again() -> None:
    post, other = MembershipCodec("g", 100), MembershipCodec("g", 100)
    datagrams = post.write(4, long_message())
    assert len(datagrams) > 3
    first_try = [message for datagram in datagrams[1:] for message in other.read(datagram)[1]]
    assert first_try == []
    (message,) = [message for datagram in datagrams[:2] for message in other.read(datagram)[1]]
    assert message == long_message()
    assert post.write(4, Alive((1, (1, 0)), "member")) == other.write(4, Alive((1, (1, 0)), "member"))


def test_pieces_that_do_not_fit_together_are_garbage() -> None:
    with pytest.raises(Malformed):
        MembershipCodec("g", 50).read(MembershipCodec("g", 100).write(4, long_message())[0])


def test_unfinished_texts_are_few() -> None:
    post, other = MembershipCodec("g", 100), MembershipCodec("g", 100)
    for number in range(20):
        text = Prepare((number, 0), long_message().view)
        other.read(post.write(4, text)[0])
    assert other.unfinished(4) <= 4


# Who is alive


def test_silence_is_suspected_a_later_life_ends_the_earlier_one_and_time_can_be_given() -> None:
    options = MembershipOptions(heartbeat_ns=10, suspect_ns=100)
    peers = FailureDetector(OwnProcess(0, 0), [1, 2], options, lambda pause: pause, now=0)
    assert not peers.suspected(1, 100)
    assert peers.suspected(1, 101)
    assert peers.heard(1, 90)
    assert peers.lives(1, 101)
    assert peers.heard(process(1, 2), 102)
    assert not peers.lives(1, 103)
    assert not peers.heard(1, 104)  # a datagram of the earlier life
    peers.refresh(500)
    assert not peers.suspected(2, 550)


# Unfinished messages of a total order


def claim(clock: int, next_mid: list[int], provisional: dict, final: dict | None = None) -> Claim:
    return Claim(
        clock,
        next_mid,
        [(*message, *stamp) for message, stamp in provisional.items()],
        [(*message, *stamp) for message, stamp in (final or {}).items()],
    )


def test_the_greatest_claim_decides_and_who_lacks_the_message_claims_its_clock() -> None:
    one = claim(5, [2, 1, 1], {(0, 1): (3, 0)})
    other = claim(8, [1, 1, 1], {})
    assert settle({0: one, 1: other}, safe=False) == [(0, 1, 9, 1, True)]


def test_what_a_survivor_has_delivered_or_decided_needs_no_settling() -> None:
    waits = claim(5, [2, 1], {(0, 1): (3, 0)})
    delivered = claim(7, [2, 1], {})
    decided = claim(7, [2, 1], {}, {(0, 1): (6, 1)})
    assert settle({0: waits, 1: delivered}, safe=False) == []
    assert settle({0: waits, 1: decided}, safe=False) == []


def test_safe_messages_go_behind_all_that_is_known_but_before_their_senders_next() -> None:
    one = claim(9, [2, 1], {(0, 1): (3, 0)})
    assert settle({0: one}, safe=True) == [(0, 1, 10, 0, True)]
    one = claim(9, [3, 1], {(0, 1): (3, 0)}, {(0, 2): (6, 1)})
    assert settle({0: one}, safe=True) == [(0, 1, 6, 1, False)]
    one = claim(9, [4, 1], {(0, 1): (3, 0)}, {(0, 2): (6, 1), (0, 3): (8, 1)})
    assert settle({0: one}, safe=True) == [(0, 1, 6, 1, False)], "before the first of them"
    one = claim(9, [3, 9], {(0, 2): (3, 0)}, {(0, 1): (4, 1), (1, 8): (6, 1)})
    assert settle({0: one}, safe=True) == [(0, 2, 10, 0, True)], "an earlier one, and those of others, do not matter"


# One process


def alone(name: int = 2, saved: bytes | None = None) -> Process:
    return Process(name, range(3), GroupOptions(), QUICK, random.Random(1), 0, saved)


def hear(one: Process, sender: int, message: object, now: Instant = 1) -> list[Effect]:
    effects = []
    for datagram in MembershipCodec(one.lifecycle.options.group, QUICK.piece_bytes).write(sender, message):  # type: ignore[arg-type]
        effects += one.handle(Receive(datagram), now)
    return effects


def test_who_has_left_cannot_send() -> None:
    one = alone()
    one.handle(Leave(), 1)
    assert one.left
    with pytest.raises(LocalProtocolError, match="has left the group"):
        one.handle(Submit(b"too late"), 2)


def test_what_is_promised_is_persisted_before_it_is_said() -> None:
    one = alone()
    one.handle(Wake(), 0)
    effects = hear(one, 0, Prepare((4, 0), one.view))
    kinds = [type(effect).__name__ for effect in effects]
    assert kinds.index("Persist") < kinds.index("Send")
    saved = next(effect.state for effect in effects if type(effect).__name__ == "Persist")
    again = alone(saved=saved)
    assert again.id == process(2, 2)
    again.handle(Wake(), 0)
    assert again.lifecycle.agreement.promised == (4, 0)


def test_what_is_accepted_is_persisted_before_the_vote_is_said() -> None:
    """The promise was written down before, so what is written now is the acceptance."""
    one = alone()
    one.handle(Wake(), 0)
    hear(one, 0, Prepare((4, 0), one.view))
    first = GroupView(1, (4, 0), (0, 1, 2), (0, 0, 0), 0)
    accept = Accept((4, 0), Change(one.view.id, first, Cut((0, 0, 0), (0, 0, 0))))
    reader = MembershipCodec(one.lifecycle.options.group, QUICK.piece_bytes)

    def voted(effect: Effect) -> bool:
        return isinstance(effect, Send) and any(isinstance(said, Vote) for said in reader.read(effect.datagram)[1])

    effects = hear(one, 0, accept)
    vote = next(place for place, effect in enumerate(effects) if voted(effect))
    (saved,) = (effect.state for effect in effects[:vote] if isinstance(effect, Persist))
    again = alone(saved=saved)
    assert again.lifecycle.agreement.accepted == Acceptance((4, 0), accept.change)
    effects = hear(one, 0, accept, now=2)  # its vote was lost
    assert any(map(voted, effects))
    assert not any(isinstance(effect, Persist) for effect in effects), "nothing new to write down"


def test_a_change_of_view_waits_for_the_disk_twice_at_each_member() -> None:
    """For the promise and for the acceptance. That a view has begun may wait: nothing is promised in it yet."""

    class Counted(Watched):
        def __init__(self, *args: Any) -> None:
            self.waits: dict[int, list[bool]] = defaultdict(list)
            super().__init__(*args)

        def _carry_out(self, me: int, effect: Effect) -> None:
            if isinstance(effect, Persist):
                self.waits[me].append(not effect.may_wait)
            super()._carry_out(me, effect)

    group = Counted(scenario(Fault(kind="crash", at="500ms", member=3), members=4))
    group.kernel.at(400 * MILLISECOND, lambda _: group.waits.clear(), None)
    ran(group)
    assert [group.views(name) for name in range(3)] == [[(0, 1, 2, 3), (0, 1, 2)]] * 3
    assert dict(group.waits) == {name: [True, True, False] for name in range(3)}


def test_a_new_view_that_was_not_on_the_disk_yet_is_decided_again() -> None:
    """All lose their power before it is. It is decided again, and what it had promised is not lost."""
    faults = [Fault(kind="crash", at="320ms", member=name, until="900ms") for name in range(3)]
    group = Watched(scenario(Fault(kind="leave", at="200ms", member=3), *faults, members=4))
    known: dict[int, Saved] = {}

    def look(_: None) -> None:
        known.update({name: msgspec.msgpack.decode(state, type=Saved) for name, state in group._disk.items()})

    group.kernel.at(890 * MILLISECOND, look, None)
    ran(group)
    assert all(group.views(name)[:2] == [(0, 1, 2, 3), (0, 1, 2)] for name in range(3))
    assert [known[name].view.number for name in range(4)] == [1, 1, 1, 2]
    assert all(known[name].accepted is not None for name in range(3))
    assert group.processes[-1].view.number > 2
    (again,) = {process.view.members for process in group.running().values()}
    assert {incarnation_of(member) for member in again} == {2}


def test_a_leaver_tells_the_others_at_once() -> None:
    group = Watched(scenario(members=3, messages=0, limit="300ms"))
    group.run()
    one = group.nodes[1].member
    assert isinstance(one, Process)
    now = 300 * MILLISECOND
    one.handle(Wake(), now)  # so that nothing else is due now
    reader = MembershipCodec(one.lifecycle.options.group, QUICK.piece_bytes)
    effects = one.handle(Leave(), now + 1)
    said = [message for effect in effects if isinstance(effect, Send) for message in reader.read(effect.datagram)[1]]
    assert any(isinstance(message, Alive) and message.standing == "leaver" for message in said)


def test_a_joiner_that_offered_itself_and_was_passed_over_comes_back_under_a_new_incarnation() -> None:
    one = alone()
    one.handle(Wake(), 0)
    hear(one, 0, Newer(GroupView(1, (1, 0), (0, 1), (0, 0), 0)))
    assert one.id == 2  # it has offered nothing yet
    hear(one, 0, Prepare((2, 0), one.view))
    hear(one, 0, Newer(GroupView(3, (3, 0), (0, 1), (0, 0), 2)))
    assert one.id == process(2, 2)  # view 2 may have listed the earlier one


ONE = GroupView(1, (1, 0), (0, 1, 2), (0, 0, 0), 0)


def state(accepted: Acceptance | None, reach: tuple[int, ...] = (0, 0, 0)) -> State:
    return State((9, 0), ONE.id, "member" if reach else "joiner", accepted, reach, 0, b"")


def change(ballot: tuple[int, int]) -> Acceptance:
    return Acceptance(ballot, Change(ONE.id, GroupView(2, ballot, (0, 1), (0, 0), 2), Cut((0, 0, 0), (0, 0, 0))))


def test_what_was_accepted_with_the_highest_ballot_binds() -> None:
    agreement = ViewAgreement(ONE, NO_BALLOT, None, 0)
    older, newer = change((3, 1)), change((5, 0))
    assert agreement.bound({0: state(older), 1: state(newer), 2: state(None)}) == newer
    assert agreement.bound({0: state(None)}) is None


def test_an_acceptance_without_its_messages_binds_only_if_there_is_no_quorum_without_it() -> None:
    agreement = ViewAgreement(ONE, NO_BALLOT, None, 0)
    lost = change((5, 2))
    amnesiac = state(lost, reach=())
    assert set(agreement.states_that_bind({0: state(None), 1: state(None), 10_002: amnesiac})) == {0, 1}
    assert set(agreement.states_that_bind({1: state(None), 10_002: amnesiac})) == {1, 10_002}
    holder = state(lost)
    assert set(agreement.states_that_bind({0: state(None), 1: holder, 10_002: amnesiac})) == {0, 1, 10_002}


@pytest.mark.parametrize(
    ("awaiting", "answered", "members", "elders"),
    [
        ((), (0, 1, 2, 3), (0, 1, 2, 3), 3),
        ((1,), (0, 1, 2, 3), (0, 2, 1, 3), 3),  # who has the state goes first
        ((1, 2), (0, 1, 2, 3), (0, 1), 2),
        ((2,), (0, 2, 3), (0, 2), 2),
        ((0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3), 3),  # nobody has it any more
    ],
)
def test_a_view_has_at_most_as_many_without_the_state_as_with_it(
    awaiting: tuple[int, ...], answered: tuple[int, ...], members: tuple[int, ...], elders: int
) -> None:
    agreement = ViewAgreement(ONE, NO_BALLOT, None, 0)
    states = {other: state(None, (0, 0, 0) if other < 3 else ()) for other in answered}
    for other in awaiting:
        states[other] = msgspec.structs.replace(states[other], standing="awaiting")
    agreement.round = cast("Any", SimpleNamespace(ballot=(9, 0), states=states))
    decided = agreement.choose(GroupOptions(ordering="fifo"), (), lambda size: True)
    assert decided is not None
    assert (decided.new.members, decided.new.elders) == (members, elders)


@pytest.mark.parametrize("key", ["heartbeat_ns", "retry_ns", "piece_bytes"])
def test_times_are_checked(key: str) -> None:
    with pytest.raises(UsageError, match=key):
        msgspec.structs.replace(QUICK, **{key: 0}).check()
    with pytest.raises(UsageError, match="suspect_ns"):
        MembershipOptions(heartbeat_ns=100, suspect_ns=150).check()


def test_what_cannot_work_with_views_is_refused() -> None:
    skipping = GroupOptions(ordering="causal-blocks", ordering_options={"skip_after_ns": 5})
    with pytest.raises(UsageError, match="skip_after_ns"):
        Process(0, range(3), skipping, QUICK, random.Random(1), 0)
    with pytest.raises(UsageError, match="name"):
        alone(10_000)


# Sides


def test_the_larger_side_stands_and_of_equal_ones_the_newer() -> None:
    def view(number: int, *members: int, by: int = 0) -> GroupView:
        return GroupView(number, (number, by), members, (0,) * len(members), 0)

    def stands(one: GroupView, other: GroupView) -> bool:
        assert outranks(one, other) is not outranks(other, one)
        return outranks(one, other)

    assert stands(view(3, 0, 1, 2), view(7, 3, 4))
    assert stands(view(3, 2, 3, by=2), view(3, 0, 1))
    assert stands(view(4, 0, 1), view(3, 2, 3))
    assert stands(view(4, 0, 1), view(3, 0, 1, 2))  # who is left of the older one is 2
    assert stands(view(3, 0, 1, 2, 3, 4), view(4, 0, 1))  # and here 2, 3 and 4


def test_a_promise_holds_in_the_view_in_which_it_was_given() -> None:
    """Two sides may use one number: a vote asked for in the other's view is not given."""
    mine, theirs = (GroupView(2, (2, by), (0, 1, 2), (0, 0, 0), 0) for by in (0, 1))
    agreement = PartitionableAgreement(mine, NO_BALLOT, None, 0)
    follow = {
        view.id: Accept((9, 1), Change(view.id, GroupView(3, (9, 1), (1, 2), (0, 0), 2), Cut((0, 0, 0), (0, 0, 0))))
        for view in (mine, theirs)
    }
    assert agreement.may_vote(follow[mine.id], 2)
    assert not agreement.may_vote(follow[theirs.id], 2)
    agreement.propose(0, (0, 1, 2), Backoff(lambda pause: pause, 1, 8), 0)
    assert agreement.round is not None
    assert not agreement.take_state(1, State(agreement.round.ballot, theirs.id, "member", None, (0, 0, 0), 0, b""))
    assert agreement.take_state(1, State(agreement.round.ballot, mine.id, "member", None, (0, 0, 0), 0, b""))


# Small groups


class Watched(ViewCluster):
    """A group that keeps what its applications are told."""

    def __init__(
        self, scenario: Scenario, seed: int = 1, drop: Callable[[int, int, bytes, Instant], bool] | None = None
    ) -> None:
        self.told: dict[int, list[Effect]] = defaultdict(list)
        super().__init__(scenario, seed, drop)

    def _carry_out(self, me: int, effect: Effect) -> None:
        if isinstance(effect, Deliver | Install | StandingChanged | Drop):
            self.told[me].append(effect)
        super()._carry_out(me, effect)

    def views(self, name: int) -> list[tuple[int, ...]]:
        return [effect.members for effect in self.told[name] if isinstance(effect, Install)]

    def delivered_in(self, name: int, members: tuple[int, ...]) -> list[Deliver]:
        """Give what a name's application was given in the view of these members."""
        current, delivered = (), []
        for effect in self.told[name]:
            if isinstance(effect, Install):
                current = effect.members
            elif isinstance(effect, Deliver) and current == members:
                delivered.append(effect)
        return delivered

    def notices(self, name: int) -> list[str]:
        return [effect.what for effect in self.told[name] if isinstance(effect, StandingChanged)]


def scenario(*faults: Fault, members: int = 3, **others: object) -> Scenario:
    return Scenario.of(
        "paper",
        **{
            "name": "small",
            "members": members,
            "messages": 10,
            "views": True,
            "membership": QUICK,
            "network": NetworkOptions(latency="uniform 1ms 4ms"),
            "workload": Workload(interval="uniform 20ms 80ms", payload=8),
            "faults": list(faults),
            "limit": "10s",
            **others,
        },
    )


def ran(group: Watched) -> Watched:
    run = group.run()
    assert run.finished
    assert flaw_of(run) is None
    return group


def test_a_calm_group_has_one_view() -> None:
    group = ran(Watched(scenario(members=4)))
    assert [group.views(name) for name in range(4)] == [[(0, 1, 2, 3)]] * 4


def test_a_crash_is_followed_by_a_view_without_the_dead_and_its_return_by_one_with_its_next_life() -> None:
    group = ran(Watched(scenario(Fault(kind="crash", at="200ms", until="700ms", member=2))))
    assert group.views(0) == [(0, 1, 2), (0, 1), (0, 1, 10_002)]
    assert group.views(2) == [(0, 1, 2), (0, 1, 10_002)]


def test_a_view_never_outgrows_the_buffers() -> None:
    """Who wants to be the fourth waits where there are buffers for three."""

    class Small(Process):
        def __init__(self, name: int, names: Any, options: GroupOptions, *args: Any, **others: Any) -> None:
            super().__init__(name, names, msgspec.structs.replace(options, buffer=12), *args, **others)

    group = Watched(scenario(Fault(kind="join", at="200ms", member=3), members=4, founders=3, window=4, limit="1s"))
    group.process = Small
    group.run()
    assert {len(view) for view in group.views(0)} == {3}


def test_who_leaves_is_gone_and_nobody_waits_for_it() -> None:
    group = ran(Watched(scenario(Fault(kind="leave", at="200ms", member=0))))
    assert group.views(1) == [(0, 1, 2), (1, 2)]
    assert not group.notices(1)


def test_a_minority_stalls_says_so_is_left_out_and_returns() -> None:
    group = ran(Watched(scenario(Fault(kind="partition", at="200ms", until="900ms", groups=[[2]]))))
    assert group.notices(2) == ["stalled", "excluded"]
    assert group.views(1) == [(0, 1, 2), (0, 1), (0, 1, 10_002)]


def test_who_is_cut_off_while_its_view_ends_says_that_it_has_stalled() -> None:
    """The prepare of a change arrives, and nothing more."""
    faults = (
        Fault(kind="leave", at="200ms", member=4),
        Fault(kind="partition", at="207ms", until="1200ms", groups=[[2, 3]]),
    )
    group = Watched(scenario(*faults, members=5, network=NetworkOptions(latency="fixed 2ms")))
    seen: dict[int, list[tuple[bool, bool]]] = defaultdict(list)

    def look(_: None) -> None:
        for name in (2, 3):
            one = group.nodes[name].member
            assert isinstance(one, Process)
            seen[name].append((one.member is not None and one.member.blocked, one.stalled))

    group.kernel.at(215 * MILLISECOND, look)
    group.kernel.at(215 * MILLISECOND + QUICK.suspect_ns + QUICK.heartbeat_ns, look)
    ran(group)
    assert group.silent is None
    assert seen[2] == seen[3] == [(True, False), (True, True)]
    assert group.notices(2) == ["stalled", "excluded"]


def test_a_view_that_cannot_end_stalls_and_the_next_one_goes_on() -> None:
    """All are within reach, but what the proposer asks in the second phase is lost."""
    reader = MembershipCodec("small", QUICK.piece_bytes)

    def lose(source: int, target: int, datagram: bytes, now: Instant) -> bool:
        if group_of(datagram) == group_tag("small") or now > 900 * MILLISECOND:
            return False
        return any(isinstance(message, Accept) and message.change.old[0] == 1 for message in reader.read(datagram)[1])

    group = ran(Watched(scenario(Fault(kind="leave", at="200ms", member=2)), 1, lose))
    assert group.silent is None
    assert group.notices(0) == group.notices(1) == ["stalled", "resumed"]


def without_heartbeats(source: int, target: int, datagram: bytes, now: Instant) -> bool:
    """Lose all that 2 says but its data."""
    return source == 2 and now > 200 * MILLISECOND and group_of(datagram) != group_tag("small")


def test_whatever_a_member_sends_is_a_sign_of_life() -> None:
    loaded = scenario(messages=60, workload=Workload(interval="fixed 20ms", payload=8), limit="1s")
    group = Watched(loaded, 1, without_heartbeats)
    group.run()
    assert group.views(0) == [(0, 1, 2)]
    group = Watched(loaded, 1, without_heartbeats)
    group.process = replaced(Process, signs_of_life=lambda self: [])
    group.run()
    assert (0, 1) in group.views(0)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("members", [2, 3, 5])
def test_if_all_leave_at_once_they_get_out_together(members: int, seed: int) -> None:
    faults = [Fault(kind="leave", at=f"{300 + seed * name}ms", member=name) for name in range(members)]
    group = Watched(scenario(*faults, members=members, network=NetworkOptions(latency="uniform 1ms 4ms")), seed)
    run = group.run()
    assert flaw_of(run) is None
    assert not group.running()
    left = {log.member: log.times[log.events.index("leave")] for log in run.logs}
    assert max(left.values()) < (300 + seed * members + 60) * MILLISECOND  # one change, or one after another
    group.kernel.run(until=(300 + seed * members + 100) * MILLISECOND)
    assert not [one.id for one in group.processes if one.deadline is not None]  # nobody lingers


SIDES = msgspec.structs.replace(QUICK, partition="each-side", transfer=True)


@pytest.mark.parametrize("ordering", ["fifo", "causal-blocks", "abcast"])
def test_each_side_goes_on_and_the_smaller_one_joins_the_other_again_and_takes_its_state(ordering: str) -> None:
    fault = Fault(kind="partition", at="300ms", until="1200ms", groups=[[3, 4]])
    group = Watched(scenario(fault, members=5, messages=40, membership=SIDES, ordering=ordering))
    states = with_states(group)
    ran(group)
    assert group.views(0)[:2] == [(0, 1, 2, 3, 4), (0, 1, 2)]
    assert group.views(3)[:2] == [(0, 1, 2, 3, 4), (3, 4)]
    assert group.views(0)[-1][:3] == (0, 1, 2)
    assert set(map(name_of, group.views(0)[-1][3:])) == {3, 4}
    assert [group.notices(name) for name in range(5)] == [[], [], [], ["yielded"], ["yielded"]]
    alone = [effect for effect in group.delivered_in(3, (3, 4)) if name_of(effect.sender) == 4]
    assert alone
    assert all(sorted(states[name]) == sorted(states[0]) for name in range(5))
    last = next(effect for effect in reversed(group.told[3]) if isinstance(effect, Install))
    assert last.elders[:3] == (0, 1, 2)  # their state stands


@pytest.mark.parametrize("seed", range(5))
def test_who_gives_way_on_the_word_of_its_own_side_waits_until_it_hears_the_other(seed: int) -> None:
    fault = Fault(kind="partition", at="300ms", until="1200ms", groups=[[3, 4]])
    group = ran(Watched(scenario(fault, members=5, messages=40, membership=SIDES, ordering="causal-blocks"), seed))
    assert [group.notices(name) for name in range(5)] == [[], [], [], ["yielded"], ["yielded"]]


def test_four_sides_become_one() -> None:
    fault = Fault(kind="partition", at="300ms", until="900ms", groups=[[0], [1], [2], [3, 4]])
    group = Watched(scenario(fault, members=5, messages=40, membership=SIDES, ordering="abcast"))
    states = with_states(group)
    ran(group)
    assert set(map(name_of, group.views(0)[-1])) == set(range(5))
    assert all(states[name] == states[4] for name in range(5))


def test_with_sides_all_that_start_are_in_the_first_view() -> None:
    late = Fault(kind="join", at="100ms", member=0)
    group = ran(Watched(scenario(late, members=4, membership=SIDES)))
    assert group.views(1) == [(0, 1, 2, 3)]


def test_in_three_parts_all_stall_and_go_on_in_the_same_view() -> None:
    group = ran(Watched(scenario(Fault(kind="partition", at="200ms", until="700ms", groups=[[0], [1], [2]]))))
    assert [group.notices(name) for name in range(3)] == [["stalled", "resumed"]] * 3
    assert group.views(0) == [(0, 1, 2)]


def test_a_group_that_crashed_as_a_whole_goes_on_with_the_next_number() -> None:
    faults = [Fault(kind="crash", at="200ms", until=f"{600 + 50 * name}ms", member=name) for name in range(3)]
    group = Watched(scenario(*faults))
    run = group.run()
    assert run.finished
    assert flaw_of(run) is None
    numbers = [effect.view for effect in group.told[0] if isinstance(effect, Install)]
    assert numbers[0] == 1
    assert numbers[1] > 1


def test_own_messages_whose_fate_is_unknown_are_reported() -> None:
    faults = Fault(kind="partition", at="100ms", until="900ms", groups=[[2]])
    group = ran(Watched(scenario(faults, ordering="abcast", workload=Workload(interval="fixed 10ms", payload=8))))
    unknown = [effect for effect in group.told[2] if isinstance(effect, Drop) and effect.reason == "unknown"]
    assert unknown
    assert {effect.sender for effect in unknown} == {2}


# Rules whose lack no random schedule shows, each beside a process without it


@pytest.mark.parametrize(("process", "goes_on"), [(Process, True), (WITHOUT_JOINER_LIMIT, False)])
def test_at_most_as_many_join_as_stay(process: type[Process], goes_on: bool) -> None:
    """Two join one who is alone, and both crash at once."""
    faults = [
        Fault(kind="leave", at="200ms", member=1),
        Fault(kind="leave", at="495ms", member=2),  # the others come while this is being decided
        *(Fault(kind="join", at="496ms", member=name) for name in (3, 4)),
        *(Fault(kind="crash", at="506ms", member=name) for name in (3, 4)),
    ]
    calm = NetworkOptions(latency="fixed 2ms")
    group = Watched(scenario(*faults, members=5, founders=3, messages=0, network=calm, limit="2s"))
    group.process = process
    group.run()
    one = group.nodes[0].member
    assert isinstance(one, Process)
    assert (one.active, one.stalled) == (goes_on, not goes_on)


@pytest.mark.parametrize(("process", "exclusions"), [(Process, 0), (ACCEPTING_AT_ONCE, 2)])
def test_what_is_accepted_is_held(process: type[Process], exclusions: int) -> None:
    """The only one that holds some messages crashes when it has told of them, before anyone could fetch them."""

    def lose(source: int, target: int, datagram: bytes, now: Instant) -> bool:
        return source == 2 and now > 100 * MILLISECOND and group_of(datagram) == group_tag("small")

    faults = (Fault(kind="join", at="300ms", member=3), Fault(kind="crash", at="307ms", member=2))
    calm = NetworkOptions(latency="fixed 2ms")
    group = Watched(scenario(*faults, members=4, founders=3, network=calm, limit="5s"), 1, lose)
    group.process = process
    assert group.run().stats["members"].get("exclusions", 0) == exclusions


@pytest.mark.parametrize(("process", "delivers"), [(Process, False), (SAFE_BY_BODY, True)])
def test_what_is_safe_has_its_place_in_the_order_everywhere(process: type[Process], delivers: bool) -> None:
    """All hold the body of 0's message, and only 0 knows its final timestamp."""

    def lose(source: int, target: int, datagram: bytes, now: Instant) -> bool:
        return source == 0 and now > 101 * MILLISECOND and group_of(datagram) == group_tag("small")

    safe = scenario(
        ordering="abcast",
        safe=True,
        messages=1,
        network=NetworkOptions(latency="fixed 2ms"),
        workload=Workload("fixed 100ms", 8, [0]),
        limit="400ms",
    )
    group = Watched(safe, 1, lose)
    group.process = process
    group.run()
    assert group.views(0) == [(0, 1, 2)]
    assert any(isinstance(effect, Deliver) for effect in group.told[0]) is delivers


@pytest.mark.parametrize(
    ("ordering", "order"), [(Abcast, [b"x", b"reply"]), (WithoutTheSendersStamp, [b"reply", b"x"])]
)
def test_a_reply_comes_after_what_it_answers_though_it_came_first_and_both_senders_are_gone(
    ordering: type[Abcast], order: list[bytes]
) -> None:
    one = ordering(PartContext(2, 3, random.Random(1)), TwoPhaseOptions())
    one.accept(1, TimedData(number=1, seq=1, payload=b"reply", own=10), 0)
    one.accept(0, TimedData(number=1, seq=1, payload=b"x", own=1), 0)
    one.block()
    step = one.finish([1, 1, 0], one.settle({2: one.claim()}, safe=False))
    assert [effect.payload for effect in step.up if isinstance(effect, Deliver)] == order


def test_a_pause_of_ones_own_is_no_silence_of_the_others() -> None:
    group = ran(Watched(scenario(Fault(kind="pause", at="200ms", until="320ms", member=0))))
    assert group.views(0) == [(0, 1, 2)]


def test_a_change_leaves_the_living_in_however_far_they_are() -> None:
    """Without time for all to answer, whoever is last in answering is left out."""
    far = scenario(
        Fault(kind="join", at="500ms", member=4),
        members=5,
        founders=4,
        network=NetworkOptions(latency="uniform 1ms 15ms"),
        limit="1s",
    )
    hasty = msgspec.structs.replace(far, membership=msgspec.structs.replace(QUICK, grace_ns=10 * MILLISECOND))
    assert Watched(far).run().stats["members"].get("exclusions", 0) == 0
    assert Watched(hasty).run().stats["members"].get("exclusions", 0) > 0


SLOW = [
    *((ordering, slow) for ordering in ("fifo", "causal-blocks", "co", "abcast") for slow in ("block", "drop")),
    ("causal-blocks", "lag"),
]


class Measured(Watched):
    """A group that notes the fullest buffer, and when each member was first named as the one that holds all back."""

    def __init__(self, *args: Any) -> None:
        self.fullest = 0
        self.delivered_at: Instant = 0  # the last message, at 0
        self.named: dict[int, Instant] = {}
        super().__init__(*args)

    def _carry_out(self, me: int, effect: Effect) -> None:
        if me == 0 and isinstance(effect, Deliver):
            self.delivered_at = self.kernel.now
        super()._carry_out(me, effect)

    def drive(self, me: int, node: Node, event: Input) -> None:
        super().drive(me, node, event)
        self.fullest = max(self.fullest, node.member.held)
        member = node.member.member if isinstance(node.member, Process) else None
        lag = {} if member is None else {other: lacks for other, lacks in member.lag().items() if lacks != 0}
        if me == 0 and lag and self.kernel.now > 100 * MILLISECOND:
            slowest = max(lag, key=lambda other: (lag[other] is None, lag[other] or 0))
            self.named.setdefault(slowest, self.kernel.now)


@pytest.mark.parametrize(("ordering", "slow"), SLOW)
def test_a_receiver_that_holds_all_back_is_waited_for_or_dropped_or_lags(ordering: str, slow: str) -> None:
    options = msgspec.structs.replace(QUICK, slow=slow, slow_ns=300 * MILLISECOND, lifetime_ns=200 * MILLISECOND)
    tag = group_tag("small")

    def deaf(source: int, target: int, datagram: bytes, now: Instant) -> bool:
        return target == 2 and 100 * MILLISECOND < now < SECOND and group_of(datagram) == tag

    stuck = scenario(ordering=ordering, membership=options, window=4, workload=Workload("fixed 50ms", 8, [0, 1]))
    group = Measured(stuck, 1, deaf)
    ran(group)
    assert group.fullest <= stuck.options().buffer_size(stuck.members)
    assert group.named[2] < 1100 * MILLISECOND  # within a second
    assert ((0, 1) in group.views(0)) is (slow == "drop")
    assert (group.delivered_at < SECOND) is (slow != "block")
    discarded = [effect for effect in group.told[2] if isinstance(effect, Drop) and effect.reason == "expired"]
    assert bool(discarded) is (slow == "lag")
    if slow == "lag":
        assert [group.views(name) for name in range(3)] == [[(0, 1, 2)]] * 3


def test_who_lags_for_longer_than_there_is_room_is_dropped() -> None:
    options = msgspec.structs.replace(QUICK, slow="lag", slow_ns=100 * MILLISECOND, lifetime_ns=50 * MILLISECOND)
    tag = group_tag("small")

    def deaf(source: int, target: int, datagram: bytes, now: Instant) -> bool:
        return target == 2 and 100 * MILLISECOND < now < 1500 * MILLISECOND and group_of(datagram) == tag

    busy = scenario(
        ordering="causal-blocks",
        membership=options,
        messages=50,
        window=4,
        workload=Workload("fixed 20ms", 8, [0, 1]),
    )
    group = Measured(busy, 1, deaf)
    ran(group)
    assert (0, 1) in group.views(0)
    assert group.fullest <= busy.options().buffer_size(busy.members)


def test_lagging_needs_lifetimes() -> None:
    options = msgspec.structs.replace(QUICK, slow="lag")
    with pytest.raises(UsageError, match="causal-blocks"):
        Process(0, range(3), GroupOptions(ordering="abcast"), options, random.Random(1), 0)


def with_states(group: Watched) -> dict[int, list[tuple[int, int]]]:
    """Let the application of each name keep what was delivered, as state that is transferred."""
    states: dict[int, list[tuple[int, int]]] = defaultdict(list)
    carried_out = group._carry_out

    def carry_out(me: int, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            states[me].append((effect.sender, effect.seq))
        carried_out(me, effect)

    def restore(me: int, state: bytes) -> None:
        states[me] = [tuple(message) for message in msgspec.json.decode(state)]

    group._carry_out = carry_out  # type: ignore[method-assign]
    group.snapshot = lambda me: msgspec.json.encode(states[me])
    group.restore = restore
    return states


def test_a_joiner_is_given_the_state_at_the_beginning_of_its_view() -> None:
    options = msgspec.structs.replace(QUICK, transfer=True)
    faults = (
        Fault(kind="join", at="300ms", member=3),
        Fault(kind="crash", at="350ms", until="700ms", member=1),
    )
    group = Watched(scenario(*faults, members=4, founders=3, membership=options, ordering="abcast"))
    states = with_states(group)
    ran(group)
    assert len(states[0]) > 20
    assert states[3] == states[2] == states[1] == states[0]


LARGE = random.Random(1).randbytes(3_000_000)


@pytest.mark.parametrize("same", [True, False])
def test_a_large_state_comes_in_chunks_and_from_another_elder_when_one_dies(same: bool) -> None:
    """2 joins at 300 ms; 0, which it asks first, dies while it is served. 1 goes on there if it has the same bytes."""
    options = msgspec.structs.replace(QUICK, transfer=True, piece_bytes=400)
    faults = (Fault(kind="join", at="300ms", member=3), Fault(kind="crash", at="450ms", member=0))
    group = Watched(scenario(*faults, members=4, founders=3, membership=options, ordering="sequencer"))
    states = {name: LARGE if same or name == 0 else LARGE[::-1] for name in range(3)}
    restored: list[bytes] = []
    begun_anew = 0
    carried_out = group._carry_out

    def carry_out(me: int, effect: Effect) -> None:
        nonlocal begun_anew
        begun_anew += isinstance(effect, RestoreChunk) and effect.offset == 0
        carried_out(me, effect)

    group._carry_out = carry_out  # type: ignore[method-assign]
    group.snapshot = states.__getitem__
    group.restore = lambda me, state: restored.append(state)
    ran(group)
    assert restored == [states[1]]
    assert begun_anew == (1 if same else 2)
    assert len(group.delivered_in(0, (0, 1, 2, 3))) > 0  # nobody waited for it


@pytest.mark.parametrize("size", [0, 1, 3_199, 3_200, 3_201])
def test_a_state_of_any_size_is_transferred(size: int) -> None:
    options = msgspec.structs.replace(QUICK, transfer=True, piece_bytes=400)
    group = Watched(scenario(Fault(kind="join", at="300ms", member=2), founders=2, membership=options))
    restored: list[bytes] = []
    group.snapshot = lambda me: LARGE[:size]
    group.restore = lambda me, state: restored.append(state)
    ran(group)
    assert restored == [LARGE[:size]]


def without_snapshots(until_ms: int) -> Callable[[int, int, bytes, Instant], bool]:
    """Lose every piece of a state until some time."""
    reader = MembershipCodec("small", QUICK.piece_bytes)

    def drops(source: int, target: int, datagram: bytes, now: Instant) -> bool:
        if group_of(datagram) == group_tag("small") or now > until_ms * MILLISECOND:
            return False
        return any(isinstance(message, SnapshotChunk) for message in reader.read(datagram)[1])

    return drops


def test_who_awaits_the_state_is_joined_by_nobody_before_one_more_has_it() -> None:
    """1 joins 0, and 2 wants to; 0 alone has the state, which comes through after 1.2 s only."""
    options = msgspec.structs.replace(QUICK, transfer=True)
    faults = [Fault(kind="join", at=f"{at}ms", member=member) for at, member in ((300, 1), (500, 2))]
    group = Watched(scenario(*faults, founders=1, membership=options), 1, without_snapshots(until_ms=1200))
    states = with_states(group)
    ran(group)
    views = group.views(0)
    assert views == [(0,), (0, 1), (0, 1, 2)]  # and no change for nothing in between
    assert set(states[0]) == set(states[1]) == set(states[2])


def test_own_messages_that_wait_behind_a_snapshot_are_given_up_once_with_the_incarnation() -> None:
    """2 is in a view again, its application's stream still waits for the state, and it is cut off once more."""
    options = msgspec.structs.replace(QUICK, transfer=True)
    faults = [Fault(kind="partition", at=f"{at}ms", until=f"{at + 500}ms", groups=[[2]]) for at in (200, 1200)]
    busy = scenario(*faults, membership=options, messages=60, workload=Workload(interval="fixed 30ms", payload=8))
    group = ran(Watched(busy, 1, without_snapshots(until_ms=1900)))
    assert group.notices(2).count("excluded") == 2
    given_up = [effect.sender for effect in group.told[2] if isinstance(effect, Drop) and effect.reason == "unknown"]
    assert 10_002 in given_up
    assert group.fates.wrong is None


def ended(one: Process) -> Flush:
    """End a process' view."""
    session = one.lifecycle.session
    assert session is not None
    session.end(0)
    assert session.flush is not None
    return session.flush


def test_what_was_fetched_is_passed_on_but_only_the_cut_is_delivered() -> None:
    """An earlier proposal may have reached further than the one that was decided."""
    group = Watched(scenario(members=2, messages=3, limit="160ms", network=NetworkOptions(latency="fixed 1ms")))
    group.network.drop = lambda source, target, datagram, now: now > 20 * MILLISECOND and source == 0
    group.run()
    sender, receiver = (group.nodes[name].member for name in (0, 1))
    assert isinstance(sender, Process)
    assert isinstance(receiver, Process)
    here, there = ended(receiver), ended(sender)
    have, reach = here.reach[0], there.reach[0]
    assert have < reach
    fetch = Fetch(sender.view.id, [(0, have, reach)])
    for fill in there.fills(fetch):
        assert here.take(fill, SECOND)
        assert not here.take(fill, SECOND)
    assert here.fills(fetch) == there.fills(fetch)
    lower = Cut((have + 1, here.reach[1]), (0, 1))
    effects = here.finish(lower, SECOND)
    assert [effect.seq for effect in effects if isinstance(effect, Deliver)] == [have + 1]


def test_a_fill_for_nobody_is_garbage() -> None:
    group = Watched(scenario(members=2, messages=0, limit="300ms"))
    group.run()
    one = group.nodes[0].member
    assert isinstance(one, Process)
    with pytest.raises(Malformed):
        ended(one).take(Fill(one.view.id, 7, 0, 1, []), SECOND)


def test_a_calm_change_costs_what_is_documented() -> None:
    """5(k - 1) + 3j messages, and 2 round trips for the proposer, half of one more for the others."""
    counted: Counter[str] = Counter()
    reader = MembershipCodec("small", QUICK.piece_bytes)

    def count(source: int, target: int, datagram: bytes, now: Instant) -> bool:
        if group_of(datagram) != group_tag("small") and now > 400 * MILLISECOND:
            messages = reader.read(datagram)[1]
            # each member tells the joiner, once it hears it, of the view that there is
            known = [message for message in messages if isinstance(message, Commit) and message.change.old[0] == 0]
            counted.update(message.kind for message in messages if message not in known)
        return False

    calm = scenario(
        Fault(kind="join", at="500ms", member=3),
        members=4,
        founders=3,
        messages=0,
        network=NetworkOptions(latency="fixed 2ms"),
    )
    group = Watched(calm, 1, count)
    run = group.run()
    assert run.finished
    k, j = 3, 1
    change = {kind: counted[kind] for kind in ("prepare", "state", "accept", "accepted", "commit")}
    assert change == {"prepare": k - 1 + j, "state": k - 1 + j, "accept": k - 1, "accepted": k - 1, "commit": k - 1 + j}
    assert sum(change.values()) == 5 * (k - 1) + 3 * j
    installed = {log.member: log.times[log.events.index("view", 1)] for log in run.logs if log.member < 3}
    # the joiner is heard after 2 ms, the proposer installs 8 ms later, the others 2 ms after it
    assert [at // MILLISECOND - 500 for at in installed.values()] == [10, 12, 12]


def nonsense(rng: random.Random) -> MembershipMessage:
    """Make a message that can be decoded and that no correct process says."""

    def some(count: int = 3, limit: int = 4) -> tuple[int, ...]:
        return tuple(rng.randrange(limit) for _ in range(rng.randrange(count + 1)))

    def view() -> GroupView:
        members = tuple(process(name, rng.randrange(1, 3)) for name in rng.sample(range(5), rng.randrange(1, 5)))
        return GroupView(rng.randrange(5), (rng.randrange(4), rng.randrange(4)), members, (0,) * len(members), 0)

    def a_change() -> Change:
        new = view()
        reach = some(4)
        return Change(
            (max(1, new.number) - 1, (1, 0)), msgspec.structs.replace(new, number=max(1, new.number)), Cut(reach, reach)
        )

    def view_id() -> ViewId:
        return rng.choice((ONE.id, (rng.randrange(5), (rng.randrange(4), rng.randrange(4)))))

    ballot = (rng.randrange(6), rng.choice((0, 1, 10_001)))
    accepted = Acceptance(ballot, a_change()) if rng.random() < 0.5 else None
    return rng.choice(
        (
            Alive(view_id(), rng.choice(("member", "joiner", "leaver"))),
            Prepare(ballot, view()),
            State(ballot, view_id(), "member", accepted, some(), rng.randrange(3), b""),
            Refusal(ballot, view_id(), ballot),
            Accept(ballot, a_change()),
            Vote(ballot, view_id()),
            Newer(view()),
            Fetch(view_id(), [(rng.randrange(9), rng.randrange(9), rng.randrange(9))]),
            Fill(view_id(), rng.randrange(5), rng.randrange(3), rng.randrange(5), []),
            SnapshotRequest(view_id(), b"", rng.randrange(9), rng.randrange(3)),
            SnapshotChunk(view_id(), b"", rng.randrange(9), rng.randrange(9), b"x"),
            NoSnapshot(view_id()),
        )
    )


@pytest.mark.parametrize("seed", range(40))
def test_no_message_however_nonsensical_raises(seed: int) -> None:
    rng = random.Random(seed)
    group = Watched(scenario(messages=3, limit="400ms"), seed)
    group.run()
    one = group.nodes[0].member
    assert isinstance(one, Process)
    for step in range(50):
        hear(one, rng.choice((1, 2, 3, 10_001)), nonsense(rng), (400 + step) * MILLISECOND)


@pytest.mark.parametrize(
    "view",
    [
        [1, [1, 0], [0, 1], [0], 0],  # lengths differ
        [1, [1, 0], [0, 10_000], [0, 0], 0],  # one name twice
        [1, [1, 0], [], [], 0],
        [1, [1, 0], [0], [0], 2],
    ],
)
def test_impossible_views_are_not_decoded(view: list[object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(view, GroupView)


def test_a_written_trace_with_views_reads_back_as_it_was(tmp_path: Path) -> None:
    run = Watched(scenario(Fault(kind="crash", at="200ms", until="700ms", member=2))).run()
    write_trace(tmp_path / "trace", run.name, run.logs, {}, replace=False)
    table = pq.read_table(tmp_path / "trace" / "events.parquet")
    written = [(row["member"], row["step"], row["view"], row["members"]) for row in table.to_pylist()]
    assert written == [
        (event.member, event.step, event.view, None if event.members is None else list(event.members))
        for event in run.events
    ]
    assert any(members for *_, members in written)


def test_a_scenario_with_views_can_be_written_down() -> None:
    crash = scenario(Fault(kind="crash", at="200ms", until="700ms", member=2), founders=2)
    assert from_table(tomllib.loads(to_toml(crash))) == crash
    with pytest.raises(UsageError, match="views"):
        msgspec.structs.replace(crash, views=False).check()


def test_the_same_seed_gives_the_same_run() -> None:
    crash = scenario(Fault(kind="crash", at="200ms", until="700ms", member=2))
    one, other = (Watched(crash, 5).run() for _ in range(2))
    assert one.events == other.events
    assert flaw(crash, 5) is None


@pytest.mark.parametrize("partition", ["majority", "each-side"])
@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_after_a_pause_of_ones_own_nothing_is_delivered_before_the_view_is_confirmed(
    ordering: str, partition: str
) -> None:
    """0, which gives messages their places where there is a sequencer, is stopped, excluded, and goes on."""
    options = msgspec.structs.replace(QUICK, partition=partition)
    pause = Fault(kind="pause", at="200ms", until="900ms", member=0)
    busy = scenario(
        pause,
        membership=options,
        ordering=ordering,
        messages=60,
        workload=Workload(interval="uniform 5ms 20ms", payload=8),
    )

    def late(process: type[Process]) -> int:
        group = Paused(busy)
        group.process = process
        group.run()
        return group.late

    assert late(Process) == 0
    if ordering in ("fifo", "sequencer"):
        assert late(replaced(Process, must_be_confirmed=lambda self: False)) > 0


class Paused(Watched):
    """Counts what 0 delivers in its first view after its pause."""

    late = 0

    def _carry_out(self, me: int, effect: Effect) -> None:
        super()._carry_out(me, effect)
        in_the_first = self.views(0) == [(0, 1, 2)] and not self.notices(0)
        self.late += me == 0 and isinstance(effect, Deliver) and in_the_first and self.kernel.now >= 900 * MILLISECOND


def test_after_a_short_pause_the_others_confirm_the_view_and_all_goes_on_in_it() -> None:
    group = ran(Watched(scenario(Fault(kind="pause", at="200ms", until="330ms", member=0), messages=20)))
    assert group.views(0) == [(0, 1, 2)]
    assert group.nodes[1].member.counts["answer"] > 0


# Broken links


@pytest.mark.parametrize(
    ("names", "unheard", "chosen"),
    [
        ((0, 1, 2), {}, (0, 1, 2)),
        ((0, 1, 2, 3, 4), {3: [4]}, (0, 1, 2, 3)),  # of equal sets, the one with the earlier names
        ((0, 1, 2, 3, 4), {4: [3]}, (0, 1, 2, 3)),  # whichever direction is broken
        ((3, 0, 1), {0: [1]}, (3, 0)),  # earlier in the view, not lower
        ((0, 1, 2, 3, 4), {0: [2, 3, 4]}, (1, 2, 3, 4)),  # only the first is cut off from a quorum
        ((0, 1, 2, 3, 4), {1: [3, 4], 2: [3, 4]}, (0, 1, 2)),  # 0 alone connects two halves
        ((0, 1, 2, 3), {0: [2, 3], 1: [3]}, (0, 1)),  # a chain: nobody has a majority
        ((0, 1), {0: [7]}, (0, 1)),
    ],
)
def test_those_who_all_hear_one_another_are_chosen(
    names: tuple[int, ...], unheard: dict[int, list[int]], chosen: tuple[int, ...]
) -> None:
    assert connected(names, unheard) == chosen


@pytest.mark.parametrize("seed", range(30))
def test_the_largest_set_is_found(seed: int) -> None:
    rng = random.Random(seed)
    names = tuple(range(rng.randrange(2, 9)))
    unheard = {name: [other for other in names if other != name and rng.random() < 0.25] for name in names}

    def whole(some: tuple[int, ...]) -> bool:
        return not any(other in unheard[name] for name in some for other in some)

    sets = (some for size in range(len(names), 0, -1) for some in combinations(names, size) if whole(some))
    assert connected(names, unheard) == next(sets)


def test_of_many_broken_links_the_best_set_that_was_found_stands() -> None:
    """In each of twelve triangles nobody hears another: to try all half a million ways out would take minutes."""
    names = tuple(range(36))
    unheard = {name: [3 * (name // 3) + place for place in range(3)] for name in names}
    assert connected(names, unheard) == names[::3]


def test_however_many_must_go_the_search_comes_to_an_end() -> None:
    names = tuple(range(2_200))
    assert connected(names, {name: [name + 1] for name in names[::2]}) == names[::2]


def test_those_whom_nobody_hears_are_left_out_of_a_large_group() -> None:
    names, dead = tuple(range(512)), range(500, 508)
    unheard = {name: dead for name in names if name not in dead}
    assert connected(names, unheard) == tuple(name for name in names if name not in dead)


def test_who_is_chosen_follows_the_reports() -> None:
    reports, names = LinkReports(), (0, 1, 2)
    assert reports.connected(names) == names
    for unheard, chosen, fits in (({2}, (0, 1), True), ({0, 2}, (0, 2), False), ({7}, names, True), ((), names, True)):
        reports.put(1, frozenset(unheard))
        assert reports.connected(names) == chosen
        assert reports.connected((1,)) == (1,)
        assert reports.fits(1, (0,)) is reports.fits(0, (0, 1)) is fits
    assert reports.unheard == {}
    reports.put(0, frozenset({2}))
    for first in range(3, 20):
        assert reports.connected((0, 2, first)) == (0, first)
    assert len(reports._chosen) <= 8, "whoever was chosen long ago is forgotten"


def test_a_report_breaks_only_links_among_the_names_and_not_to_oneself() -> None:
    assert set(broken_links((0, 1, 2), {0: [0, 1, 7], 2: [1], 7: [0]})) == {(1, 0), (1, 2)}


def test_without_a_majority_that_hears_itself_all_say_so_and_name_the_links() -> None:
    """In a chain each hears its neighbours only."""
    links = [(one, other) for one in range(5) for other in range(5) if abs(one - other) > 1]
    faults = [Fault(kind="cut", at="300ms", source=[one], target=[other]) for one, other in links]
    group = Watched(scenario(*faults, members=5, messages=60, limit="3s"))
    group.run()
    assert [group.notices(name)[-1] for name in range(5)] == ["stalled"] * 5
    stalled = [effect for effect in group.told[2] if isinstance(effect, StandingChanged)][-1]
    assert {(0, 2), (4, 2)} <= set(stalled.links)
    assert group.silent is None


@pytest.mark.slow
@pytest.mark.parametrize("ordering", ["fifo", "causal-blocks", "sequencer"])
def test_who_does_not_hear_all_others_is_left_out_and_cannot_come_back_before_its_links_are_mended(
    ordering: str,
) -> None:
    cuts = [Fault(kind="cut", at="300ms", until="2s", source=[3], target=[4])]
    group = ran(Watched(scenario(*cuts, members=5, messages=80, ordering=ordering)))
    assert group.views(0)[:2] == [(0, 1, 2, 3, 4), (0, 1, 2, 3)]
    assert len(group.views(0)) == 3  # once out, once in again
    assert group.notices(4) == ["excluded"]


# Lost state


@pytest.mark.parametrize("partition", ["majority", "each-side"])
@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_who_comes_back_without_its_state_is_a_newcomer_however_quick_it_is(ordering: str, partition: str) -> None:
    """2 is there again before anyone has missed it."""
    options = msgspec.structs.replace(QUICK, partition=partition)
    crash = Fault(kind="crash", at="200ms", until="230ms", member=2, forgets=True)
    group = ran(Watched(scenario(crash, ordering=ordering, membership=options, messages=20)))
    assert group.views(0)[0] == (0, 1, 2)
    assert group.views(0)[-1][:2] == (0, 1)
    assert name_of(group.views(0)[-1][2]) == 2
    assert (0, 1) in group.views(0) or partition == "each-side"  # the earlier one was excluded first


def test_a_name_that_has_lost_its_state_learns_how_often_it_has_started() -> None:
    one, other = alone(), alone(1)
    for process_ in (one, other):
        process_.handle(Wake(), 0)
    hear(other, process(2, 5), Alive((0, NO_BALLOT), "joiner"))
    reader = MembershipCodec(one.lifecycle.options.group, QUICK.piece_bytes)
    effects = hear(other, one.id, Alive((0, NO_BALLOT), "joiner"))
    said = [message for effect in effects if isinstance(effect, Send) for message in reader.read(effect.datagram)[1]]
    assert said == [Superseded(process(2, 5))]
    hear(one, 1, said[0])
    assert one.id == process(2, 6)


def test_a_name_that_has_lost_its_state_does_not_vote() -> None:
    one = alone()
    one.handle(Wake(), 0)
    effects = hear(one, 0, Prepare((4, 0), ONE))
    assert one.id == process(2, 2)  # the view lists an earlier incarnation
    reader = MembershipCodec(one.lifecycle.options.group, QUICK.piece_bytes)
    said = [reader.read(effect.datagram)[1] for effect in effects if isinstance(effect, Send)]
    assert not any(isinstance(message, State) for messages in said for message in messages)
    assert one.lifecycle.agreement.promised == NO_BALLOT


def test_a_message_that_a_survivor_lacks_goes_behind_all_that_its_sender_sent_before() -> None:
    """There it would come after them, however low that survivor's clock is."""
    has = claim(2, [3, 1, 1], {(0, 1): (9, 2), (0, 2): (3, 0)})
    lacks = claim(4, [2, 1, 1], {(0, 1): (9, 2)})
    assert settle({0: has, 1: lacks}, safe=False) == [(0, 1, 9, 2, True), (0, 2, 9, 2, True)]


def test_the_decision_that_a_survivor_knows_stands() -> None:
    knows = claim(4, [2, 1], {}, {(0, 1): (6, 1)})
    waits = claim(9, [2, 1], {(0, 1): (3, 0)})
    assert takeover((0, 1), {0: waits.pending(), 1: knows.pending()}) == (6, 1)
