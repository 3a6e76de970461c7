"""Say why a simulated run did not finish, by what is to be seen at its end."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from antiphon.protocol.machine import SECOND, Duration, Instant

_MANY = 10  # retransmissions for each message: more is no repair any more
_LOST_SHARE = 0.5  # of the datagrams: where more are lost, most repairs are lost too
_QUIET_SHARE = 0.5  # of the run without a delivery: then it stands still, and more time would not help


class Standstill(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be seen at the end of a run that did not finish."""

    now: Instant
    sent: int
    wanted: int  # messages that were to be sent
    held: int  # copies that members keep
    retransmissions: int
    delivered_at: Instant  # the last time that anything was delivered
    crashed: Sequence[int]  # where membership is fixed: those whose acknowledgment is waited for in vain
    paused: Sequence[int]
    cut: Sequence[tuple[int, int]]  # links that carry nothing now
    behind_ns: Duration  # how much later than now what is sent now leaves the slowest link
    apart: str = ""  # with views: who is in which, if not all are in one
    cut_short: bool = False  # the run was ended before its limit
    datagrams: int = 0
    lost: int = 0  # datagrams that did not come, though no link was cut: lost or overrun
    late_ns: Duration = 0  # how much later than now the last datagram arrives that is on its way
    due: int = 0  # messages that the application wanted to send by now
    idle: bool = False  # nothing is due any more


def why_not_finished(seen: Standstill) -> str:
    """Return the reasons that can be seen, most telling first, as one sentence without a full stop."""
    reasons = list(_faults(seen))
    if seen.behind_ns > SECOND:
        reasons.append(f"the slowest link is {seen.behind_ns / SECOND:.1f} s behind: it cannot carry what is sent")
    if seen.retransmissions > _MANY * max(1, seen.sent):
        reasons.append(f"{seen.retransmissions:,} retransmissions for {seen.sent:,} messages crowd out everything else")
    if seen.lost > _LOST_SHARE * seen.datagrams:
        reasons.append(f"{seen.lost:,} of {seen.datagrams:,} datagrams were lost or overrun")
    if seen.late_ns > SECOND and seen.late_ns > seen.behind_ns + _QUIET_SHARE * seen.now:
        late = f"{seen.late_ns / SECOND:.1f} s after the end"
        reasons.append(f"what is on its way arrives up to {late}: latencies are too long for this run")
    if seen.apart:
        reasons.append(seen.apart)
    if not reasons and seen.sent == 0 < seen.due:
        reasons.append(f"{seen.due:,} messages were due, and the protocol lets none be sent")
    elif not reasons and seen.idle:
        at_s = seen.now / SECOND
        reasons.append(f"nothing is due any more after {at_s:.3f} s: the protocol keeps what it never lets go")
    elif not reasons and seen.sent == 0:
        reasons.append("no message was due before the end: a longer limit, or shorter intervals, may do")
    elif not reasons:
        quiet_ns = seen.now - seen.delivered_at
        if seen.cut_short:
            reasons.append("the run was cut short")
        elif quiet_ns > _QUIET_SHARE * seen.now:
            reasons.append(f"nothing was delivered after {seen.delivered_at / SECOND:.3f} s: the protocol stands still")
        else:
            reasons.append("messages were still being delivered: a longer limit, or shorter intervals, may do")
    state = f"{seen.sent:,} of {seen.wanted:,} messages were sent and {seen.held:,} copies are still held"
    return f"{state}; " + "; ".join(reasons)


def _faults(seen: Standstill) -> list[str]:
    reasons = []
    if seen.crashed:
        reasons.append(f"{_members(seen.crashed)} crashed, and with fixed membership all wait for it for ever")
    if seen.paused:
        reasons.append(f"{_members(seen.paused)} is still paused")
    if seen.cut:
        links = ", ".join(f"{source} to {target}" for source, target in seen.cut[:4])
        more = f" and {len(seen.cut) - 4} more" if len(seen.cut) > 4 else ""
        reasons.append(f"still cut: {links}{more}")
    return reasons


def _members(numbers: Sequence[int]) -> str:
    return f"member {', '.join(map(str, numbers))}"
