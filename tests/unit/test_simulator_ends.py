"""The simulator ends whatever a protocol does, and says why a run did not."""

from __future__ import annotations

import json
import random
import re

import msgspec
import pytest

from antiphon.cli import main
from antiphon.errors import LocalProtocolError, UsageError
from antiphon.protocol.machine import SECOND, Instant, Submit
from antiphon.protocol.ordering.fifo import Fifo, FifoOptions
from antiphon.protocol.parts import PartContext, Step
from antiphon.protocol.recovery import Recovery, RecoveryOptions
from antiphon.protocol.stability.vector_ack import VectorAck
from antiphon.protocol.wire import NUMBER_MAX, Codec, Data, Header, Streamed, pack_vector
from antiphon.sim.cluster import simulate
from antiphon.sim.kernel import Kernel
from antiphon.sim.network import LinkRule, NetworkOptions
from antiphon.sim.scenario import Fault, Scenario, Workload
from antiphon.sim.unfinished import Standstill, why_not_finished


class Overdue(Fifo):
    """Its deadline stays in the past."""

    def __init__(self, context: PartContext, options: FifoOptions) -> None:
        super().__init__(context, options)
        self.deadline = 0

    def wake(self, now: Instant) -> Step:
        return Step()


class Creeping(Fifo):
    """It asks for the next nanosecond."""

    def __init__(self, context: PartContext, options: FifoOptions) -> None:
        super().__init__(context, options)
        self.deadline = 0

    def wake(self, now: Instant) -> Step:
        self.deadline = now + 1
        return Step()


class OverdueReports(VectorAck):
    """A stability protocol whose deadline stays in the past once there is something to report."""

    @property
    def deadline(self) -> Instant | None:
        return 5 if self.unstable else None

    def wake(self, now: Instant) -> Step:
        return Step()


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("culprit", [Overdue, Creeping, OverdueReports])
def test_a_deadline_that_stays_in_the_past_is_named_with_its_protocol_its_member_and_the_instant(
    culprit: type, views: bool
) -> None:
    kinds = {"stability": culprit, "ordering": "fifo"} if culprit is OverdueReports else {"ordering": culprit}
    scenario = Scenario(members=3, messages=2, views=views, limit="2s", **kinds)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=rf"^{culprit.__qualname__}: member \d asks .* at \d+\.\d+ s"):
        simulate(scenario, 1)


def test_the_command_exits_with_2_for_such_a_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{Overdue.__module__}:{Overdue.__qualname__}"
    assert main(["simulate", "--members", "2", "--ordering", name, "--messages", "1"]) == 2
    assert "Overdue: member 0 asks to be woken" in capsys.readouterr().err


class Raises(Fifo):
    """It fails when a message is submitted."""

    def submit(self, message: Submit, seq: int, now: Instant) -> Step:
        raise ZeroDivisionError


class GivesNothing(Fifo):
    """It forgets to return a step."""

    def accept(self, source: int, pdu: Streamed, now: Instant) -> Step:
        return None  # type: ignore[return-value]


class NoOptions(Fifo):
    """It has no class of options."""

    Options = None  # type: ignore[assignment]


class NoKinds(Fifo):
    """What it sends is named, not given."""

    PDUS = ("data",)  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Raises, "Raises failed: ZeroDivisionError ("),
        (GivesNothing, "GivesNothing failed: AttributeError: 'NoneType' object has no attribute"),
        (NoOptions, "the Options of "),
        (NoKinds, "the PDUS of "),
    ],
)
def test_what_fails_with_a_protocol_of_ones_own_is_no_fault_of_ours(
    broken: type, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{broken.__module__}:{broken.__qualname__}"
    assert main(["simulate", "--members", "2", "--ordering", name, "--messages", "1"]) == 2
    assert said in capsys.readouterr().err


class LetsNothingGo(Fifo):
    """It never lets the application send."""

    def may_submit(self, priority: int) -> bool:
        return False


class Keeps(Fifo):
    """It never lets go of what it keeps."""

    @property
    def held(self) -> int:
        return 1

    @held.setter
    def held(self, number: int) -> None:
        """It stays as it is."""


def test_an_ordering_that_lets_nothing_be_sent_or_go_is_told_from_a_run_that_was_too_short() -> None:
    assert "30 messages were due, and the protocol lets none be sent" in unfinished(ordering=LetsNothingGo)
    assert re.search(r"nothing is due any more after 0\.\d+ s: the protocol keeps", unfinished(ordering=Keeps))


def test_time_that_stands_still_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.sim.kernel._LOOK", 1000)
    kernel = Kernel()

    def again(_: None) -> None:
        kernel.after(0, again)

    kernel.at(3 * SECOND, again)
    with pytest.raises(UsageError, match=r"stands still at 3\.0+ s"):
        kernel.run(until=5 * SECOND)


def test_many_events_are_no_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.sim.kernel._LOOK", 10)
    kernel, seen = Kernel(), []
    for instant in range(1, 100):
        kernel.at(instant // 9, seen.append, instant)
    kernel.run()
    assert len(seen) == kernel.events == 99


def test_a_run_may_be_ended_after_so_many_events() -> None:
    kernel, seen = Kernel(), []
    for instant in range(100):
        kernel.at(instant, seen.append, instant)
    kernel.run(events_max=30)
    assert (len(seen), kernel.now, kernel.events) == (30, 29, 30)
    kernel.run(until=50)
    assert (len(seen), kernel.now) == (51, 50)


def test_thousands_of_messages_that_wait_are_submitted_together() -> None:
    workload, pause = Workload(interval="0", payload=0), Fault(kind="pause", member=1, at="0", until="100ms")
    scenario = Scenario(
        ordering="fifo", members=2, messages=1_500, window=2_000, workload=workload, faults=[pause], limit="3s"
    )
    run = simulate(scenario, 1)
    assert run.finished
    assert run.delivered == 2 * run.sent == 6_000


# Why a run did not finish


def unfinished(**fields: object) -> str:
    run = simulate(Scenario(**{"members": 3, "messages": 10, "limit": "3s", **fields}), 1)  # type: ignore[arg-type]
    assert not run.finished
    assert run.why_not is not None
    return run.why_not


def test_a_crash_is_blamed_only_where_there_was_one() -> None:
    assert "member 2 crashed" in unfinished(faults=[Fault(kind="crash", at="50ms", member=2)])
    assert "crash" not in unfinished(limit="30ms")


def test_a_cut_and_a_pause_are_named() -> None:
    assert unfinished(faults=[Fault(kind="cut", at="5ms", source=[0], target=[2])]).endswith("still cut: 0 to 2")
    assert "member 1 is still paused" in unfinished(faults=[Fault(kind="pause", at="5ms", until="9s", member=1)])


def test_a_link_that_is_too_slow_is_named() -> None:
    said = unfinished(network=NetworkOptions(bandwidth=20_000), workload=Workload("0", 5000))
    assert "s behind: it cannot carry what is sent" in said


def test_a_run_that_was_merely_too_short_says_so() -> None:
    assert "a longer limit" in unfinished(limit="40ms")


def test_what_the_network_did_is_named() -> None:
    lossy = unfinished(network=NetworkOptions(loss=0.9), ordering="co", limit="1s")
    assert re.search(r"\d+ of \d+ datagrams were lost or overrun$", lossy), lossy
    assert unfinished(network=NetworkOptions(latency="fixed 9s")).endswith(
        "what is on its way arrives up to 9.0 s after the end: latencies are too long for this run"
    )
    assert "stands still" not in lossy + unfinished(network=NetworkOptions(latency="pareto 1ms 0.001"))


def test_a_run_that_ends_before_the_first_message_says_so() -> None:
    said = unfinished(limit="1ms", workload=Workload("fixed 5ms"))
    assert said == (
        "0 of 30 messages were sent and 0 copies are still held; "
        "no message was due before the end: a longer limit, or shorter intervals, may do"
    )


def test_a_protocol_that_stands_still_is_told_from_one_that_is_busy() -> None:
    seen = Standstill(
        now=10 * SECOND,
        sent=5,
        wanted=9,
        held=7,
        retransmissions=3,
        delivered_at=2 * SECOND,
        crashed=[],
        paused=[],
        cut=[],
        behind_ns=0,
    )
    assert why_not_finished(seen) == (
        "5 of 9 messages were sent and 7 copies are still held; "
        "nothing was delivered after 2.000 s: the protocol stands still"
    )
    assert "a longer limit" in why_not_finished(msgspec.structs.replace(seen, delivered_at=8 * SECOND))
    assert "51 retransmissions for 5 messages" in why_not_finished(msgspec.structs.replace(seen, retransmissions=51))
    many = [(0, target) for target in range(1, 7)]
    assert why_not_finished(msgspec.structs.replace(seen, cut=many)).endswith("0 to 3, 0 to 4 and 2 more")


def test_groups_that_stay_apart_are_shown_with_their_views() -> None:
    faults = [Fault(kind="partition", at="100ms", groups=[[0], [1, 2]])]
    said = unfinished(views=True, faults=faults)
    assert "still cut: 0 to 1" in said
    assert "those that run are not in one view" in said


# Numbers


def test_what_happens_with_views_is_counted_as_in_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    fault = Fault(kind="crash", at="150ms", member=2)
    network, workload = NetworkOptions(loss=0.2, duplicate=0.2), Workload(lifetime="20ms")
    scenario = Scenario(
        ordering="causal", members=4, messages=30, views=True, faults=[fault], network=network, workload=workload
    )
    run = simulate(scenario, 5)
    counts = run.stats["members"]
    repairs = sum((event.detail or "").startswith("repair to ") for event in run.events)
    assert counts["retransmissions"] == repairs > 0
    assert counts["discarded"] == sum(event.event == "discard" for event in run.events) > 0
    assert counts["duplicates"] == sum(event.detail == "duplicate" for event in run.events) > 0
    assert main(["simulate", "--members", "3", "--views", "--loss", "0.3", "--messages", "20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["retransmissions"] > 0


def test_what_means_nothing_to_the_ordering_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["simulate", "--members", "2", "--messages", "1"]
    for flags, said in (
        (["--ordering", "total", "--lifetime", "5ms"], "total has no lifetimes and no priorities"),
        (["--ordering", "co", "--priorities", "2"], "co has no lifetimes and no priorities"),
        (["--ordering", "co", "--stability", "train"], "co finds stability itself; train is not used"),
        (["--ordering", "causal", "--lifetime", "5ms", "--priorities", "2"], ""),
    ):
        assert main([*asked, *flags]) == 0
        err = capsys.readouterr().err
        assert said in err if said else not err


def test_founders_without_views_are_refused() -> None:
    with pytest.raises(UsageError, match=r"founders: .* set views = true"):
        Scenario(members=4, founders=2).check()


def test_a_sender_that_is_named_twice_is_refused() -> None:
    with pytest.raises(UsageError, match=r"workload\.senders: \[0, 0\] names a member twice"):
        Scenario(workload=Workload(senders=[0, 0])).check()


def test_a_stream_that_reaches_the_last_number_fails_clearly() -> None:
    recovery = Recovery(PartContext(0, 2, random.Random(0)), 2**31, RecoveryOptions())
    recovery.received[0] = NUMBER_MAX - 1
    recovery.broadcast(Data(), 0)
    with pytest.raises(LocalProtocolError, match=r"4294967296.*next view"):
        recovery.broadcast(Data(), 0)
    assert recovery.sent == NUMBER_MAX
    with pytest.raises(LocalProtocolError, match="4294967296"):
        Codec.frame(Header(1, 0, 0, 2**32, 0), [])
    with pytest.raises(LocalProtocolError, match="4294967297"):
        pack_vector([1, 2**32 + 1])


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (NetworkOptions(matrix=[[0, float("nan")], [1, 0]]), "network.matrix: needs 2 rows of 2 milliseconds"),
        (NetworkOptions(matrix=[[0, float("inf")], [1, 0]]), "network.matrix: needs 2 rows of 2 milliseconds"),
        (NetworkOptions(links=[LinkRule([0], [1], loss=-0.1)]), "network.links.loss: a probability from 0 to 1"),
        (NetworkOptions(links=[LinkRule([0], [1], loss=1.0)]), "network.links.loss: 1.0 loses everything"),
    ],
)
def test_links_that_cannot_be_are_refused(network: NetworkOptions, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        network.check(2)
