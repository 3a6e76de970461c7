"""Every sentence of the guarantees, on traces small enough to check by eye; then real traces and planted violations."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import msgspec
import pytest

from antiphon.errors import UsageError
from antiphon.trace.event import Event
from antiphon.trace.naive import check
from antiphon.trace.reader import read
from antiphon.trace.schema import GUARANTEES
from antiphon.trace.verdict import Verdict
from support.planting import PLANTS, Shape, sample

TRACES = Path(__file__).parents[1] / "data" / "traces"
KINDS = {"s": "send", "r": "receive", "d": "deliver", "x": "discard", "m": "stable"}
TOKEN = re.compile(r"(?:([srdxm])(\d+)\.(\d+)|v(\d+)\(([\d,]*)\)|(crash|leave|end))(?:@(\d+))?")


def trace(logs: dict[int, str], run: str = "r") -> list[Event]:
    """Write logs by hand: s1.2 sends number 2 of member 1; r, d, x, m receive, deliver, discard, mark; @5 is a time."""
    events = []
    for member, text in logs.items():
        for step, word in enumerate(text.split(), start=1):
            match = TOKEN.fullmatch(word)
            assert match, word
            kind, sender, seq, view, members, other, time = match.groups()
            message = (int(sender), int(seq)) if kind else (None, None)
            listed = tuple(int(m) for m in members.split(",")) if members else None
            name = KINDS[kind] if kind else other or "view"
            at = int(time) if time else None
            events.append(Event(run, member, step, name, *message, at, int(view or 0), members=listed))
    return events


def one(guarantee: str, logs: dict[int, str], **options: object) -> Verdict:
    return check(trace(logs), guarantees=[guarantee], **options)[guarantee]  # type: ignore[arg-type]


def result(verdict: Verdict) -> tuple[str, int, int]:
    return verdict.verdict, verdict.examined, verdict.violations


def shown(verdict: Verdict, index: int = 0) -> list[str]:
    """The events of a witness as written by hand, with the member where it is another's."""
    letters = {name: letter for letter, name in KINDS.items()}
    witness = verdict.witnesses[index]
    return [
        f"{letters[e.event]}{e.sender}.{e.seq}" + (f" at {e.member}" if e.member is not None else "")
        for e in witness.events
    ]


CLEAN = {1: "s1.1 d1.1 d2.1 m1.1 end", 2: "d1.1 s2.1 d2.1 end"}


class TestVerdicts:
    def test_clean_trace_holds_in_all_it_can_show(self) -> None:
        verdicts = {name: verdict.verdict for name, verdict in check(trace(CLEAN)).items()}
        assert verdicts == dict.fromkeys(GUARANTEES, "holds") | {"view-synchrony": "unknown"}

    def test_nothing_to_examine_is_unknown_never_holds(self) -> None:
        for events in ([], trace({1: "end", 2: "end"}), trace({1: "v1(1,2) v2(1,2) end", 2: "v1(1,2) v2(1,2) end"})):
            for verdict in check(events).values():
                assert result(verdict) == ("unknown", 0, 0)

    def test_only_the_named_guarantees_are_checked(self) -> None:
        assert list(check(trace(CLEAN), guarantees=["total", "fifo"])) == ["fifo", "total"]

    def test_unknown_name_is_refused(self) -> None:
        with pytest.raises(UsageError, match="'ordered'"):
            check([], guarantees=["ordered"])
        with pytest.raises(UsageError, match="no guarantee is called 'alike'"):
            check([], guarantees=["ordered", "alike", "fifo", "quick"])

    def test_order_of_rows_in_the_trace_does_not_matter(self) -> None:
        events = trace({1: "s1.1 d1.1 s1.2 d1.2", 2: "d1.2 d1.1"})
        assert check(events) == check(events[::-1]) == check(random.Random(1).sample(events, len(events)))

    def test_violated_in_any_run_is_violated(self) -> None:
        bad = trace({1: "s1.1 s1.2 d1.2 d1.1"}, run="b")
        verdict = check(trace(CLEAN, run="a") + bad + trace(CLEAN, run="c"))["fifo"]
        assert result(verdict) == ("violated", 10, 1)
        assert verdict.witnesses[0].run == "b"

    def test_unknown_if_any_run_is_incomplete_for_it(self) -> None:
        short = trace({1: "s1.1 end", 2: "s2.1"}, run="b")
        assert check(trace(CLEAN, run="a") + short)["validity"].verdict == "violated"
        short = trace({1: "s1.1 d1.1 end", 2: "s2.1"}, run="b")
        assert result(check(trace(CLEAN, run="a") + short)["validity"]) == ("unknown", 4, 0)
        assert result(check(short + trace(CLEAN, run="c"))["validity"]) == ("unknown", 4, 0)

    def test_a_run_with_nothing_to_examine_leaves_the_verdict_to_the_others(self) -> None:
        assert check(trace(CLEAN, run="a") + trace({1: "end"}, run="b"))["fifo"].verdict == "holds"

    def test_runs_do_not_explain_each_other(self) -> None:
        events = trace({1: "s1.1"}, run="a") + trace({1: "d1.1"}, run="b")
        assert check(events)["integrity"].verdict == "violated"

    def test_witnesses_are_the_first_by_run_member_step(self) -> None:
        late = {1: "s1.1 s1.2 d1.2 d1.1", 2: "d1.2 d1.1 d1.1"}
        verdict = check(trace(late, run="b") + trace(late, run="a"), witnesses=4)["fifo"]
        assert verdict.violations == 6
        assert [(w.run, w.member, w.events[-1].step) for w in verdict.witnesses] == [
            ("a", 1, 4),
            ("a", 2, 2),
            ("a", 2, 3),
            ("b", 1, 4),
        ]

    def test_witness_as_json_has_the_fields_of_the_contract(self) -> None:
        verdict = one("fifo", {1: "s1.1 s1.2 d1.2 d1.1"})
        assert msgspec.to_builtins(verdict.witnesses[0]) == {
            "run": "r",
            "member": 1,
            "events": [
                {"step": 3, "event": "deliver", "sender": 1, "seq": 2},
                {"step": 4, "event": "deliver", "sender": 1, "seq": 1},
            ],
            "why": "member 1 delivers message 1 of 1 after number 2",
        }


class TestIntegrity:
    def test_delivery_without_a_send(self) -> None:
        verdict = one("integrity", {1: "s1.1 d1.1", 2: "d1.1 d1.2"})
        assert result(verdict) == ("violated", 3, 1)
        assert shown(verdict) == ["d1.2"]

    def test_delivery_from_a_stranger(self) -> None:
        assert one("integrity", {1: "d9.1 end"}).verdict == "violated"

    def test_repeated_delivery_counts_each_time_after_the_first(self) -> None:
        verdict = one("integrity", {1: "s1.1 d1.1 d1.1 d1.1"})
        assert result(verdict) == ("violated", 3, 2)
        assert shown(verdict) == ["d1.1", "d1.1"]

    def test_repeated_delivery_of_an_unsent_message_counts_a_row_once(self) -> None:
        assert one("integrity", {1: "d2.1 d2.1", 2: ""}).violations == 2

    def test_repeated_send(self) -> None:
        verdict = one("integrity", {1: "s1.1 d1.1 s1.1"})
        assert result(verdict) == ("violated", 1, 1)
        assert [event.step for event in verdict.witnesses[0].events] == [1, 3]

    def test_discard_is_no_delivery(self) -> None:
        assert one("integrity", {1: "s1.1 d1.1 x1.1"}).verdict == "holds"

    def test_a_send_lost_with_the_tail_of_a_log_is_unknown(self) -> None:
        assert one("integrity", {1: "s1.1 d1.1", 2: "d1.1 d1.2 end"}).verdict == "unknown"
        assert one("integrity", {1: "s1.1 d1.1 crash", 2: "d1.1 d1.2 end"}).verdict == "violated"


class TestValidity:
    def test_own_message_missing(self) -> None:
        verdict = one("validity", {1: "s1.1 d1.1 s1.2 s1.3 d1.3", 2: "d1.1 d1.2 d1.3"})
        assert result(verdict) == ("violated", 3, 1)
        assert shown(verdict) == ["s1.2"]

    def test_discarding_is_as_good_as_delivering(self) -> None:
        assert one("validity", {1: "s1.1 x1.1"}).verdict == "holds"

    @pytest.mark.parametrize("gone", ["crash", "leave"])
    def test_one_that_crashed_or_left_owes_nothing(self, gone: str) -> None:
        assert result(one("validity", {1: f"s1.1 {gone}"})) == ("unknown", 0, 0)
        assert result(one("validity", {1: f"s1.1 {gone}", 2: "s2.1 d2.1"})) == ("holds", 1, 0)

    def test_cut_short_is_unknown_where_any_log_has_an_end(self) -> None:
        assert one("validity", {1: "s1.1", 2: "s2.1 d2.1 end"}).verdict == "unknown"
        assert one("validity", {1: "s1.1", 2: "s2.1 d2.1"}).verdict == "violated"
        assert one("validity", {1: "s1.1 end", 2: "s2.1 d2.1"}).verdict == "violated"

    def test_cut_short_that_lacks_nothing_holds(self) -> None:
        assert one("validity", {1: "s1.1 d1.1", 2: "s2.1 d2.1 end"}).verdict == "holds"

    def test_own_deliveries_implied_by_the_sends(self) -> None:
        logs = {1: "s1.1 d2.1", 2: "s2.1 d1.1"}
        assert one("validity", logs).violations == 2
        assert one("agreement", logs).violations == 2
        verdicts = check(trace(logs), implied_own_deliveries=True)
        for name in ("integrity", "validity", "agreement", "fifo"):
            assert verdicts[name].verdict == "holds", name
        assert verdicts["integrity"].examined == 4
        assert verdicts["total"].verdict == "violated"  # each delivers its own first

    def test_own_deliveries_that_are_there_are_not_implied_again(self) -> None:
        logs = {1: "s1.1 s1.2 d1.1 x1.2 s1.1"}
        assert one("integrity", logs, implied_own_deliveries=True).violations == 1  # the repeated send alone
        assert result(one("integrity", {1: "s1.1 s1.1"}, implied_own_deliveries=True)) == ("violated", 1, 1)


class TestAgreement:
    def test_missing_delivery_counts_once_however_many_have_it(self) -> None:
        verdict = one("agreement", {1: "s1.1 d1.1", 2: "d1.1", 3: "s3.1", 4: "d1.1 s4.1 d4.1"})
        assert result(verdict) == ("violated", 4, 4)  # 1.1 at 3; 4.1 at 1, 2, 3
        assert [w.member for w in verdict.witnesses] == [1, 2, 3, 3]
        assert shown(verdict, 2) == ["d1.1 at 1"]
        assert verdict.witnesses[2].why == (
            "member 3 neither delivers nor discards message 1 of 1, which member 1 delivers in view 0"
        )

    def test_discarding_is_as_good_as_delivering_and_obliges_nobody(self) -> None:
        assert result(one("agreement", {1: "s1.1 d1.1", 2: "x1.1"})) == ("holds", 1, 0)
        assert result(one("agreement", {1: "s1.1 x1.1", 2: "s2.1"})) == ("unknown", 0, 0)

    def test_alone_there_is_nothing_to_examine(self) -> None:
        assert result(one("agreement", {1: "s1.1 d1.1"})) == ("unknown", 0, 0)

    @pytest.mark.parametrize("gone", ["crash", "leave"])
    def test_one_that_crashed_or_left_owes_nothing_and_obliges_nobody(self, gone: str) -> None:
        assert one("agreement", {1: "s1.1 d1.1", 2: "d1.1", 3: gone}).verdict == "holds"
        logs = {1: "s1.1", 2: "s2.1", 3: f"d1.1 {gone}"}
        assert result(one("agreement", logs)) == ("unknown", 0, 0)
        assert result(one("agreement", logs, uniform=True)) == ("violated", 1, 2)

    def test_members_that_install_the_same_next_view_go_on_together(self) -> None:
        assert one("agreement", {1: "v1(1,2) s1.1 d1.1 v2(1,2)", 2: "v1(1,2) v2(1,2)"}).verdict == "violated"
        assert one("agreement", {1: "v1(1,2) s1.1 d1.1 v2(1)", 2: "v1(1,2) v3(2)"}).verdict == "unknown"
        assert one("agreement", {1: "v1(1,2) s1.1 d1.1 v2(1)", 2: "v1(1,2)"}).verdict == "unknown"

    def test_a_later_crash_does_not_matter_to_a_view_that_was_left_behind(self) -> None:
        logs = {1: "v1(1,2) s1.1 d1.1 v2(1,2) crash", 2: "v1(1,2) v2(1,2)"}
        assert one("agreement", logs).verdict == "violated"

    def test_a_joiner_does_not_owe_what_was_delivered_before(self) -> None:
        logs = {1: "v1(1) s1.1 d1.1 v2(1,2) s1.2 d1.2", 2: "v2(1,2) d1.2"}
        assert result(one("agreement", logs)) == ("holds", 2, 0)

    def test_delivery_in_a_later_view_is_not_missing(self) -> None:
        logs = {1: "v1(1,2) s1.1 d1.1 v2(1,2)", 2: "v1(1,2) v2(1,2) d1.1"}
        assert one("agreement", logs).verdict == "holds"

    def test_who_goes_on_in_another_view_leaves_nothing_undecided(self) -> None:
        """Both logs are whole: that 2 counts 1 in its next view does not matter, for 1 went on without 2."""
        logs = {1: "v1(1,2,3) s1.1 d1.1 v2(1,3) end", 2: "v1(1,2,3) v2(1,2) end", 3: "v1(1,2,3) d1.1 v2(1,3) end"}
        assert result(one("agreement", logs)) == ("holds", 2, 0)

    def test_a_view_is_its_number_and_its_members(self) -> None:
        logs = {1: "v1(1,2) v2(1) s1.1 d1.1", 2: "v1(1,2) v2(2) s2.1 d2.1"}  # a partition: both sides say 2
        assert one("agreement", logs).verdict == "unknown"

    def test_the_view_of_an_event_is_the_last_installed_not_its_column(self) -> None:
        logs = {1: "v1(1,2) s1.1 d1.1 v2(1)", 2: "v1(1,2) v3(2)"}
        events = [msgspec.structs.replace(e, view=2) if e.event == "deliver" else e for e in trace(logs)]
        assert check(events)["agreement"].verdict == "unknown"

    def test_order_of_the_members_in_a_view_is_no_matter(self) -> None:
        assert one("agreement", {1: "v1(1,2) s1.1 d1.1", 2: "v1(2,1)"}).verdict == "violated"

    def test_one_that_leaves_and_comes_back_does_not_go_on_from_the_view_it_left(self) -> None:
        logs = {1: "v1(1,2) s1.1 d1.1 v2(1,2)", 2: "v1(1,2) leave v2(1,2)"}
        assert one("agreement", logs).verdict == "unknown"

    def test_installing_the_view_one_has_left_does_not_bring_one_back(self) -> None:
        assert one("agreement", {1: "v1(1,2) s1.1 d1.1", 2: "v1(1,2) leave v1(1,2)"}).verdict == "unknown"

    def test_two_that_are_gone_do_not_go_on_together(self) -> None:
        logs = {1: "s1.1 d1.1 crash", 2: "crash", 3: "d1.1"}
        assert one("agreement", logs).verdict == "unknown"
        assert result(one("agreement", logs, uniform=True)) == ("holds", 1, 0)

    def test_uniform_obliges_those_who_go_on_from_the_view(self) -> None:
        logs = {
            1: "v1(1,2,3) s1.1 d1.1 crash",
            2: "v1(1,2,3) v2(2,3)",
            3: "v1(1,2,3) v2(2,3) s3.1 d3.1 crash",
            4: "v3(4)",
        }
        assert one("agreement", logs).verdict == "unknown"
        verdict = one("agreement", logs, uniform=True)
        assert result(verdict) == ("violated", 2, 3)
        assert [(w.member, w.events[0].sender) for w in verdict.witnesses] == [(2, 1), (2, 3), (3, 1)]

    def test_cut_short_is_unknown(self) -> None:
        assert one("agreement", {1: "s1.1 d1.1 end", 2: "s2.1"}).verdict == "unknown"
        assert one("agreement", {1: "s1.1 d1.1", 2: "s2.1 end"}).verdict == "violated"

    def test_cut_short_before_the_next_view_is_unknown_if_that_view_names_it(self) -> None:
        assert one("agreement", {1: "v1(1,2) s1.1 d1.1 v2(1,2) end", 2: "v1(1,2)"}).verdict == "unknown"
        others = "s3.1 d3.1 v2(1,3) end"
        logs = {1: "v1(1,2,3) d3.1 v2(1,3) end", 2: "v1(1,2,3)", 3: f"v1(1,2,3) {others}"}
        assert result(one("agreement", logs)) == ("holds", 2, 0)
        logs = {1: "v1(1,2,3) d3.1 v2(1,2,3) end", 2: "v1(1,2,3)", 3: "v1(1,2,3) s3.1 d3.1 v2(1,2,3) end"}
        assert result(one("agreement", logs)) == ("unknown", 2, 0)

    def test_cut_short_owes_nothing_that_is_known_not_to_oblige_it(self) -> None:
        together = "v2(1,2,3) end"
        logs = {1: f"v1(1,2,3) s1.1 d1.1 {together}", 2: "v1(1,2,3) v3(2)", 3: f"v1(1,2,3) d1.1 {together}"}
        assert result(one("agreement", logs)) == ("holds", 2, 0)  # 2 went another way
        logs = {1: "s1.1 d1.1 crash", 2: "d3.1", 3: "s3.1 d3.1 end"}
        assert result(one("agreement", logs)) == ("holds", 2, 0)  # 1 is gone

    def test_deliverer_cut_short_is_unknown_if_the_other_goes_on_with_it(self) -> None:
        both = {3: "v1(1,2,3) s3.1 d3.1 v2(1,2,3) end", 2: "v1(1,2,3) d3.1 v2(1,2,3) end"}
        assert one("agreement", both | {1: "v1(1,2,3) d3.1 s1.1 d1.1"}).verdict == "unknown"
        both = {3: "v1(1,2,3) s3.1 d3.1 v2(2,3) end", 2: "v1(1,2,3) d3.1 v2(2,3) end"}
        assert one("agreement", both | {1: "v1(1,2,3) d3.1 s1.1 d1.1"}).verdict == "holds"

    def test_a_member_of_the_view_whose_whole_log_is_lost_is_unknown(self) -> None:
        logs = {1: "v1(1,2,3) s1.1 d1.1 end", 2: "v1(1,2,3) d1.1 end"}
        assert one("agreement", logs).verdict == "unknown"
        logs = {1: "v1(1,2) s1.1 d1.1 end", 2: "v1(1,2) d1.1 end"}
        assert one("agreement", logs).verdict == "holds"


class TestFifo:
    def test_late_delivery(self) -> None:
        verdict = one("fifo", {1: "s1.1 s1.2 s1.3", 2: "d1.1 d1.3 d1.2"})
        assert result(verdict) == ("violated", 3, 1)
        assert shown(verdict) == ["d1.3", "d1.2"]

    def test_a_number_that_never_comes_is_not_fifos_matter(self) -> None:
        assert one("fifo", {1: "s1.1 s1.2 s1.3", 2: "d1.1 d1.3"}).verdict == "holds"

    def test_senders_are_independent(self) -> None:
        assert one("fifo", {1: "d1.5 d2.1 d1.6 d2.2"}).verdict == "holds"

    def test_a_repeat_counts_only_if_it_comes_late(self) -> None:
        assert one("fifo", {1: "d1.1 d1.1"}).verdict == "holds"
        verdict = one("fifo", {1: "d1.1 d1.2 d1.3 d1.1 d1.2"})
        assert result(verdict) == ("violated", 5, 2)

    def test_a_discard_is_no_delivery(self) -> None:
        assert one("fifo", {1: "d1.2 x1.1"}).verdict == "holds"


class TestCausal:
    def test_answer_before_question(self) -> None:
        verdict = one("causal", {1: "s1.1 d1.1 d2.1", 2: "d1.1 s2.1 d2.1", 3: "d2.1 d1.1"})
        assert result(verdict) == ("violated", 3, 1)
        assert shown(verdict) == ["d1.1 at 2", "s2.1 at 2", "d2.1", "d1.1"]
        assert verdict.witnesses[0].member == 3
        assert verdict.witnesses[0].why == (
            "member 3 delivers message 1 of 2 before it delivers or discards message 1 of 1, which happened before it"
        )

    def test_own_sends_are_in_order(self) -> None:
        assert one("causal", {1: "s1.1 s1.2", 2: "d1.2 d1.1"}).violations == 1
        assert one("causal", {1: "s1.1 s1.2 d1.2 d1.1"}).violations == 1  # at the sender itself, too

    def test_a_predecessor_that_never_comes_is_lacking_too(self) -> None:
        verdict = one("causal", {1: "s1.1 s1.2", 2: "d1.2"})
        assert shown(verdict) == ["s1.1 at 1", "s1.2 at 1", "d1.2"]

    def test_one_violation_a_delivery_not_one_a_predecessor(self) -> None:
        logs = {1: "s1.1 s1.2", 2: "d1.1 d1.2 s2.1", 3: "d2.1 d1.1 d1.2"}
        verdict = one("causal", logs)
        assert verdict.violations == 1
        assert shown(verdict)[0] == "d1.1 at 2"

    def test_transitively_the_break_is_counted_where_a_direct_predecessor_lacks(self) -> None:
        logs = {1: "s1.1", 2: "d1.1 s2.1", 3: "d1.1 d2.1 s3.1", 4: "d2.1 d3.1 d1.1"}
        assert one("causal", logs).violations == 2  # 2.1 lacks 1.1; 3.1 has 2.1 but lacks 1.1, which 3 delivered too
        logs = {1: "s1.1", 2: "d1.1 s2.1", 3: "d1.1 s3.1 d2.1 s3.2", 4: "d3.1"}
        assert one("causal", logs).violations == 1

    def test_concurrent_messages_may_come_in_any_order(self) -> None:
        logs = {1: "s1.1 d1.1 d2.1 s1.2", 2: "s2.1 d2.1 d1.1", 3: "d2.1 d1.1"}
        assert result(one("causal", logs)) == ("unknown", 0, 0)  # nobody handles a message that has a predecessor

    def test_what_was_delivered_before_the_previous_send_is_no_direct_predecessor(self) -> None:
        logs = {1: "s1.1", 2: "d1.1 s2.1 s2.2", 3: "d2.1 d2.2"}
        assert one("causal", logs).violations == 1  # 2.1 lacks 1.1; 2.2 lacks nothing direct

    def test_discards_stand_in_for_deliveries_at_the_receiver(self) -> None:
        assert one("causal", {1: "s1.1", 2: "d1.1 s2.1", 3: "x1.1 d2.1"}).verdict == "holds"

    def test_a_discard_too_must_not_come_before_its_predecessor(self) -> None:
        verdict = one("causal", {1: "s1.1", 2: "d1.1 s2.1", 3: "x2.1 d1.1"})
        assert verdict.violations == 1
        assert "discards message 1 of 2" in verdict.witnesses[0].why

    def test_discards_by_the_sender_create_no_dependency(self) -> None:
        assert one("causal", {1: "s1.1", 2: "x1.1 s2.1", 3: "d2.1 d1.1"}).verdict == "unknown"

    def test_receipts_count_by_option(self) -> None:
        logs = {1: "s1.1", 2: "r1.1 s2.1 d1.1", 3: "d2.1 d1.1"}
        assert one("causal", logs).verdict == "unknown"
        verdict = one("causal", logs, happened_before="receive")
        assert verdict.verdict == "violated"
        assert shown(verdict)[0] == "r1.1 at 2"

    def test_with_receipts_deliveries_still_count(self) -> None:
        logs = {1: "s1.1", 2: "r1.1 s2.1 d1.1 s2.2", 3: "d2.1 d2.2 d1.1"}
        assert one("causal", logs).violations == 1
        assert one("causal", logs, happened_before="receive").violations == 2

    def test_first_receipts_count(self) -> None:
        logs = {1: "s1.1", 2: "r1.1 s2.1 r1.1 s2.2", 3: "d2.1 d2.2"}
        assert one("causal", logs, happened_before="receive").violations == 1

    def test_no_message_is_its_own_predecessor(self) -> None:
        assert one("causal", {1: "d1.1 s1.1", 2: "d1.1"}).verdict == "unknown"

    def test_only_messages_sent_in_views_that_the_member_belongs_to(self) -> None:
        joins = {1: "v1(1,2) s1.1 d1.1 v2(1,2,3) s1.2 d1.2", 2: "v1(1,2) d1.1 v2(1,2,3) d1.2"}
        assert result(one("causal", joins | {3: "v2(1,2,3) d1.2"})) == ("holds", 2, 0)
        assert one("causal", joins | {3: "v1(1,2,3) v2(1,2,3) d1.2"}).verdict == "holds"  # its v1 is not 1's v1
        founds = {m: text.replace("v1(1,2)", "v1(1,2,3)") for m, text in joins.items()}
        assert one("causal", founds | {3: "v2(1,2,3) d1.2"}).verdict == "violated"

    def test_first_deliveries_count(self) -> None:
        logs = {1: "s1.1 s1.2", 2: "d1.1 d1.2 d1.1"}  # the late repeat is fifo's matter
        assert one("causal", logs).verdict == "holds"
        logs = {1: "s1.1", 2: "d1.1 s2.1 d1.1 s2.2", 3: "d2.1 d2.2"}  # the repeat makes no new dependency
        assert one("causal", logs).violations == 1

    def test_messages_that_nobody_sent_are_integritys_matter(self) -> None:
        assert one("causal", {1: "d2.7 s1.1", 2: "d2.8 d1.1"}).verdict == "unknown"

    def test_the_past_of_a_message_whose_send_was_cut_off_is_unknown(self) -> None:
        logs = {1: "s1.1 s1.2 d1.1 d1.2 end", 2: "d1.1 d1.2"}
        assert one("causal", logs).verdict == "holds"
        assert one("causal", {1: logs[1].replace("end", "d2.1 end"), 2: logs[2]}).verdict == "unknown"

    def test_a_cut_short_log_hides_nothing_that_comes_before_a_delivery(self) -> None:
        assert one("causal", {1: "s1.1 s1.2 end", 2: "d1.2"}).verdict == "violated"


class TestTotal:
    def test_different_orders(self) -> None:
        verdict = one("total", {1: "s1.1 d1.1 d2.1", 2: "s2.1 d2.1 d1.1"})
        assert result(verdict) == ("violated", 1, 1)
        assert shown(verdict) == ["d1.1", "d2.1", "d2.1 at 2", "d1.1 at 2"]

    def test_a_pair_counts_once_however_often_it_disagrees(self) -> None:
        verdict = one("total", {1: "d1.1 d2.1 d1.2 d2.2", 2: "d2.1 d1.1 d2.2 d1.2", 3: "d1.1 d2.1 d1.2 d2.2"})
        assert result(verdict) == ("violated", 3, 2)
        assert [(w.member, w.events[-1].member) for w in verdict.witnesses] == [(1, 2), (2, 3)]

    def test_only_common_messages_count(self) -> None:
        assert result(one("total", {1: "d1.1 d3.1 d2.1", 2: "d1.1 d4.1 d2.1"})) == ("holds", 1, 0)

    def test_one_common_message_is_nothing_to_examine(self) -> None:
        assert result(one("total", {1: "d1.1 d2.1", 2: "d2.1"})) == ("unknown", 0, 0)

    def test_pairs_with_nothing_in_common_do_not_end_the_search(self) -> None:
        logs = {1: "d1.1 d2.1", 2: "d1.1", 3: "d2.1 d1.1", 4: "d4.1"}
        assert result(one("total", logs)) == ("violated", 1, 1)

    def test_a_distant_inversion_is_found(self) -> None:
        verdict = one("total", {1: "d1.1 d1.2 d1.3 d2.1", 2: "d2.1 d1.1 d1.2 d1.3"})
        assert shown(verdict) == ["d1.3", "d2.1", "d2.1 at 2", "d1.3 at 2"]

    def test_first_deliveries_count(self) -> None:
        assert one("total", {1: "d1.1 d2.1", 2: "d1.1 d2.1 d1.1"}).verdict == "holds"
        assert one("total", {1: "d1.1 d2.1 d1.1", 2: "d2.1 d1.1"}).verdict == "violated"

    @pytest.mark.parametrize("gone", ["crash", "leave"])
    def test_plain_total_order_does_not_bind_those_who_crashed_or_left(self, gone: str) -> None:
        logs = {1: "d1.1 d2.1", 2: "d1.1 d2.1", 3: f"d2.1 d1.1 {gone}"}
        assert result(one("total", logs)) == ("holds", 1, 0)
        assert result(one("total", logs, uniform=True)) == ("violated", 3, 2)

    def test_the_view_of_the_deliveries_decides_not_a_later_crash(self) -> None:
        logs = {1: "v1(1,2) d1.1 d2.1 v2(1,2)", 2: "v1(1,2) d2.1 d1.1 v2(1,2) crash"}
        assert one("total", logs).verdict == "violated"

    def test_sides_of_a_partition_may_differ_in_the_view_they_part_from(self) -> None:
        logs = {1: "v1(1,2) d1.1 d2.1 v2(1)", 2: "v1(1,2) d2.1 d1.1 v2(2)"}
        assert one("total", logs).verdict == "unknown"
        assert one("total", logs, uniform=True).verdict == "violated"

    def test_order_across_views(self) -> None:
        logs = {1: "v1(1,2) d1.1 v2(1,2) d2.1", 2: "v1(1,2) d2.1 v2(1,2) d1.1"}
        assert one("total", logs).verdict == "violated"

    def test_discards_do_not_count(self) -> None:
        assert one("total", {1: "d1.1 d2.1 d3.1", 2: "x2.1 d1.1 d3.1"}).verdict == "holds"


class TestStability:
    def test_everybody_received_or_delivered(self) -> None:
        assert result(one("stability", {1: "s1.1 s1.2 m1.2", 2: "r1.1 d1.2", 3: "d1.1 r1.2"})) == ("holds", 1, 0)

    def test_a_mark_covers_all_up_to_its_number(self) -> None:
        verdict = one("stability", {1: "s1.1 s1.2 m1.2 m1.2", 2: "r1.2"})
        assert result(verdict) == ("violated", 2, 2)
        assert shown(verdict) == ["m1.2"]
        assert verdict.witnesses[0].why == (
            "member 1 marks message 2 of 1 stable, but member 2 never receives message 1 of 1"
        )

    def test_a_discard_is_no_receipt(self) -> None:
        assert one("stability", {1: "s1.1 m1.1", 2: "x1.1"}).verdict == "violated"
        assert one("stability", {1: "s1.1 m1.1", 2: "r1.1 x1.1"}).verdict == "holds"

    def test_the_marked_message_must_exist(self) -> None:
        assert one("stability", {1: "s1.1 m1.2", 2: "r1.1"}).verdict == "violated"
        assert one("stability", {1: "s1.1 m1.2", 2: "r1.1 end"}).verdict == "unknown"  # it may be in the lost tail
        assert one("stability", {1: "s1.1 m9.1 end", 2: "r1.1 end"}).verdict == "violated"

    def test_other_numbers_that_nobody_sent_are_no_messages(self) -> None:
        assert one("stability", {1: "s1.3 s1.7 m1.7", 2: "r1.3 r1.7"}).verdict == "holds"

    def test_a_crashed_member_of_the_view_counts(self) -> None:
        assert one("stability", {1: "s1.1 m1.1", 2: "r1.1", 3: "crash"}).verdict == "violated"

    def test_cut_short_is_unknown(self) -> None:
        assert one("stability", {1: "s1.1 m1.1 end", 2: "s2.1"}).verdict == "unknown"
        assert one("stability", {1: "v1(1,2) s1.1 m1.1 end"}).verdict == "unknown"  # the log of 2 is lost

    def test_members_are_those_of_the_view_of_the_mark(self) -> None:
        logs = {1: "v1(1,2,3) s1.1 v2(1,2) m1.1", 2: "v1(1,2,3) r1.1 v2(1,2)", 3: "v1(1,2,3) crash"}
        assert one("stability", logs).verdict == "holds"
        logs[1] = "v1(1,2,3) s1.1 m1.1 v2(1,2)"
        assert one("stability", logs).verdict == "violated"

    def test_a_joiner_need_not_have_what_was_sent_before(self) -> None:
        logs = {1: "v1(1) s1.1 v2(1,2) s1.2 m1.2", 2: "v2(1,2) r1.2"}
        assert one("stability", logs).verdict == "holds"

    def test_a_global_clock_tells_too_early_from_in_time(self) -> None:
        logs = {1: "s1.1@1 m1.1@5", 2: "r1.1@6 d1.1@7"}
        assert one("stability", logs).verdict == "holds"
        verdict = one("stability", logs, global_clock=True)
        assert result(verdict) == ("violated", 1, 1)
        assert shown(verdict) == ["m1.1", "r1.1 at 2"]
        assert one("stability", logs, global_clock=["r"]).verdict == "violated"
        assert one("stability", logs, global_clock=["another run"]).verdict == "holds"
        assert one("stability", {1: "s1.1@1 m1.1@5", 2: "r1.1@5"}, global_clock=True).verdict == "holds"

    def test_the_sender_holds_its_own(self) -> None:
        logs = {1: "s1.1@1 d1.1@9", 2: "r1.1@2 m1.1@3"}
        assert one("stability", logs, global_clock=True).verdict == "holds"


class TestViewSynchrony:
    def test_one_delivers_in_the_first_view_and_the_other_does_not(self) -> None:
        logs = {1: "v1(1,2) s1.1 d1.1 v2(1,2)", 2: "v1(1,2) v2(1,2) d1.1"}
        verdict = one("view-synchrony", logs)
        assert result(verdict) == ("violated", 1, 1)
        assert shown(verdict) == ["d1.1"]
        assert verdict.witnesses[0].why == (
            "member 1 delivers message 1 of 1 in view 1, member 2 does not, and both install view 2 next"
        )

    def test_counts_pairs_and_views(self) -> None:
        logs = {
            1: "v1(1,2,3) d1.1 v2(1,2,3) d1.2 v3(1,2,3)",
            2: "v1(1,2,3) d1.1 v2(1,2,3) d1.2 v3(1,2,3)",
            3: "v1(1,2,3) v2(1,2,3) v3(1,2,3)",
        }
        verdict = one("view-synchrony", logs)
        assert result(verdict) == ("violated", 6, 4)
        assert [(w.member, w.events[0].seq) for w in verdict.witnesses] == [(1, 1), (1, 2), (2, 1), (2, 2)]

    def test_witness_is_the_smallest_message_that_differs(self) -> None:
        logs = {1: "v1(1,2) d1.2 d2.1 v2(1,2)", 2: "v1(1,2) d1.3 v2(1,2)"}
        assert shown(one("view-synchrony", logs)) == ["d1.2"]

    def test_witness_at_the_smaller_member_even_if_the_other_delivered(self) -> None:
        logs = {1: "v1(1,2) v2(1,2)", 2: "v1(1,2) s2.1 d2.1 v2(1,2)"}
        verdict = one("view-synchrony", logs)
        assert (verdict.witnesses[0].member, shown(verdict)) == (1, ["d2.1 at 2"])

    def test_unknown_where_no_examined_view_has_a_delivery(self) -> None:
        assert result(one("view-synchrony", {1: "v1(1,2) v2(1,2) d1.1", 2: "v1(1,2) v2(1,2)"})) == ("unknown", 0, 0)

    def test_only_views_that_both_install_in_a_row(self) -> None:
        logs = {1: "v1(1,2) d1.1 v2(1)", 2: "v1(1,2) v2(2)"}
        assert one("view-synchrony", logs).verdict == "unknown"
        logs = {1: "v1(1,2) d1.1 v2(1,2) v3(1,2)", 2: "v1(1,2) v3(1,2)"}
        assert one("view-synchrony", logs).verdict == "unknown"
        logs = {1: "v1(1,2) d1.1 v2(1,2)", 2: "v1(1,2) crash v2(1,2)"}
        assert one("view-synchrony", logs).verdict == "unknown"

    def test_views_that_are_not_examined_do_not_end_the_search(self) -> None:
        apart = {1: "v1(1) v2(1,2) d1.1 v3(1,2)", 2: "v2(1,2) v3(1,2)"}
        assert result(one("view-synchrony", apart)) == ("violated", 1, 1)
        quiet = {1: "v1(1,2) v2(1,2) d1.1 v3(1,2)", 2: "v1(1,2) v2(1,2) v3(1,2)"}
        assert result(one("view-synchrony", quiet)) == ("violated", 1, 1)

    def test_the_last_view_is_not_followed(self) -> None:
        assert one("view-synchrony", {1: "v1(1,2) d1.1", 2: "v1(1,2)"}).verdict == "unknown"

    def test_what_comes_before_the_first_view_is_in_no_installed_view(self) -> None:
        logs = {1: "s1.1 d1.1 v1(1,2)", 2: "v1(1,2)"}
        assert one("view-synchrony", logs).verdict == "unknown"
        assert one("agreement", logs).verdict == "violated"

    def test_order_is_no_matter_and_discards_are_honoured(self) -> None:
        logs = {1: "v1(1,2) d1.1 d2.1 v2(1,2)", 2: "v1(1,2) d2.1 x1.1 v2(1,2)"}
        assert result(one("view-synchrony", logs)) == ("holds", 1, 0)

    def test_a_repeat_in_the_next_view_is_integritys_matter(self) -> None:
        logs = {1: "v1(1,2) d1.1 v2(1,2) d1.1 v3(1,2)", 2: "v1(1,2) d1.1 v2(1,2) v3(1,2)"}
        assert one("view-synchrony", logs).verdict == "holds"

    def test_installing_the_current_view_again_changes_nothing(self) -> None:
        logs = {1: "v1(1,2) d1.1 v1(1,2) d1.2 v2(1,2)", 2: "v1(1,2) d1.1 d1.2 v2(1,2)"}
        assert result(one("view-synchrony", logs)) == ("holds", 1, 0)


class TestBrokers:
    """A client's log in words: `s1`, `ack1` and `d1` are about number 1 of client 1, in topic t."""

    @staticmethod
    def verdict(guarantee: str, logs: dict[int, str]) -> tuple[str, int, int]:
        events = []
        for member, text in logs.items():
            for step, word in enumerate(text.split()):
                kind, number = word.rstrip("0123456789"), word.lstrip("abcdefghijklmnopqrstuvwxyz")
                detail = {"ack": "acknowledged", "sub": "subscribed", "unsub": "unsubscribed"}.get(kind)
                event = {"s": "send", "d": "deliver", "x": "discard"}.get(kind, "control")
                message = (1, int(number)) if number else (None, None)
                events.append(Event("r", member, step, event, *message, detail=detail, topic="t"))
        return result(check(events, guarantees=[guarantee])[guarantee])

    def test_what_the_broker_acknowledged_every_subscriber_takes(self) -> None:
        assert self.verdict("at-least-once", {1: "s1 ack1", 2: "sub d1"}) == ("holds", 1, 0)
        assert self.verdict("at-least-once", {1: "s1 ack1", 2: "sub x1"}) == ("holds", 1, 0)
        assert self.verdict("at-least-once", {1: "s1 ack1", 2: "sub"}) == ("violated", 1, 1)
        assert self.verdict("at-least-once", {1: "s1", 2: "sub"}) == ("unknown", 0, 0)

    def test_what_one_is_given_the_others_are_too(self) -> None:
        assert self.verdict("at-least-once", {1: "s1", 2: "sub d1", 3: "sub"}) == ("violated", 1, 1)

    def test_who_has_unsubscribed_is_owed_nothing_more(self) -> None:
        logs = {1: "s1 ack1 s2 ack2", 2: "sub d1 unsub"}
        assert self.verdict("at-least-once", logs) == ("holds", 1, 0)
        assert self.verdict("at-least-once", {1: "s1 ack1", 2: "sub", 3: "unsub"}) == ("violated", 1, 1)

    def test_who_never_subscribed_is_owed_what_follows_its_first(self) -> None:
        logs = {1: "s1 ack1 s2 ack2 s3 ack3", 2: "d2"}
        assert self.verdict("at-least-once", logs) == ("violated", 2, 1)

    def test_again_is_twice_and_out_of_no_order(self) -> None:
        logs = {1: "s1 s2", 2: "d1 d2 d1"}
        assert self.verdict("at-most-once", logs) == ("violated", 3, 1)
        assert self.verdict("partition-order", logs) == ("holds", 2, 0)
        assert self.verdict("partition-order", {1: "s1 s2", 2: "d2 d1"}) == ("violated", 2, 1)


class TestRowsPutAside:
    def test_a_row_whose_event_cannot_be_read_makes_all_unknown(self) -> None:
        assert {v.verdict for v in check(trace(CLEAN), unreadable=[None]).values()} == {"unknown"}

    def test_only_what_the_row_could_affect(self) -> None:
        verdicts = check(trace(CLEAN), unreadable=["stable", "control"])
        assert {name for name, v in verdicts.items() if v.verdict == "unknown"} == {"stability", "view-synchrony"}
        receive = check(trace(CLEAN), unreadable=["receive"])["causal"]
        assert receive.verdict == "holds"
        assert check(trace(CLEAN), unreadable=["receive"], happened_before="receive")["causal"].verdict == "unknown"

    def test_what_no_row_can_undo_stays_violated(self) -> None:
        verdicts = check(trace({1: "s1.1 s1.2 d1.2 d1.1 d1.1", 2: "d1.9"}), unreadable=[None])
        violated = {name for name, verdict in verdicts.items() if verdict.verdict == "violated"}
        assert violated == {"integrity", "fifo"}
        assert verdicts["agreement"].violations > 0

    def test_a_lost_send_may_explain_a_delivery_without_one(self) -> None:
        assert check(trace({1: "d2.1", 2: "end"}), unreadable=["send"])["integrity"].verdict == "unknown"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nats-core", "corosync-kill", "mosquitto-qos1cut"])
def test_real_traces(name: str) -> None:
    events = read(TRACES / name).events
    expected = json.loads((TRACES / name / "expected.json").read_text())
    uniform = expected.pop("uniform")
    for wanted, verdicts in ((expected, check(events)), (uniform, check(events, uniform=True))):
        for guarantee, verdict in wanted.items():
            found = verdicts[guarantee]
            assert {"verdict": found.verdict, "violations": found.violations} == verdict, guarantee
    assert set(expected) == set(GUARANTEES)


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
def test_no_false_alarm_on_clean_traces(order: str) -> None:
    not_promised = {"fifo": {"causal", "total"}, "causal": {"total"}, "total": set()}[order]
    held = set()
    for seed in range(150):
        clean = sample(seed, order)  # type: ignore[arg-type]
        for uniform in (False, True):
            for name, verdict in check(clean.events, global_clock=True, uniform=uniform).items():
                assert name in not_promised or verdict.verdict != "violated", (seed, name, verdict.witnesses[:1])
                if verdict.verdict == "holds":
                    held.add(name)
    assert held >= set(GUARANTEES) - not_promised


def test_the_orders_are_really_different() -> None:
    """Else the test above would show nothing."""
    broken: dict[str, set[str]] = {"fifo": set(), "causal": set()}
    for order, names in broken.items():
        for seed in range(40):
            verdicts = check(sample(seed, order).events)  # type: ignore[arg-type]
            names |= {name for name, verdict in verdicts.items() if verdict.verdict == "violated"}
    assert broken == {"fifo": {"causal", "total"}, "causal": {"total"}}


@pytest.mark.parametrize("kind", PLANTS)
def test_planted_violations_are_found(kind: str) -> None:
    planted_times = 0
    for seed in range(120):
        base = sample(seed, "total")
        planted = PLANTS[kind](base, random.Random(seed))
        if planted is None:
            continue
        planted_times += 1
        options = {"global_clock": True, "happened_before": planted.happened_before}
        found = check(planted.events, uniform=planted.uniform, **options)  # type: ignore[arg-type]
        verdict = found[planted.guarantee]
        assert verdict.verdict == "violated", seed
        assert verdict.witnesses, seed
        if planted.violations is not None:
            assert verdict.violations == planted.violations, seed
        violated = {name for name, other in found.items() if other.verdict == "violated"}
        assert violated <= {planted.guarantee} | planted.also, seed
        if planted.uniform:
            assert check(planted.events, **options)[planted.guarantee].verdict != "violated"  # type: ignore[arg-type]
    assert planted_times >= 20


def test_a_cut_short_log_raises_no_alarm() -> None:
    """Whatever tail is lost, what is missing is unknown and what is there is still right."""
    for seed in range(100):
        rng = random.Random(seed)
        base = sample(seed, shape=Shape(ends=True, views=seed % 2 == 0, members=3, messages=12))
        victim = rng.choice(sorted(base.logs))
        kept = base.logs[victim][: rng.randrange(1, len(base.logs[victim]))]
        events = [event for member, log in base.logs.items() for event in (kept if member == victim else log)]
        for name, verdict in check(events, global_clock=True).items():
            assert verdict.verdict != "violated", (seed, name, verdict.witnesses[:1])
