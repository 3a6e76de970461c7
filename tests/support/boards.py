"""A live group as the dashboard sees it, told by hand: one is killed, and another stops reading."""

from __future__ import annotations

from unittest.mock import patch

import msgspec

from antiphon.live.events import Status
from antiphon.report.board_state import BoardState
from antiphon.report.live_board import Board, Follower

NAMES = ("alice", "bob", "carol")
STATUS = Status(
    group="orders", me="alice", standing="active", view=1, members=NAMES, lag=dict.fromkeys(NAMES, 0), slowest=None,
    sent=0, delivered=0, held=0, waiting_bytes=0, inbox_bytes=0, burst_bytes=55_000, counts={},
)  # fmt: skip


def troubled_group(seconds: int = 60) -> BoardState:
    """Return what the page is given at the end of so many seconds."""
    followers = [Follower(f"127.0.0.1:{7101 + number}") for number in range(3)]
    board, now = Board(followers), 1_700_000_000.0
    with patch("antiphon.report.live_board.time.time", lambda: now):
        for second in range(seconds):
            now += 1
            for number, follower in enumerate(followers):
                gone = number == 1 and second >= seconds // 3
                if gone:
                    if follower.connected:
                        follower.connected = False
                        board.lost(follower)
                    continue
                after = {"view": 2, "members": ("alice", "carol")} if second > seconds // 3 else {}
                inbox = 2_500_000 if number == 2 and second > seconds // 2 else 0
                follower.heard_at, follower.connected = now, True
                told = msgspec.structs.replace(
                    STATUS, me=NAMES[number], sent=40 * second, delivered=100 * second, inbox_bytes=inbox, **after
                )
                board.heard(follower, told)
            board.tick()
        return board.show()
