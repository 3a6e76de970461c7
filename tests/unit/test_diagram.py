"""Space-time diagrams: everything drawn once, nothing on top of anything, no arrow backwards, and the right window."""

from __future__ import annotations

import csv
import itertools
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.cli import main
from antiphon.diagram.layout import DiagramLayout, lay_out
from antiphon.diagram.links import find_links
from antiphon.diagram.marks import MARK_GAP, SMALL_GAP, tell_instant, tell_members, tell_time
from antiphon.diagram.page import figure, standalone, witness_diagram
from antiphon.diagram.story import story
from antiphon.report.diagram_window import DiagramRequest, read_window
from antiphon.sim.cluster import simulate
from antiphon.sim.scenario import from_table
from antiphon.trace.event import Event
from antiphon.trace.schema import EVENTS
from support.planting import Shape, sample

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
DETAILS = ("nack", "repair to all", "repair to 0,1", "duplicate", "<script>alert(1)</script>", 'a"b&c', "\x00\ud800")


@st.composite
def any_rows(draw: st.DrawFn) -> list[Event]:
    """Rows without any sense: whatever a broken or hostile trace may say."""
    return [
        Event(
            "r",
            member,
            step,
            draw(st.sampled_from(EVENTS)),
            draw(st.none() | st.integers(0, 4)),
            draw(st.none() | st.integers(1, 3)),
            draw(st.none() | st.integers(0, 40)) if draw(st.booleans()) else step,
            members=draw(st.none() | st.just((0, 1))),
            detail=draw(st.none() | st.sampled_from(DETAILS)),
        )
        for member in range(draw(st.integers(1, 4)))
        for step in range(1, draw(st.integers(1, 14)))
    ]


def assert_legible(layout: DiagramLayout) -> None:
    """No two marks of a line and no two labels touch; a line's events come in their order."""
    by_line: dict[int, list[int]] = {}
    for place, mark in enumerate(layout.marks):
        by_line.setdefault(mark.lane, []).append(place)
    for places in by_line.values():
        marks = [layout.marks[place] for place in places]
        assert [mark.event.step for mark in marks] == sorted(mark.event.step for mark in marks)
        assert all(before.x <= after.x for before, after in itertools.pairwise(marks))
        for small in (True, False):
            apart = [one for one in marks if (one.kind in ("stable", "control")) == small and not one.joined]
            gap = SMALL_GAP if small else 0.75 * MARK_GAP
            assert all(after.x - before.x >= gap - 1e-6 for before, after in itertools.pairwise(apart))
    boxes = [label.box for label in layout.labels]
    assert not [pair for pair in itertools.combinations(boxes, 2) if pair[0].touches(pair[1])]
    assert all(box.left >= 0 and box.right <= layout.width for box in boxes)


def assert_no_arrow_backwards(layout: DiagramLayout) -> None:
    for number, link in enumerate(layout.links):
        if link.source is not None and link.target is not None and number not in layout.backwards:
            assert layout.marks[link.target].x > layout.marks[link.source].x


def assert_drawn_once(layout: DiagramLayout, title: str) -> None:
    """In both drawings each event is there once, and the file is XML."""
    wanted = sorted((mark.event.member, mark.event.step) for mark in layout.marks)
    alone = ElementTree.fromstring(standalone(layout, title))
    inside = ElementTree.fromstring(str(figure(layout, title)).replace("hidden>", ">").replace(" disabled", ""))
    for drawn in (alone, inside):
        events = [one for one in drawn.iter() if "event" in one.get("class", "").split() and one.get("data-step")]
        assert sorted((int(one.attrib["data-member"]), int(one.attrib["data-step"])) for one in events) == wanted
        assert not [one for one in drawn.iter() if one.tag.endswith("script")]


@pytest.mark.slow
@given(any_rows(), st.booleans())
@settings(max_examples=80)
def test_whatever_the_rows_the_diagram_is_legible_and_whole(rows: list[Event], clocks_agree: bool) -> None:
    layout = lay_out(rows, clocks_agree=clocks_agree, focus=(1, 1), marked=[(0, 1)])
    assert_legible(layout)
    assert_no_arrow_backwards(layout)
    assert_drawn_once(layout, 'a <b> & "c"')


@given(st.integers(0, 10_000), st.booleans(), st.floats(0, 0.5), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_no_arrow_of_a_possible_run_points_backwards(seed: int, clocks_agree: bool, hidden: float, rng: object) -> None:
    rows = [row for row in sample(seed).events if rng.random() >= hidden]  # type: ignore[attr-defined]
    layout = lay_out(rows, clocks_agree=clocks_agree)
    assert layout.axis == ("clock" if clocks_agree else "logical") or not rows
    assert not layout.backwards
    assert_no_arrow_backwards(layout)
    assert_legible(layout)
    if layout.axis == "clock":  # earlier is further left, everywhere, up to the width of one moment's marks
        first = {}
        for mark in layout.marks:
            first[mark.event.time_ns] = min(first.get(mark.event.time_ns, mark.x), mark.x)
        assert [first[time] for time in sorted(first)] == sorted(first.values())


def test_an_effect_before_its_cause_is_shown_as_such() -> None:
    rows = [
        Event("r", 0, 1, "receive", 1, 1),
        Event("r", 0, 2, "send", 0, 1),
        Event("r", 1, 1, "receive", 0, 1),
        Event("r", 1, 2, "send", 1, 1),
    ]
    layout = lay_out(rows)
    assert len(layout.backwards) == 1
    assert "effect before its cause" in standalone(layout, "t")


def test_times_that_contradict_the_messages_are_not_used() -> None:
    rows = [Event("r", 0, 1, "send", 0, 1, 50), Event("r", 1, 1, "receive", 0, 1, 10)]
    assert lay_out(rows, clocks_agree=True).axis == "logical"


# What became of each message


def run_with_losses(seed: int = 5) -> list[Event]:
    table = {"members": 4, "messages": 3, "ordering": {"name": "fifo"}, "network": {"loss": 0.15}}
    return simulate(from_table(table), seed).events


def test_every_loss_and_every_repair_of_a_run_is_found() -> None:
    dropped: set[tuple[int, int, int]] = set()

    def drop(source: int, target: int, datagram: bytes, now: int) -> bool:
        lost = (source, target) == (0, 2) and not dropped
        if lost:
            dropped.add((source, target, now))
        return lost

    table = {"members": 3, "messages": 2, "ordering": {"name": "fifo"}, "workload": {"senders": [0]}}
    events = simulate(from_table(table), 1, drop=drop).events
    layout = lay_out(events, clocks_agree=True, focus=(0, 1))
    fates = [(link.message, link.member, link.fate) for link in layout.links]
    assert [fate for fate in fates if fate[2] != "arrived"] == [((0, 1), 2, "repaired"), ((0, 1), 2, "lost")]
    (told,) = [line for line in story(layout) if line.startswith("member 2")]
    assert told.startswith("member 2: lost on the way, received +")
    assert "by a repair from member 0" in told


def test_each_receipt_has_one_origin() -> None:
    events = run_with_losses()
    for agree in (True, False):
        links = find_links(events, clocks_agree=agree)
        arrived = [link.target for link in links if link.fate in ("arrived", "repaired")]
        receipts = [at for at, row in enumerate(events) if row.event == "receive" and row.member != row.sender]
        assert sorted(at for at in arrived if at is not None) == receipts
        assert any(link.fate == "repaired" for link in links)


def test_without_receipts_arrows_lead_to_deliveries() -> None:
    rows = [Event("r", 0, 1, "send", 0, 1), Event("r", 1, 1, "deliver", 0, 1)]
    (link,) = find_links(rows, clocks_agree=False)
    assert (link.fate, link.source, link.target) == ("arrived", 0, 1)


def test_only_members_of_the_view_can_lose_a_message() -> None:
    rows = [
        Event("r", 0, 1, "view", view=2, members=(0, 1)),
        Event("r", 0, 2, "send", 0, 1, view=2),
        Event("r", 1, 1, "receive", 0, 1, view=2),
        Event("r", 2, 1, "end", view=1),
    ]
    assert {link.member for link in find_links(rows, clocks_agree=False)} == {1}


def test_a_witness_is_ringed_and_escaped() -> None:
    rows = [
        Event("r", 0, 1, "send", 0, 1),
        Event("r", 1, 4, "deliver", 0, 1, detail="</title><script>x"),
        Event("r", 1, 5, 'no"such<event>'),
    ]
    html = str(witness_diagram(rows, [(1, 4)], "why <b>"))
    tree = ElementTree.fromstring(html.replace("hidden>", ">").replace(" disabled", ""))
    (ringed,) = [one for one in tree.iter() if "marked" in one.get("class", "").split()]
    assert (ringed.get("data-member"), ringed.get("data-step")) == ("1", "4")
    assert "<script" not in html
    assert "<b>" not in html
    assert ' id="' not in html, "several diagrams may be on one page"


# The window


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diagram") / "run"
    words = "simulate --profile paper --members 4 --ordering fifo --messages 20 --loss 0.1 --seed 7 --out"
    assert main([*words.split(), str(folder)]) == 0
    return folder


def test_a_window_has_the_whole_story_of_its_message(trace: Path) -> None:
    window = read_window(str(trace), DiagramRequest(around=(1, 2)))
    about = [row for row in window.events if (row.sender, row.seq) == (1, 2) and row.event in ("send", "deliver")]
    assert len(about) == 1 + 4
    assert window.clocks_agree
    assert window.before
    assert window.after
    assert not window.thinned
    times = [row.time_ns or 0 for row in window.events]
    everything = read_window(str(trace), DiagramRequest(around=(1, 2), whole=True))
    inside = [row for row in everything.events if min(times) <= (row.time_ns or 0) <= max(times)]
    assert window.events == inside
    assert not everything.before
    assert not everything.after


def test_whether_a_message_came_later_or_never_is_known(trace: Path) -> None:
    everything = read_window(str(trace), DiagramRequest(around=(1, 2), whole=True))
    window = read_window(str(trace), DiagramRequest(around=(1, 2), margin_ns=0))
    sent = {(row.sender, row.seq) for row in window.events if row.event == "send"}
    received = {(row.member, (row.sender, row.seq)) for row in window.events if row.event in ("receive", "deliver")}
    later = {
        (row.member, (row.sender, row.seq))
        for row in everything.events
        if row.event == "receive" and (row.sender, row.seq) in sent
    }
    assert set(window.elsewhere) == later - received
    assert not everything.elsewhere


def test_few_events_are_shown_of_much(trace: Path) -> None:
    window = read_window(str(trace), DiagramRequest(around=(1, 2), most=60))
    assert window.thinned
    assert len(window.events) <= 60
    assert {row.member for row in window.events if (row.sender, row.seq) == (1, 2)} == {0, 1, 2, 3}


def test_steps_around_one_event(trace: Path) -> None:
    everything = read_window(str(trace), DiagramRequest(around=(1, 2), whole=True)).events
    control = next(row for row in everything if row.event == "control" and row.sender is None and row.step > 20)
    window = read_window(str(trace), DiagramRequest(around_step=(control.member, control.step), margin_steps=3))
    assert window.focus is None
    mine = [row.step for row in window.events if row.member == control.member]
    assert mine == list(range(control.step - 3, control.step + 4))
    assert {row.member for row in window.events} == {0, 1, 2, 3}
    deliver = next(row for row in everything if row.event == "deliver" and row.step > 20)
    assert read_window(str(trace), DiagramRequest(around_step=(deliver.member, deliver.step))).focus == (
        deliver.sender,
        deliver.seq,
    )


def test_members_without_a_common_clock(trace: Path, tmp_path: Path) -> None:
    """One that never got the message is shown at the time at which the others had it."""
    rows = read_window(str(trace), DiagramRequest(around=(1, 9), whole=True)).events
    kept = [row for row in rows if not (row.member == 3 and (row.sender, row.seq) == (1, 9)) and row.event != "stable"]
    with (tmp_path / "events.jsonl").open("w") as file:
        for row in kept:
            file.write(json.dumps({**msgspec.to_builtins(row), "time_ns": None}) + "\n")
    window = read_window(str(tmp_path), DiagramRequest(around=(1, 9)))
    assert not window.clocks_agree
    near = {(row.sender, row.seq) for row in window.events if row.member == 0 and row.event == "receive"}
    there = {(row.sender, row.seq) for row in window.events if row.member == 3 and row.event == "receive"}
    assert near & there
    layout = lay_out(window.events, focus=window.focus, elsewhere=window.elsewhere, also_members=window.members)
    assert not [line for line in story(layout) if "+" in line and "member 1" not in line], "times are not compared"
    assert (3, "lost") in {(link.member, link.fate) for link in layout.links if link.message == (1, 9)}


def test_every_format_gives_the_same_window(trace: Path, tmp_path: Path) -> None:
    wanted = read_window(str(trace), DiagramRequest(around=(1, 2)))
    rows = read_window(str(trace), DiagramRequest(around=(1, 2), whole=True)).events
    for kind in ("csv", "jsonl", "foreign"):
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "run.json").write_text((trace / "run.json").read_text())
        if kind == "jsonl":
            (folder / "events.jsonl").write_text("".join(json.dumps(msgspec.to_builtins(row)) + "\n" for row in rows))
            continue
        with (folder / "events.csv").open("w", newline="") as file:
            names = {
                name: "who" if kind == "foreign" and name == "member" else name for name in Event.__struct_fields__
            }
            writer = csv.writer(file)
            writer.writerow(names.values())
            writer.writerows([getattr(row, name) for name in names] for row in rows)
    (tmp_path / "mapping.toml").write_text('[columns]\nmember = "who"\n')
    from antiphon.pipeline.reading.mapping import load_mapping

    for kind, mapping in (("csv", None), ("jsonl", None), ("foreign", load_mapping(str(tmp_path / "mapping.toml")))):
        assert read_window(str(tmp_path / kind), DiagramRequest(around=(1, 2)), mapping).events == wanted.events


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--around 1:99", "no message 1:99 in run 'fifo-7'; member 1 sent 1:1 to 1:20"),
        ("--around 8:1", "messages were sent by 0 (0:1 to 0:20), 1 (1:1 to 1:20)"),
        ("--around-step 1:99999", "member 1 has no step 99999 in run 'fifo-7'; its steps go from 1 to"),
        ("--around-step 7:1", "the members are 0, 1, 2, 3"),
        ("--around 1:2 --run other", "no run 'other'; it holds fifo-7"),
        ("--around two", "--around two: write SENDER:SEQ, such as 2:5"),
        ("--around 1:2 --window soon", "--window: 'soon' is not a duration"),
        ("--around 1:2 --members 9", "--members: there is no member 9"),
        ("--around 1:2 --members a-b", "write numbers and ranges, such as 0,3,5-9"),
        ("--around 1:2 --out a.png", "name it *.svg for a document or *.html to explore"),
        ("--around 1:2 --most 0", "draw at least one event"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(
    trace: Path, words: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagram", str(trace), *words.split()]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1


def test_several_runs_want_a_name(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = read_window(str(trace), DiagramRequest(around=(1, 2), whole=True)).events
    for run, few in (("a", 400), ("b", 20)):
        lines = [json.dumps({**msgspec.to_builtins(row), "run": run}) for row in rows[:few]]
        (tmp_path / f"{run}.jsonl").write_text("\n".join(lines))
    assert main(["diagram", str(tmp_path), "--around", "0:1"]) == 2
    assert "2 runs have it; name one with --run: a, b" in capsys.readouterr().err
    assert read_window(str(tmp_path), DiagramRequest(around=(0, 1), run="b")).run == "b"
    assert read_window(str(tmp_path), DiagramRequest(around=(0, 15))).run == "a", "only one of them has this message"


def test_the_command_draws_and_tells(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("out/a.svg", "out/a.html"):
        assert main(["diagram", str(trace), "--around", "1:2", "--out", str(tmp_path / name), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["axis"] == "clock"
        assert told["message"] == "1:2"
        assert told["losses"] >= 1
        text = (tmp_path / name).read_text()
        assert text.count(' class="event send') >= told["messages"]
    assert "http" not in text.replace("http://www.w3.org", ""), "a page loads nothing"
    ElementTree.fromstring((tmp_path / "out/a.svg").read_text())
    assert main(["diagram", str(trace), "--around", "1:2"]) == 0
    assert "member 0: lost on the way, received +22.078 ms by a repair from member 1" in capsys.readouterr().out


def test_each_protocol_has_its_picture() -> None:
    pages = [page for page in (ROOT / "docs/protocols").glob("*.md") if "draw-protocols.sh" in page.read_text()]
    assert len(pages) >= 11
    for page in pages:
        picture = ROOT / "docs/pictures" / f"{page.stem}.svg"
        assert f"({Path('..') / 'pictures' / picture.name})" in page.read_text()
        assert picture.stat().st_size < 150_000
        classes = {name for one in ElementTree.parse(picture).iter() for name in one.get("class", "").split()}
        assert {"send", "deliver", "lost", "repaired", "stable", "control", "frontier"} <= classes


def test_words() -> None:
    assert [tell_time(ns) for ns in (0, 7, 1_500, -2_000_000, 1_250_000_000)] == [
        "0",
        "7 ns",
        "1.5 µs",
        "−2 ms",
        "1.25 s",
    ]
    assert tell_members((5, 0, 1, 2, 9)) == "0-2 5 9"


def test_shapes_with_views_and_crashes_are_drawn() -> None:
    rows = sample(3, shape=Shape(views=True, gone="crash", discards=True)).events
    drawn = standalone(lay_out(rows, clocks_agree=True), "views")
    assert 'class="cut"' in drawn
    assert "view 1: " in drawn
    assert "event crash" in drawn


def test_what_a_message_says_is_shown_where_the_trace_has_it() -> None:
    rows = [
        Event("r", 0, 1, "send", 0, 1, time_ns=1_000, detail="pay 17 euros to alice and to bob and to carol"),
        Event("r", 0, 2, "deliver", 0, 1, time_ns=1_000),
        Event("r", 1, 1, "receive", 0, 1, time_ns=9_000),
        Event("r", 1, 2, "deliver", 0, 1, time_ns=9_500),
    ]
    layout = lay_out(rows, clocks_agree=True, focus=(0, 1))
    assert "0:1 “pay 17 euros to alice a…”" in [label.text for label in layout.labels]
    assert "“pay 17 euros to alice a…”" in story(layout)[0]
    silent = [msgspec.structs.replace(row, detail=None) for row in rows]
    assert all("“" not in label.text for label in lay_out(silent, focus=(0, 1)).labels)


def test_live_members_are_told_apart_and_their_times_are_dates() -> None:
    names = {0: "127.0.0.1:7801", 1: "127.0.0.1:7802, 2nd life", 2: "accounting"}
    rows = [Event("r", member, 1, "send", member, 1) for member in names]
    drawn = standalone(lay_out(rows, clocks_agree=False, names=names), "a group")
    assert [name in drawn for name in (">….1:7801<", ">….1:7802<", ">account…<")] == [True] * 3, drawn
    assert tell_instant(1_250_000_000) == "1.25 s"
    assert tell_instant(1_794_992_385_342_000_000) == "2026-11-18 08:59:45.342 UTC"
