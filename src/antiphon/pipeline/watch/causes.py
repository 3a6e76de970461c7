"""What a message depends on, and whether a member had handled that before it handled the message."""

from __future__ import annotations

from antiphon.pipeline.kernels import compiled
from antiphon.pipeline.watch.handling import position_of
from antiphon.pipeline.watch.known import EFFECT_FIRST, Known, alarm
from antiphon.pipeline.watch.state import CAUSAL, CAUSAL_EXAMINED, CAUSAL_VIOLATIONS, NODES


@compiled
def add_to_past(q: int, m: int, known: Known) -> None:
    """Put a message (or ~view) at the head of the list of what a member's next message depends on."""
    at = known.counts[NODES]
    known.nodes[at].message = m
    known.nodes[at].next = known.actors[q].past
    known.actors[q].past = at
    known.counts[NODES] = at + 1


@compiled
def lengthen_stretch(q: int, m: int, known: Known) -> None:
    """Add a message that a follower delivers to what its next message depends on."""
    actor, messages = known.actors[q], known.messages
    line, rank, view = messages[m].seen_in, messages[m].rank, messages[m].send_view
    low, high = actor.stretch_low, actor.stretch_high
    goes_on = low < high and actor.stretch_line == line and high == rank and actor.stretch_view == view
    if low < high and not goes_on:  # one that cannot go on becomes a list
        counted = 0
        at = actor.stretch_last
        while at >= 0 and messages[at].rank >= low:
            add_to_past(q, at, known)
            counted += 1
            at = messages[at].before
        if counted < high - low:
            add_to_past(q, ~actor.stretch_view, known)
    if not goes_on:
        actor.stretch_line, actor.stretch_low, actor.stretch_view = line, rank, view
    actor.stretch_high, actor.stretch_last = rank + 1, m


@compiled
def check_causes(q: int, step: int, m: int, known: Known) -> None:
    """Whether a member had handled all direct predecessors of a message when it handled the message."""
    messages, nodes, seats, cells = known.messages, known.nodes, known.seats, known.cells
    message = messages[m]
    here = position_of(q, m, cells, messages, seats)
    counted = False
    cause = -1
    at = message.past
    while at >= 0:
        x = nodes[at].message
        at = nodes[at].next
        if x < 0:
            if seats[~x, q].belongs:
                counted = True
                if seats[~x, q].overlooked:
                    known.inexact[CAUSAL] = 1  # whether it had handled that is not known
        elif not messages[x].sent and known.lines.size > 1:
            known.inexact[CAUSAL] = 1  # the view in which it will be sent is not known yet
        elif x != m and seats[messages[x].send_view, q].belongs:
            counted = True
            there = position_of(q, x, cells, messages, seats)
            if there < 0 or there > here:
                cause = x
    low, high = message.stretch_low, message.stretch_high
    if low < high and seats[message.stretch_view, q].belongs:
        counted = True
        seat = seats[message.stretch_line, q]
        x = message.stretch_last
        if seat.row < 0 and seat.come >= high and seat.come_from + high <= here:
            x = -1  # it came past all of them before
        elif seats[message.stretch_view, q].overlooked:
            known.inexact[CAUSAL] = 1
        while x >= 0 and messages[x].rank >= low:
            there = position_of(q, x, cells, messages, seats)
            if there < 0 or there > here:
                cause = x
            x = messages[x].before
    known.counts[CAUSAL_EXAMINED] += counted
    if cause >= 0:
        known.counts[CAUSAL_VIOLATIONS] += 1
        alarm(known, EFFECT_FIRST, q, step, m, messages[cause].sender, messages[cause].seq)
