"""The page about a trace, from facts given: offline, escaped, small, and saying no more than is known."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

pytest.importorskip("matplotlib")

from antiphon.pipeline.results import CheckResult, GuaranteeResult
from antiphon.report.facts import DrawnWitness, Facts, to_draw
from antiphon.report.guarantee_words import GUARANTEES
from antiphon.report.headline import headline
from antiphon.report.run_settings import buffer_bound, read_settings
from antiphon.report.trace_page import trace_page
from antiphon.report.witness_rows import WitnessRows
from antiphon.trace.event import Event

EVIL = '<script>alert("x")</script> & http://evil.example/'


ABOUT: dict[str, Any] = {"trace": f"out/{EVIL}", "runs": 1, "members": 3, "events": 900, "quarantined": 0}


def guarantee(verdict: str, *, promised: bool = True, witnesses: int = 0) -> GuaranteeResult:
    shown = [
        {
            "run": EVIL,
            "member": 1,
            "events": [{"step": 4 + number, "event": "deliver", "sender": 2, "seq": 1}],
            "why": f"member 1 does it {number} times",
        }
        for number in range(witnesses)
    ]
    violations = witnesses if verdict == "violated" else 0
    found = {"verdict": verdict, "promised": promised, "examined": 7, "violations": violations, "witnesses": shown}
    return msgspec.convert(found, GuaranteeResult)


def checked(**verdicts: GuaranteeResult) -> CheckResult:
    found = {name: guarantee("unknown", promised=False) for name in GUARANTEES}
    named = {name.replace("_", "-"): one for name, one in verdicts.items()}
    return CheckResult(**ABOUT, guarantees=found | named)


def named(**verdicts: GuaranteeResult) -> CheckResult:
    """What a check of some guarantees alone found."""
    return CheckResult(**ABOUT, guarantees=verdicts)


def measured() -> dict[str, Any]:
    times = {"count": 100, **dict.fromkeys(("p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"), 1_500_000)}
    return {
        **ABOUT,
        "clock": "global",
        "rows": {"send": 50, "deliver": 100},
        "latency": {"delivery": times, "everywhere": None, "stable": times},
        "buffer": {"run": "r", "member": 1, "peak": 12, "at_ns": 5},
        "traffic": {f"kind {number} {EVIL}": {"count": number, "bytes": 10 * number} for number in range(1, 40)}
        | {"send": {"count": 50, "bytes": 5000}},
        "overhead": 0.5,
        "retransmissions": 3,
        "duplicates": 1,
        "held_back": [
            {"run": "r", "member": 2, "last": 30, "lacked": 0, "waited_ns": 9_000_000, "longest_ns": 1_000_000},
            {"run": "r", "member": 1, "last": 20, "lacked": 0, "waited_ns": 1_000_000, "longest_ns": 500_000},
        ],
        "repairs": [],
        "relative_error": 0.0,
        "unknown": {"everywhere": "no clock"},
    }


def facts(**given: Any) -> Facts:
    usual: dict[str, Any] = {
        **ABOUT,
        "checked": checked(fifo=guarantee("holds"), total=guarantee("violated", promised=False, witnesses=1)),
        "measured": measured(),
        "run": {"run": "r", "members": 3, "rows": 900, "first_ns": 0, "last_ns": 2_000_000_000},
        "histogram": [
            {"measure": name, "low_ns": 1 << 20, "high_ns": 1 << 21, "count": 100} for name in ("delivery", "stable")
        ],
        "occupancy": [{"run": "r", "start_ns": n, "end_ns": n + 1, "mean": 1.5, "peak": 12} for n in range(200)],
        "waiting": [
            {"run": "r", "member": member, "start_ns": n, "end_ns": n + 1, "messages": 0.5 * n}
            for member in (1, 2, None)
            for n in range(100)
        ],
        "repair_matrix": [{"run": "r", "repairer": "1", "target": "2", "count": 3}],
    }
    return msgspec.convert(msgspec.to_builtins({**usual, **given}), Facts)


class Outline(HTMLParser):
    """Headings in order, every address, and whether tags close as they open."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr", "path", "rect", "use", "circle", "line"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data", "srcset")]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


AROUND = WitnessRows(
    events=[
        Event(EVIL, member=2, step=1, time_ns=10, event="send", sender=2, seq=1, detail=EVIL),
        Event(EVIL, member=1, step=4, time_ns=20, event="deliver", sender=2, seq=1),
    ],
    marked=[(1, 4)],
    drawn=2,
    members=3,
)


@pytest.mark.slow
def test_a_page_stands_by_itself() -> None:
    broken = checked(fifo=guarantee("violated", witnesses=4))
    page = trace_page(facts(checked=broken, drawn=[DrawnWitness(one, AROUND) for one in to_draw(broken)]))
    outline = Outline(page)
    assert all(address.startswith(("#", "data:,")) for address in outline.addresses)
    outside = re.sub(r'xmlns="[^"]*"', "", page).replace("http://evil.example/", "")
    assert not re.search(r"https?:|@import|url\((?!#)", outside)
    assert "alert(" not in page.replace("alert(&#34;", ""), "what a trace says is text"
    assert len(page) < 400_000
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(outline.headings, outline.headings[1:], strict=False))
    assert page.count('<article class="witness"') == 4
    assert page.count('<details class="folded"') == 2
    assert page.count('<figure class="diagram"') == 4
    assert trace_page(facts()) == trace_page(facts())


def test_every_figure_has_words_and_numbers_behind_it() -> None:
    page = trace_page(facts())
    charts = re.findall(r'<figure class="chart">.*?</figure>', page, re.DOTALL)
    assert len(charts) == 3
    for chart in charts:
        assert re.search(r'<svg role="img" aria-label="[^"]{40,}"', chart)
        assert "<table>" in chart


def test_of_many_who_repaired_those_with_most_come_first() -> None:
    counted = {("3", "8"): 2, ("5", "9"): 7, ("4", "8"): 5, ("others", "9"): 30, ("5", "others"): 1}
    rows = [{"run": "r", "repairer": one, "target": other, "count": number} for (one, other), number in counted.items()]
    shown = trace_page(facts(repair_matrix=rows)).split('id="repairs"')[1]
    assert re.findall(r"Member (\d+)<", shown)[:3] == ["5", "4", "3"]
    assert re.findall(r">(\d+|others)</th>", shown.split("</thead>")[0]) == ["9", "8", "others"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"checked": checked(fifo=guarantee("holds"), total=guarantee("holds"))}, "All 2 promised guarantees hold."),
        ({"checked": checked(fifo=guarantee("holds"))}, "Sender order holds."),
        (
            {"checked": checked(fifo=guarantee("violated", witnesses=1))},
            "Member 1 does it 0 times. Sender order is broken.",
        ),
        (
            {"checked": checked(fifo=guarantee("violated", witnesses=1), causal=guarantee("violated", witnesses=1))},
            "Member 1 does it 0 times. Sender order and Causal order are broken.",
        ),
        (
            {"checked": checked(fifo=guarantee("holds"), view_synchrony=guarantee("unknown"))},
            "View synchrony cannot be decided; the other promised guarantee holds.",
        ),
        (
            {"checked": checked(fifo=guarantee("holds", promised=False), total=guarantee("holds", promised=False))},
            "All 2 examined guarantees hold.",
        ),
        ({"checked": named(fifo=guarantee("holds", promised=False))}, "Sender order holds."),
        ({"checked": checked()}, "Nothing could be examined."),
        ({"checked": None}, "Not checked."),
        ({"events": 0}, "The trace is empty."),
    ],
)
def test_the_headline_claims_what_is_known(given: dict[str, Any], said: str) -> None:
    known = facts(**given, measured=None)
    assert headline(known) == said
    top = re.sub("<.*?>", "", trace_page(known).split("<h1 class=", 1)[1].split(">", 1)[1].split("</h1>")[0])
    assert " ".join(re.sub("[✓✗?!–]", " ", top).split()) == said


def test_guarantees_that_were_named_decide_else_the_promised_else_the_known() -> None:
    assert named(total=guarantee("unknown", promised=False)).deciding() == ["total"]
    assert checked(fifo=guarantee("unknown"), total=guarantee("holds", promised=False)).deciding() == ["fifo"]
    assert checked(total=guarantee("violated", promised=False)).deciding() == ["total"]


def test_ten_witnesses_are_drawn_and_no_guarantee_takes_all_places() -> None:
    many = checked(fifo=guarantee("violated", witnesses=10), causal=guarantee("violated", witnesses=2))
    drawn = [one.guarantee for one in to_draw(many)]
    assert len(drawn) == 10
    assert drawn.count("causal") == 2


def test_many_kinds_of_traffic_are_put_together() -> None:
    page = trace_page(facts())
    assert "29 other kinds" in page
    assert "4.35\N{NO-BREAK SPACE}kB" in page  # what those weigh together


@pytest.mark.parametrize(
    ("about", "messages"),
    [
        ({"ordering": "fifo", "parameters": {"window": 10, "members": 3}}, 120),
        ({"ordering": "abcast", "parameters": {"window": 10, "buffer": 77, "members": 3}}, 77),
        ({"ordering": "causal-blocks", "parameters": {"window": 10, "members": 3}}, 30),
        ({"ordering": "co", "parameters": {"window": 64, "members": 3}}, 3 * 33 * 32),
        ({"ordering": "co", "parameters": {"window": 8, "members": 3, "ordering_options": {"headroom": 9}}}, 3 * 9 * 9),
        ({"ordering": "fifo"}, None),
        ({"ordering": "paxos", "parameters": {"window": 10}}, None),
        ({}, None),
    ],
)
def test_the_bound_of_the_buffers_is_that_of_the_protocol(about: dict[str, Any], messages: int | None) -> None:
    bound = buffer_bound(read_settings(json.dumps(about).encode()), 3)
    assert (bound and bound.messages) == messages


def test_witnesses_speak_of_members_by_name() -> None:
    broken = checked(fifo=guarantee("violated", witnesses=1))
    drawn = [DrawnWitness(one, AROUND) for one in to_draw(broken)]
    named = {"names": {"1": "alice", "2": "a-rather-long-name"}}
    page = trace_page(facts(checked=broken, drawn=drawn, settings=named))
    assert "alice does it 0 times" in page
    assert "message 1 of a-rather-long-name" in page
    assert ">alice</text>" in page
    assert "<title>a-rather-long-name</title>a-rathe…</text>" in page
    assert "member 1 " not in page[page.index("<h1") :]


def test_witnesses_say_what_their_messages_say() -> None:
    broken = checked(fifo=guarantee("violated", witnesses=1))
    sent = Event(EVIL, 2, 1, "send", 2, 1, detail="<b>pay</b> 17")
    around = WitnessRows([*AROUND.events, sent], AROUND.marked, AROUND.drawn, AROUND.members)
    page = trace_page(facts(checked=broken, drawn=[DrawnWitness(one, around) for one in to_draw(broken)]))
    assert "message 1 of 2: “&lt;b&gt;pay&lt;/b&gt; 17”</td>" in page


def test_why_rows_were_put_aside_and_one_of_them() -> None:
    """Also of a result that was written before there were examples."""
    about = ABOUT | {"quarantined": 3, "quarantine_reasons": {"no member": 2, "no event": 1}}
    page = trace_page(Facts(**about, quarantine_examples={"no member": f"log.jsonl row 2: {EVIL}"}, checked=checked()))
    assert " 2: no member, as log.jsonl row 2: &lt;script&gt;" in page
    assert " 1: no event." in page
