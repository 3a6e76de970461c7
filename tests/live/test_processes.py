"""What once lost acknowledged messages, halted groups or was never said, with real processes over loopback.

Each is told what to do through the public interface, a call at a time. Stopped processes (SIGSTOP), in all orderings,
are in test_faults.py; recorded packets of dead members in test_attack.py; large states in test_backlog.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.trace.event import Event
from antiphon.trace.reader import read
from support.commanded import Commanded, Member
from support.live_group import free_addresses


def three(folder: Path, **settings: object) -> Commanded:
    return Commanded(sorted(free_addresses(3)), folder, **settings)


def together(members: list[Member]) -> None:
    """Wait until all are in one view."""
    for member in members:
        member.wait_for_view(*members)


def works(members: list[Member], word: str) -> None:
    """See that each sends a message that is stable, and that all deliver it."""
    for member in members:
        member.tell("send", text=f"{word} from {member.address}")
    for member in members:
        text = f"{word} from {member.address}"
        assert member.outcome(text) == "stable"
        for other in members:
            other.wait_for(lambda other=other, text=text: text in other.state(), f"{text} is delivered")  # type: ignore[misc]


def test_a_member_that_lost_its_state_folder_and_is_back_at_once_is_a_newcomer(tmp_path: Path) -> None:
    """It once entered its old view again: nobody delivered any more, and what was stable was missing."""
    with three(tmp_path, ordering="total", transfers=True) as group:
        members = group.start(3)
        together(members)
        works(members, "before")
        seen = [len(member.said) for member in members]
        members[2].kill()
        shutil.rmtree(group.state_of(members[2].address))
        members[2].start()
        for member, after in zip(members, seen, strict=True):
            member.wait_for_view(*members, after=after)
        works(members, "after")
        states = [member.state() for member in members]
        assert states[0] == states[1] == states[2], "the state of the newcomer is that of the others"
        assert {f"before from {member.address}" for member in members} <= set(states[0])


def test_one_that_is_set_up_differently_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    """It was once admitted, and nobody delivered any more."""
    with Commanded(sorted(free_addresses(4)), tmp_path, ordering="total") as group:
        members = group.start(3)
        together(members)
        (odd,) = group.start(1, ordering="causal")
        odd.wait_for(lambda: any("refused" in one for one in odd.said), "it is told")
        assert "ordering: 'causal-blocks' here and 'abcast' there" in odd.said[-1]["refused"]
        works(members, "goes on")
        told = [member.ask("status", "counts")["counts"].get("refused-other-settings") for member in members]
        assert sum(map(bool, told)) >= 2, "it gives up once two of four refuse it, perhaps before the third has met it"


def test_what_a_quiet_member_traced_is_there_after_it_was_killed(tmp_path: Path) -> None:
    """Nothing but run.json was there: rows went to the disk when another event came."""
    with three(tmp_path, ordering="fifo", trace=str(tmp_path / "trace")) as group:
        members = group.start(3)
        together(members)
        works(members, "nine")
        members[0].wait_for(lambda: len(delivered(tmp_path / "trace")) == 9, "all is traced")  # that takes a second
        for member in members:
            member.kill()
        assert len(delivered(tmp_path / "trace")) == 9


def delivered(trace: Path) -> list[Event]:
    """Return what a trace says that was delivered; one that is still empty says nothing."""
    if not list(trace.glob("*.parquet")):
        return []
    return [event for event in read(trace).events if event.event == "deliver"]


def test_text_is_refused_and_the_messages_beside_it_are_delivered(tmp_path: Path) -> None:
    """It once destroyed every message of its burst, at every member, while their receipts said stable."""
    with three(tmp_path, ordering="total") as group:
        members = group.start(3)
        together(members)
        members[0].tell("send", text="first")
        refused = members[0].ask("send_text", "error", text="not bytes")
        members[0].tell("send", text="second")
        assert (refused["error"], refused["text"][:22]) == ("UsageTypeError", "payload: must be bytes")
        assert [members[0].outcome(text) for text in ("first", "second")] == ["stable", "stable"]
        for member in members:
            member.wait_for(lambda member=member: member.messages() == ["first", "second"], "both come")  # type: ignore[misc]


@pytest.mark.faults
@pytest.mark.parametrize("views", [True, False])
def test_large_sends_that_wait_end_when_the_group_is_left(views: bool, tmp_path: Path) -> None:
    """31 of 40 once waited for ever."""
    with three(tmp_path, ordering="total", views=views, window=2) as group:
        members = group.start(3)
        for member in members:
            member.wait_for(lambda member=member: any("entered" in one for one in member.said), "it is in")  # type: ignore[misc]
        for number in range(40):
            members[0].tell("send_many_bytes", name=f"large {number}", size=300_000)
        members[0].ask("leave", "left")
        ends = [members[0].outcome(f"large {number}") for number in range(40)]
        assert set(ends) <= {"stable", "Unknown", "Lost", "GroupClosed"}


@pytest.mark.faults
def test_keys_are_changed_at_all_or_not_at_all(tmp_path: Path) -> None:
    """A rotation that was refused had overwritten the old keys: its member could not be reached any more."""
    old, new = os.urandom(16).hex(), os.urandom(16).hex()
    with three(tmp_path, ordering="total", key=old) as group:
        members = group.start(3)
        together(members)
        assert members[0].ask("keys", "error", keys=[new, "00"])["error"] == "UsageError"
        works(members, "the old key")
        for keys in ([old, new], [new, old], [new]):
            for member in members:
                member.ask("keys", "keys", keys=keys)
        works(members, "the new key")


@pytest.mark.faults
def test_the_inbox_stays_within_its_bound(tmp_path: Path) -> None:
    """It once held 1.3 MB with a bound of 200,000."""
    bound, window = 200_000, 40_000
    with three(tmp_path, ordering="fifo", inbox_bytes_max=bound, window_bytes=window) as group:
        members = group.start(3)
        together(members)
        members[2].tell("read", on=False)
        for number in range(400):
            members[number % 2].tell("send_many_bytes", name=str(number), size=5_000)
        for _ in range(20):
            held = members[2].ask("status", "inbox_bytes")["inbox_bytes"]
            assert held <= bound + 3 * (window + 60_000), "what is under way when it is full, and no more"
            time.sleep(0.1)
        assert held > bound / 2
        members[2].tell("read", on=True)
        assert {members[number % 2].outcome(str(number)) for number in range(400)} == {"stable"}


@pytest.mark.faults
def test_one_that_leaves_each_side_makes_nobody_give_way_again_and_again(tmp_path: Path) -> None:
    """Around one that left and two lost datagrams there were 37 notices in 1.2 s."""
    with three(tmp_path, ordering="total", partition="each-side") as group:
        members = group.start(3)
        together(members)
        for _ in range(3):
            members[1].tell("cut_off", on=True)
            time.sleep(0.08)
            members[1].tell("cut_off", on=False)
        members[2].ask("leave", "left")
        for member in members[:2]:
            member.wait_for_view(*members[:2])
        time.sleep(1.5)
        assert sum(member.notices().count("yielded") for member in members) <= 2
        works(members[:2], "two go on")


@pytest.mark.faults
def test_no_receipt_says_stable_of_what_nobody_delivered(tmp_path: Path) -> None:
    """Left out twice, while the others do not read and so give no state: old receipts once became the new ones'."""
    with three(tmp_path, ordering="fifo", transfers=True) as group:
        members = group.start(3)
        *others, last = members
        together(members)
        works(members, "first")

        def leave_out() -> None:
            last.tell("cut_off", on=True)
            before = last.notices().count("excluded")
            others[0].wait_for(
                lambda: set(others[0].ask("status", "standing")["members"]) == {one.address for one in others},
                "they go on without it",
            )
            for number in range(3):
                last.tell("send", text=f"alone {before} {number}")
            time.sleep(0.3)
            last.tell("cut_off", on=False)
            last.wait_for(lambda: last.notices().count("excluded") > before, "it is told")

        for other in others:
            other.tell("read", on=False)
        leave_out()
        others[0].wait_for(
            lambda: len(others[0].ask("status", "standing")["members"]) == 3, "it is in a view again, without a state"
        )
        leave_out()
        for other in others:
            other.tell("read", on=True)
        for number in range(3):
            last.tell("send", text=f"again {number}")
        texts = [f"alone {count} {number}" for count in (0, 1) for number in range(3)]
        texts += [f"again {number}" for number in range(3)]
        outcomes = {text: last.outcome(text) for text in texts}
        for text, outcome in outcomes.items():
            assert outcome in ("stable", "Unknown", "Lost")
            if outcome == "stable":
                others[0].wait_for(lambda text=text: text in others[0].state(), f"{text} is delivered")  # type: ignore[misc]
        works(members, "in the end")


_FORKS = """
import asyncio, multiprocessing, os, signal, sys, time
import antiphon

def live(parent) -> None:
    parent.send("it runs")
    time.sleep(60)

async def main(own: str, state: str) -> None:
    async with antiphon.join("forks", bind=own, state=state) as group:
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=live, args=(theirs,))
        child.start()
        await (await group.send(b"the parent goes on")).stable()
        print(child.pid, flush=True)
        ours.recv()
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_forked_child_does_not_keep_the_address_of_its_parent(tmp_path: Path) -> None:
    """A pool of processes that outlived a killed member once kept it from coming back: its address was in use."""
    (own,) = free_addresses(1)
    host, port = own.rsplit(":", 1)
    with subprocess.Popen([sys.executable, "-c", _FORKS, own, tmp_path], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.wait()
    try:
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as another:
            another.bind((host, int(port)))
    finally:
        os.kill(child, signal.SIGKILL)


_SENDS_IN_A_CHILD = """
import asyncio, os, sys
import antiphon

async def send(group) -> None:
    try:
        await group.send(b"of a child")
    except antiphon.UsageError as error:
        print(error, flush=True)

async def main(own: str, state: str) -> None:
    async with antiphon.join("forks", bind=own, state=state, leave_s=0) as group:
        await group.send(b"pending")
        if not os.fork():
            asyncio.events._set_running_loop(None)  # which was copied as well
            asyncio.run(send(group))
            os._exit(0)
        os.wait()

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_forked_child_does_not_send_into_what_was_pending_in_its_parent(tmp_path: Path) -> None:
    """Its only thread has the number of the one that forked, and its copy of the loop seems to run."""
    words = [sys.executable, "-c", _SENDS_IN_A_CHILD, *free_addresses(1), tmp_path]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    assert told.stdout.startswith("loop: a group belongs to the event loop")
