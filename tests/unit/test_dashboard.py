"""What the dashboard knows: who is there, who is gone, who holds the others back, and what watch found."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("aiohttp")

from antiphon.cli import main
from antiphon.live.events import Status
from antiphon.live.publish import Publisher
from antiphon.report.board_state import Headline, MemberRow
from antiphon.report.dashboard_server import application
from antiphon.report.live_board import Board, Follower, Watched
from antiphon.report.local_server import serve

A, B, C = "127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"
STATUS = Status(
    group="orders",
    me=A,
    standing="active",
    view=1,
    members=(A, B, C),
    lag={B: 0, C: 0},
    slowest=None,
    sent=0,
    delivered=0,
    held=0,
    waiting_bytes=0,
    inbox_bytes=0,
    burst_bytes=55_000,
    counts={},
)


class Told:
    """A board and a clock in the test's hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, watched: Watched | None = None) -> None:
        self.now = 1000.0
        monkeypatch.setattr("antiphon.report.live_board.time.time", lambda: self.now)
        self.followers = [Follower(f"127.0.0.1:{7101 + number}") for number in range(count)]
        self.board = Board(self.followers, watched)

    def hear(self, number: int, **changes: object) -> None:
        follower = self.followers[number]
        follower.heard_at, follower.connected = self.now, True
        status = msgspec.structs.replace(STATUS, me=(A, B, C)[number % 3])
        self.board.heard(follower, msgspec.structs.replace(status, **changes))

    def lose(self, number: int) -> None:
        self.followers[number].connected = False
        self.board.lost(self.followers[number])

    def row(self, member: str) -> MemberRow:
        return next(row for row in self.board.show().members if row.member == member)


def test_a_healthy_group_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 3)
    for number in range(3):
        told.hear(number)
    shown = told.board.show()
    assert shown.headline == Headline("good", "3 members, view 1: everyone is heard from.")
    assert [row.state for row in shown.members] == ["live"] * 3
    assert [view.joined for view in shown.views] == [[A, B, C]]


def test_one_member_shows_the_others_too(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 1)
    told.hear(0, lag={B: 4, C: None})
    assert told.row(B).state == "unpublished"
    assert told.row(B).lag == 4
    assert told.row(C).unheard is True


def test_who_is_gone_who_left_and_who_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 3)
    for number in range(3):
        told.hear(number)
    told.lose(1)
    assert told.row(B).state == "gone"
    assert (told.board.show().headline.level, told.board.show().headline.text) == (
        "bad",
        f"3 members, view 1: no news from {B}.",
    )
    told.hear(1, standing="leaving")
    told.lose(1)
    assert told.board.show().headline.level == "good"
    assert told.board.show().news[0].text == f"{B} has left"
    told.now += 2
    told.hear(0)
    told.board.tick()
    assert told.row(C).state == "silent"
    told.hear(2)
    told.board.tick()
    assert told.board.show().news[0].text == f"{C} speaks again"


def test_a_view_without_a_member_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 3)
    for number in range(3):
        told.hear(number)
    for number in (0, 2):
        told.hear(number, view=2, members=(A, C))
    views = told.board.show().views
    assert [(view.view, view.left) for view in views] == [(2, [B]), (1, [])]
    assert told.row(B).in_view is False


def test_rates_are_of_the_last_second_and_never_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 1)
    told.hear(0, sent=10, delivered=100)
    told.board.tick()
    told.now += 1
    told.hear(0, sent=60, delivered=400)
    told.board.tick()
    assert (told.row(A).published.sent_per_s, told.row(A).published.delivered_per_s) == (50, 300)
    told.now += 1
    told.hear(0, sent=0, delivered=0)  # started again
    told.board.tick()
    assert told.row(A).published.delivered_per_s == 0


def test_whoever_stays_the_slowest_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 3)
    for second in range(4):
        told.now += 1
        told.hear(0, slowest=C, lag={B: 0, C: 5})
        told.hear(1, slowest=C if second else A, lag={A: 0, C: 5})
        told.hear(2, slowest=None)
        told.board.tick()
    assert told.row(C).holds_back_s == 4
    assert told.row(A).holds_back_s == 0
    shown = told.board.show().headline
    assert shown.level == "warn"
    assert shown.text == f"3 members, view 1: {C} holds stability back, so that its copies stay in all buffers."
    assert shown.remedy.startswith(f"Look at {C}: ")


def test_a_group_that_delivers_nothing_although_messages_wait_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 3)
    for second in range(6):
        told.now += 1
        for number in range(3):
            told.hear(number, delivered=10, held=4 if second else 0)
        told.board.tick()
    shown = told.board.show().headline
    assert (shown.level, shown.text) == (
        "bad",
        "3 members, view 1: nobody has delivered anything for 5 s, although messages wait.",
    )
    assert shown.remedy.startswith("Nobody is known to be waited for")
    assert [row.published.stuck_s for row in told.board.show().members if row.published] == [5, 5, 5]
    told.now += 1
    told.hear(0, delivered=11, held=3)
    assert told.row(A).published.stuck_s == 0
    told.hear(1, delivered=10, held=0)
    assert told.row(B).published.stuck_s == 0
    assert told.board.show().headline.text.startswith(f"3 members, view 1: {C} has delivered nothing for 6 s")


def test_a_group_with_nothing_to_do_is_idle_and_well(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 1)
    for delivered in (0, 50, 50, 50, 50):
        told.now += 1
        told.hear(0, delivered=delivered, members=(A,), lag={})
        told.board.tick()
        assert told.row(A).published.idle is (delivered == 0 or told.now >= 1005)
    assert told.board.show().headline == Headline("good", "1 member, view 1: everyone is heard from.")


def test_a_killed_member_is_named_until_the_others_have_gone_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 3)
    for number in range(3):
        told.hear(number)
    told.lose(1)
    for _ in range(4):
        told.now += 1
        for number in (0, 2):
            told.hear(number, view=2, members=(A, C), lag={A: 0, C: 0}, slowest=(A, None, C)[number])
        told.board.tick()
    shown = told.board.show().headline
    assert (shown.level, shown.text) == ("warn", f"2 members, view 2: {B} is gone, and the others went on.")
    assert shown.remedy == f"Start {B} again; it comes back then."


def test_one_that_stands_still_is_not_called_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """B is killed, C stopped; A goes on alone."""
    told = Told(monkeypatch, 3)
    for number in range(3):
        told.hear(number)
    told.lose(1)
    for _ in range(4):
        told.now += 1
        told.hear(0, view=3, members=(A,))
        told.board.tick()
    shown = told.board.show().headline
    assert (
        f"{B} is gone, and {A} went on alone; {C} is silent (stopped, or out of this page's reach), and" in shown.text
    )
    assert shown.remedy == f"Start {B} again; it comes back then. Let {C} run on; it comes back by itself."


def test_whoever_left_the_view_is_blamed_for_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """B was the slowest before it was killed; the survivors' counts still name it for a while."""
    told = Told(monkeypatch, 3)
    for number in range(3):
        told.hear(number)
    told.lose(1)
    for second in range(8):
        told.now += 1
        for number in (0, 2):
            view = {"view": 2, "members": (A, C)} if second > 3 else {}
            told.hear(number, slowest=B, lag={A: 0, B: 7, C: 0}, **view)
        told.board.tick()
    assert told.row(B).holds_back_s == 0
    assert "holds" not in told.board.show().headline.text
    assert told.row(B).says == "gone, out of the view"


def test_a_stuck_group_names_whom_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 3)
    for _ in range(6):
        told.now += 1
        for number in range(3):
            told.hear(number, delivered=10, held=4, slowest=C if number < 2 else None, lag={C: 4})
        told.board.tick()
    shown = told.board.show().headline
    assert shown.level == "bad"
    assert f"although messages wait: {C} is waited for" in shown.text
    assert f"Look at {C}: stopped, overloaded, or no longer reached" in shown.remedy


def test_an_application_that_does_not_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 2)
    for second in range(6):
        told.now += 1
        told.hear(0, delivered=10 * second, members=(A, B), lag={B: 0})
        told.hear(1, delivered=10 * second, members=(A, B), lag={A: 0}, inbox_bytes=3_000_000)
        told.board.tick()
    assert told.row(B).says == "its application has taken nothing for 5 s"
    shown = told.board.show().headline
    assert shown.level == "bad"
    assert f"the application of {B} has taken nothing for 5 s, and 3 MB wait for it" in shown.text
    assert "Let it read on" in shown.remedy
    told.now += 1
    told.hear(1, delivered=70, members=(A, B), lag={A: 0}, inbox_bytes=1_000_000)
    assert told.row(B).published.unread_s == 0


def test_a_member_that_cannot_get_in_is_told_with_what_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 2)
    for _ in range(7):
        told.now += 1
        told.hear(0, members=(A,), lag={})
        told.hear(1, standing="joining", view=0, members=(), lag={}, counts={"refused-unknown-key": 40})
        told.board.tick()
    shown = told.board.show().headline
    assert (shown.level, shown.text) == (
        "bad",
        f"1 member, view 1: {B} has been joining for 6 s and has refused 40 packets under another key.",
    )
    assert shown.remedy.startswith(f"Compare the key, settings and peers of {B} with the others'")


def test_who_reads_too_slowly_is_blamed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes one message now and then, and believes that the others lag, of whom it hears nothing."""
    told = Told(monkeypatch, 3)
    for second in range(6):
        told.now += 1
        for number in range(3):
            slow = {"slowest": A, "inbox_bytes": 20_000 - second, "counts": {"set-aside": 9 * second}}
            told.hear(number, held=4, lag={C: 5}, **(slow if number == 2 else {"slowest": C}))
        told.board.tick()
    shown = told.board.show().headline
    assert shown.text == (
        f"3 members, view 1: the application of {C} does not keep up: its inbox is full, and 20 kB wait for it; "
        "nobody has delivered anything for 5 s, although messages wait."
    )
    assert A not in shown.remedy


def test_what_a_new_view_brings_all_at_once_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inboxes are full for a moment, and read at once."""
    told = Told(monkeypatch, 3)
    for second in range(6):
        told.now += 1
        for number in range(3):
            told.hear(number, sent=second, delivered=9 * second, lag={}, counts={"set-aside": 40 * (second > 3)})
        told.board.tick()
    assert told.board.show().headline.text == "3 members, view 1: everyone is heard from."


def test_who_was_left_out_before_a_group_stalled_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 3)
    for number in range(3):
        told.hear(number, members=(A, B, C), lag={})
    told.lose(2)
    for second in range(2):
        told.now += 1
        told.hear(0, view=2, members=(A, B), lag={}, standing="active" if second == 0 else "stalled")
        if second == 0:
            told.hear(1, view=2, members=(A, B), lag={})
            told.lose(1)
        told.board.tick()
    shown = told.board.show().headline.text
    assert f"no news from {B}; {C} is gone, and had been left out before" in shown, shown


def test_two_that_are_busy_do_not_blame_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 2)
    for second in range(6):
        told.now += 1
        told.hear(0, members=(A, B), lag={B: 1}, slowest=B, held=2, delivered=second)
        told.hear(1, members=(A, B), lag={A: 1}, slowest=A, held=2, delivered=second)
        told.board.tick()
    assert told.board.show().headline.text == "2 members, view 1: everyone is heard from."


def test_where_membership_is_fixed_nothing_goes_on_without_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 3)
    for number in range(3):
        told.hear(number, view=0)
    told.lose(1)
    for _ in range(5):
        told.now += 1
        for number in (0, 2):
            told.hear(number, view=0, slowest=B, lag={B: 7}, delivered=int(told.now))
        told.board.tick()
    shown = told.board.show().headline
    assert told.row(B).holds_back_s == 0, "that it is gone says it"
    assert shown.text == f"3 members, fixed: no news from {B}."
    assert shown.remedy.startswith("Membership is fixed: nothing goes on without it")


def test_a_group_that_has_not_begun_says_for_whom_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 2)
    for _ in range(7):
        told.now += 1
        for number, me in enumerate((A, B)):
            links = ((C, me), ("127.0.0.1:7004", me))
            told.hear(number, standing="joining", view=0, members=(), lag={}, links=links)
        told.board.tick()
    shown = told.board.show().headline
    heard = f"{A} and {B} wait for the group to begin; nothing is heard from {C} and 127.0.0.1:7004."
    assert (shown.level, shown.text) == ("bad", f"No view yet: {heard}")
    assert shown.remedy.startswith(f"Start {C} and 127.0.0.1:7004: a group begins when more than half")


def test_nobody_left_is_bad_and_nobody_yet_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 2)
    assert told.board.show().headline.level == "warn"
    told.hear(0)
    told.lose(0)
    assert told.board.show().headline.level == "bad"
    assert f"{A} is gone or silent" in told.board.show().headline.text


def test_the_timeline_shows_how_everybody_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 3)
    for second in range(10):
        told.now += 1
        for number in range(3):
            if number != 1 or second < 4:
                told.hear(number, delivered=second)
        if second == 4:
            told.lose(1)
        told.board.tick()
    lanes = {lane.name: lane.stretches for lane in told.board.show().timeline}
    assert [stretch.level for stretch in lanes[B]][-1] == "bad"
    assert lanes[B][-1].end - lanes[B][-1].start == 5
    assert [stretch.level for stretch in lanes[A]][-1] == "good"
    for one, other in zip(lanes[B], lanes[B][1:], strict=False):
        assert one.end == other.start, "there are no gaps"
    told.now += 700  # what is older than the timeline goes
    told.hear(0)
    told.board.tick()
    assert all(stretch.end >= told.now - 600 for lane in told.board.show().timeline for stretch in lane.stretches)


def test_a_stalled_member_says_why_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 3)
    told.hear(0, standing="stalled")
    assert "stopped delivering" in told.board.show().headline.text
    told.hear(0, standing="stalled", links=((B, A), (C, A)))
    shown = told.board.show().headline
    assert f"nothing is heard from {B} to {A} and from {C} to {A}" in shown.text
    assert "antiphon rescue" in shown.remedy


def test_of_a_lost_majority_nobody_is_promised_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, 3)
    for number in range(3):
        told.hear(number)
    told.lose(1)
    told.lose(2)
    told.now += 10
    told.hear(0, standing="stalled", links=((B, A), (C, A)))
    shown = told.board.show().headline
    assert shown.level == "bad"
    why = f"{A} stopped delivering: too few members within reach; no news from {B} and {C}"
    assert shown.text == f"3 members, view 1: {why}."
    again = f"Start {B} and {C} again, or mend the links."
    assert shown.remedy == f"{again} If they are gone for good, antiphon rescue makes a view from what is left."


def test_what_watch_found_is_shown_up_to_its_last_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder in ("commits", "alarms"):
        (tmp_path / folder).mkdir()
    watched = Watched(tmp_path)
    assert not watched.read()
    alarm = {"batch": 0, "run": "r", "guarantee": "fifo", "member": 1, "step": 2, "sender": 3, "seq": 4, "why": "late"}
    pq.write_table(pa.Table.from_pylist([alarm]), tmp_path / "alarms" / "0000000000-000000.parquet")
    pq.write_table(pa.Table.from_pylist([alarm]), tmp_path / "alarms" / "0000000001-000000.parquet")
    finding = {"examined": 5, "violations": 1}
    commit = {"batch": 0, "events": 9, "alarms": 1, "events_per_s": 3.2, "findings": {"fifo": finding}}
    (tmp_path / "commits" / "0000000000.json").write_bytes(msgspec.json.encode(commit))
    assert watched.read()
    assert not watched.read()
    assert [shown.why for shown in watched.show().alarms] == ["late"]
    told = Told(monkeypatch, 1, watched)
    told.hear(0)
    assert told.board.show().headline.text.endswith("watch found 1 violation.")

    (tmp_path / "commits" / "0000000001.json").write_bytes(
        msgspec.json.encode({**commit, "batch": 1, "promises": ["causal"]})
    )
    assert watched.read()
    assert told.board.show().headline.text.endswith("everyone is heard from.")  # fifo was not promised


def test_a_published_status_arrives_and_its_end_is_noticed() -> None:
    async def follow() -> tuple[Status | None, str]:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
        publisher = await Publisher.start(address, lambda: STATUS)
        follower = Follower(address)
        board = Board([follower])
        task = asyncio.create_task(follower.follow(board))
        async with asyncio.timeout(5):
            while follower.status is None:
                await asyncio.sleep(0.01)
            publisher.close()
            while follower.connected:
                await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return follower.status, board.show().news[0].text

    assert asyncio.run(follow()) == (STATUS, f"{A} is gone: its status ended without a word")


def test_something_that_is_no_member_does_no_harm() -> None:
    async def follow() -> str:
        async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        follower = Follower(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        task = asyncio.create_task(follower.follow(Board([follower])))
        await asyncio.sleep(0.2)
        assert not task.done()
        task.cancel()
        server.close()
        return follower.state(0.0)

    assert asyncio.run(follow()) == "never"


def test_another_sites_name_is_refused() -> None:
    from aiohttp.test_utils import TestClient, TestServer

    async def ask(host: str) -> int:
        async with TestClient(TestServer(application(Board([]), frozenset({"127.0.0.1"})))) as client:
            return (await client.get("/state", headers={"Host": host})).status

    assert asyncio.run(ask("127.0.0.1:8765")) == 200
    assert asyncio.run(ask("evil.example:8765")) == 403


def connect_to_events(address: str) -> socket.socket:
    """A page that has asked for the events and has read the beginning of the answer, but reads no further."""
    client = socket.create_connection(("127.0.0.1", urlsplit(address).port), timeout=30)
    client.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert client.recv(8) == b"HTTP/1.1"
    return client


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_it_ends_on_a_signal_although_it_was_started_in_the_background(number: signal.Signals) -> None:
    """A shell without job control starts what is to run in the background with SIGINT ignored."""
    command = [sys.executable, "-m", "antiphon.cli", "dashboard", "--member", A, "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            with connect_to_events(json.loads(server.stdout.readline())["listening"]):
                server.send_signal(number)
                assert server.wait(30) == 0
        finally:
            server.kill()


def test_a_page_that_does_not_read_does_not_keep_the_server_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board([])
    state = msgspec.structs.replace(board.show(), headline=Headline("good", "x" * (64 << 20)))  # more than buffers take
    monkeypatch.setattr(board, "show", lambda: state)

    async def stall() -> None:
        stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(
            serve(functools.partial(application, board), "127.0.0.1:0", address.set_result, stop)
        )
        with await asyncio.to_thread(connect_to_events, await address):
            stop.set()
            async with asyncio.timeout(30):
                await serving

    asyncio.run(stall())


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ([], "nothing to show"),
        (["--member", "nonsense"], "--member: 'nonsense' is no address"),
        (["--watch", "not-there"], "--watch: not-there is no folder"),
        (["--member", "127.0.0.1:7101", "--listen", "here"], "--listen: 'here' is no address"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], culprit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", *arguments]) == 2
    said = capsys.readouterr().err
    assert culprit in said
    assert said.count("\n") == 1


def test_of_a_large_group_those_in_trouble_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    told, names = Told(monkeypatch, 50), tuple(f"m{number:02}" for number in range(50))
    for second in range(3):
        told.now += 1
        for number, name in enumerate(names):
            if number != 37 or not second:
                told.hear(number, me=name, members=names, lag={}, delivered=second)
        if second == 1:
            told.lose(37)
        told.board.tick()
    shown = told.board.show()
    assert (shown.members[0].member, shown.members[0].level) == ("m37", "bad")
    assert len(shown.members) == 50
    assert len(shown.timeline) == 40
    assert "m37" in [lane.name for lane in shown.timeline]
