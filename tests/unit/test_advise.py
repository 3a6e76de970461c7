"""Advice: it answers, it says what it did, and it refuses in one line what it cannot answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from antiphon.cli import main
from antiphon.errors import UsageError
from antiphon.protocol.ordering import ORDERINGS
from antiphon.protocol.stability import STABILITIES
from antiphon.sim.advise import (
    GOALS,
    NEEDS,
    Candidate,
    Estimate,
    Question,
    advise,
    estimate,
    judge,
    measure,
    protocols,
)
from antiphon.sim.trees import near_complete

SMALL = ["--members", "4", "--rate", "20", "--intervals", "20ms"]


MEASURED: dict[bytes, Estimate] = {}


def measured_once(question: Question, candidate: Candidate, size: int) -> Estimate:
    """What is measured depends on neither the goal nor the limits: other questions of the same group share it."""
    asked = replace(question, goal="deliver", latency_max_ms=None, bandwidth_max_kb_per_s=None)
    key = msgspec.json.encode((asked, candidate, size))
    if key not in MEASURED:
        MEASURED[key] = measure(question, candidate, size)
    return MEASURED[key]


@pytest.fixture(autouse=True)
def fewer_and_shorter_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.sim.advise._SPAN_S", 0.6)
    monkeypatch.setattr("antiphon.sim.advise._DELIVERIES_MAX", 3_000)
    monkeypatch.setattr("antiphon.sim.advise.measure", measured_once)


def test_neither_the_goal_nor_a_limit_changes_what_is_measured() -> None:
    group, candidate = Question(members=3, rate_per_s=20), Candidate("fifo", "coordinator")
    limited = replace(group, goal="bytes", latency_max_ms=40.0, bandwidth_max_kb_per_s=50.0)
    assert measure(group, candidate, 3) == measure(limited, candidate, 3)


@pytest.mark.parametrize("candidate", [Candidate("fifo", "vector-ack"), Candidate("abcast", "train")], ids=str)
def test_rare_messages_cost_what_a_long_run_says(candidate: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Question(members=3, rate_per_s=0.1, payload=20_000, latency="fixed 3ms")
    quick = measure(group, candidate, 3)
    monkeypatch.setattr("antiphon.sim.advise._RARE_PER_S", 0.01)
    whole = measure(group, candidate, 3)
    assert quick.keeps_up
    assert quick.kb_per_s == pytest.approx(whole.kb_per_s, rel=0.05)
    assert quick.datagrams_per_s == pytest.approx(whole.datagrams_per_s, rel=0.05)
    assert quick.deliver_ms == pytest.approx(whole.deliver_ms, rel=0.1)
    assert quick.stable_ms == pytest.approx(whole.stable_ms, rel=0.3)  # of eight messages, each in another pause


@pytest.mark.parametrize("latency", ["fixed 3ms", "fixed 200ms"])
def test_a_message_a_day_keeps_up(latency: str) -> None:
    """The simulation ended after five minutes, with most messages unsent: the protocol was said not to keep up."""
    rare = measure(Question(members=3, rate_per_s=1 / 86_400, latency=latency), Candidate("fifo", "vector-ack"), 3)
    assert rare.keeps_up
    assert rare.kb_per_s > 0


def test_a_rate_that_needs_a_wider_window_is_measured_with_it() -> None:
    busy, candidate = Question(members=4, rate_per_s=1_000, latency="fixed 30ms"), Candidate("fifo", "coordinator")
    found = measure(busy, candidate, 4)
    assert found.keeps_up
    assert found.window >= busy.window_for(found.stable_ms) > busy.window
    bounded = replace(busy, buffer=64)
    found = judge(bounded, measure(bounded, candidate, 4))
    assert found.objection == "it does not sustain 1000 messages a second with a window of 16"
    found = judge(busy, measure(busy, Candidate("co", None), 4))
    assert found.objection == "it does not sustain 1000 messages a second with a window of 64", "its headroom bounds it"
    far = replace(busy, rate_per_s=50_000)
    assert not measure(far, candidate, 4).keeps_up, "nor with the widest window, though a short run does not fill it"


def test_the_application_begins_when_the_group_stands() -> None:
    """It takes longer to form here than all is sent in: what then left at once was no such rate, and not counted."""
    found = measure(Question(members=4, rate_per_s=2_000, latency="fixed 100ms"), Candidate("fifo", "vector-ack"), 4)
    messages_alone = 2_000 * 64 * 3 / 1000
    assert messages_alone < found.kb_per_s < 2 * messages_alone


@pytest.mark.slow
def test_the_answer_as_json_and_on_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", *SMALL, "--json", "--out", str(tmp_path / "advice")]) == 0
    answer = json.loads(capsys.readouterr().out)
    best = answer["recommendation"]
    assert best["stability"] in STABILITIES
    assert best["deliver_ms"] <= 1.05 * min(one["deliver_ms"] for one in answer["runners_up"])
    assert answer["sentence"].startswith(f"Use {best['ordering']}")
    assert {best["stability"], *(one["stability"] for one in answer["runners_up"])} == {*STABILITIES, "its own"}
    assert best["basis"] == "members simulated at n = 4"
    assert best["why"]
    assert {path.name for path in (tmp_path / "advice").iterdir()} == {
        "advice.json",
        "advice.png",
        "advice.svg",
        "candidates.csv",
    }
    assert json.loads((tmp_path / "advice" / "advice.json").read_text()) == answer


@pytest.mark.slow
def test_the_answer_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", *SMALL, "--goal", "bytes"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("Use ")
    assert " traffic (" in told.splitlines()[0]
    assert all(f"fifo + {stability}" in told for stability in STABILITIES)


@pytest.mark.slow
def test_the_goal_decides() -> None:
    group = Question(members=5, rate_per_s=20, need="causal", intervals_ms=(20.0, 80.0))
    best = {goal: advise(replace(group, goal=goal)).best for goal in GOALS}
    assert (best["deliver"].deliver_ms or 0) <= 1.05 * min(one.deliver_ms or 0 for one in best.values())
    assert (best["stable"].stable_ms) <= 1.05 * min(one.stable_ms for one in best.values())
    assert (best["bytes"].kb_per_s) <= 1.05 * min(one.kb_per_s for one in best.values())
    assert (best["cpu"].datagrams_per_s) <= 1.05 * min(one.datagrams_per_s for one in best.values())
    assert len({one.candidate.ordering for one in best.values()}) > 1, "the goal decides the ordering too"
    limited = advise(replace(group, goal="bytes", latency_max_ms=40.0))
    assert limited.best.stable_ms <= 40 < best["bytes"].stable_ms
    assert any("above 40 ms" in (one.objection or "") for one in limited.rejected)


def simulated(deliver_ms: dict[str, float], stable_ms: dict[str, float]) -> Callable[..., Estimate]:
    """Stand in for simulations: an ordering has its times whatever else is set."""

    def measure(question: Question, candidate: Candidate, size: int) -> Estimate:
        name = candidate.ordering
        return Estimate(
            candidate=candidate, deliver_ms=deliver_ms[name], stable_ms=stable_ms[name], kb_per_s=1, datagrams_per_s=1,
            held=1, keeps_up=True, window=64, basis="made up",
        )  # fmt: skip

    return measure


def test_of_what_is_as_soon_stable_the_soonest_delivered_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four orderings are within chance of one another, and all are tried with all protocols; three are not."""
    deliver = {"fifo": 4.0, "sequencer": 5.7, "abcast": 13.7, "tomp": 13.6, "causal-blocks": 3.0, "co": 19.0}
    stable = {"fifo": 20.9, "sequencer": 20.4, "abcast": 20.0, "tomp": 20.2, "causal-blocks": 30.0, "co": 21.5}
    monkeypatch.setattr("antiphon.sim.advise.measure", simulated(deliver, stable))
    advice = advise(Question(members=4, goal="stable"))
    assert advice.best.candidate.ordering == "fifo"
    assert "of these it has the least time to deliver" in advice.why()
    tried = {(one.candidate.ordering, one.candidate.stability) for one in advice.ranked}
    assert tried >= {(name, stability) for name in ("fifo", "sequencer", "abcast", "tomp") for stability in STABILITIES}
    far = advise(Question(members=4, goal="deliver"))
    tried = {(one.candidate.ordering, one.candidate.stability) for one in far.ranked}
    assert ("abcast", "train") not in tried, "far from the best, with any protocol"
    assert ("sequencer", "train") in tried, "two orderings are tried with all protocols in any case"


def test_every_ordering_that_gives_what_is_needed_is_a_candidate() -> None:
    for need in NEEDS:
        found = protocols(Question(members=4, need=need))
        assert {one.ordering for one in found} == {name for name, part in ORDERINGS.items() if need in part.PROMISES}
        assert {one.stability for one in found if one.stability} == set(STABILITIES)


@pytest.mark.slow
def test_every_ordering_is_tried_and_the_best_with_every_stability_protocol() -> None:
    advice = advise(Question(members=4, rate_per_s=20, need="total", intervals_ms=(20.0,)))
    tried = [one.candidate for one in [*advice.ranked, *advice.rejected]]
    assert {one.ordering for one in tried} == {"abcast", "tomp", "sequencer"}
    assert {one.stability for one in tried if one.ordering == advice.best.candidate.ordering} == set(STABILITIES)


@pytest.mark.slow
def test_what_this_machine_adds_is_measured_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--members", "2", "--rate", "20", "--intervals", "20ms", "--latency", "0ms"]
    assert main(["advise", *small, "--here", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    machine = answer["machine_us"]
    assert machine["hop"] > 20
    assert 5 < machine["work"] < 20_000
    least, most = sorted((machine["warm"] / 1000, machine["hop"] / 1000))
    assert 0.7 * least < answer["recommendation"]["deliver_ms"] < 1.3 * most
    assert f"{machine['work']:.3g} us a datagram on this machine" in answer["recommendation"]["why"]


@pytest.mark.slow
def test_a_buffer_that_is_too_small_for_a_protocol_rules_it_out() -> None:
    group = Question(members=3, rate_per_s=100, intervals_ms=(80.0,), goal="stable")
    generous = advise(group)
    most = max(one.held for one in generous.ranked)
    least = min(one.held for one in generous.ranked)
    tight = advise(replace(group, buffer=int((most + least) / 2)))
    assert tight.rejected
    assert tight.best.held <= tight.question.buffer


@pytest.mark.slow
def test_larger_groups_are_extended_from_smaller_ones_and_come_close() -> None:
    question = Question(members=24, rate_per_s=10, size_max=12)
    candidate = Candidate("fifo", "coordinator")
    guessed, measured = estimate(question, candidate), measure(question, candidate, 24)
    assert guessed.basis == "members simulated at n = 3, 6, 12; extended by a power of n"
    assert guessed.stable_ms == pytest.approx(measured.stable_ms, rel=0.5)
    assert guessed.kb_per_s == pytest.approx(measured.kb_per_s, rel=0.5)


def test_large_trees_run_one_round_at_full_size() -> None:
    tree = near_complete(2, 5, 1)
    advice = advise(Question(members=len(tree), tree=tree, rate_per_s=1))
    assert advice.best.candidate.stability == "tree-coordinator"
    assert "LAN model, one round at n = 47" in advice.best.basis
    assert advice.best.stable_ms == pytest.approx(1.5 * 10.286250 + 0.5 * 5)  # a round, half a round and half a pause


def test_vectors_that_fit_into_no_datagram_are_not_advised() -> None:
    tree = near_complete(4, 7, 4)
    advice = advise(Question(members=len(tree), tree=tree, rate_per_s=0.01))
    assert advice.best.candidate.stability == "timestamp-ack"
    assert all("do not fit into a datagram" in why for name, why in advice.refused if " + " in name)
    assert any("do not fit into a datagram" in why for _, why in advice.refused)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--members", "1"], "at least 2"),
        (["--members", "5", "--rate", "-3"], "rate: -3"),
        (["--members", "5", "--rate", "nan"], "rate"),
        (["--members", "5", "--payload", "-5"], "payload: 0 to 59992 bytes fit into a datagram, not -5"),
        (["--members", "5", "--payload", "70000"], "payload: 0 to 59989 bytes fit into a datagram, not 70000"),
        (["--members", "5", "--degree", "0"], "degree: 0"),
        (["--members", "5", "--loss", "1"], "loses everything"),
        (["--members", "5", "--ordering", "best"], "unknown need 'best'"),
        (["--members", "5", "--ordering", "totl"], "unknown need 'totl' (did you mean total?)"),
        (["--members", "5", "--loss", "1.5"], "loss: a probability from 0 to 1, not 1.5"),
        (["--members", "5", "--senders", "0,1,1"], "member 1 is named twice"),
        (["--members", "5", "--senders", "7"], "members are 0 to 4"),
        (["--members", "5", "--senders", "a"], "not a list of members"),
        (["--members", "5", "--latency-max", "1ms"], "impossible, for a round trip alone takes 2 ms"),
        (["--members", "5", "--bandwidth-max", "0.1"], "impossible, for the messages alone take"),
        (["--members", "5", "--latency-max=-1ms"], "not a duration"),
        (["--members", "5", "--buffer", "3"], "cannot hold one message of each of 5"),
        (["--members", "5", "--latency", "sometimes"], "not a duration"),
        (["--members", "5", "--intervals", "0"], "intervals"),
        (["--members", "5", "--tree", "2,2,2"], "7 nodes for 5 members"),
        (["--tree", "0,2,1"], "at least 1"),
        ([], "give --members"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert complaint in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0,5\n5,0\n", "2 rows for 3 members"),
        ("0,5,5\n5,0\n5,5,0\n", "row 1 has 2 entries"),
        ("a,b,a\n0,5,5\n5,0,5\n5,5,0\n", "member 'a' is named twice"),
        ("a,b\n0,5,5\n5,0,5\n5,5,0\n", "2 members are named, but there are 3 rows"),
        ("0,-5,5\n5,0,5\n5,5,0\n", "no latency"),
        ("0,5,5\n5,0,far\n5,5,0\n", "'far' is not a number"),
        ("", "empty"),
    ],
)
def test_a_matrix_that_is_none_is_refused(
    text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "matrix.csv"
    path.write_text(text)
    assert main(["advise", "--members", "3", "--matrix", str(path)]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


@pytest.mark.slow
def test_a_matrix_gives_the_group_its_size_and_latencies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "matrix.csv"
    path.write_text("here,there,far\n0,5,50\n5,0,50\n50,50,0\n")
    assert main(["advise", "--matrix", str(path), "--rate", "5", "--intervals", "20ms", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["members"] == 3
    assert answer["recommendation"]["stable_ms"] > 100


@pytest.mark.slow
def test_limits_that_nothing_meets_are_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no candidate meets the limits; the nearest, .* above 5 ms"):
        advise(Question(members=2, rate_per_s=20, latency_max_ms=5.0, intervals_ms=(20.0,)))
