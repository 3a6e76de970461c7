"""One sentence for each way in which a guarantee can be violated, as docs/trace-guarantees.md has them."""

from __future__ import annotations

from antiphon.trace.verdict import Message


def _message(message: Message) -> str:
    return f"message {message[1]} of {message[0]}"


def delivered_unsent(member: int, message: Message) -> str:
    """Integrity: a delivery without a send."""
    return f"member {member} delivers {_message(message)}, which was never sent"


def delivered_again(member: int, message: Message) -> str:
    """Integrity: a repeated delivery."""
    return f"member {member} delivers {_message(message)} again"


def sent_again(member: int, message: Message) -> str:
    """Integrity: a repeated send."""
    return f"member {member} uses its number {message[1]} again"


def own_missing(member: int, message: Message) -> str:
    """Validity: an own message neither delivered nor discarded."""
    return f"member {member} neither delivers nor discards its own message {message[1]}"


def delivery_missing(member: int, message: Message, obliged_by: int, view: int) -> str:
    """Agreement: an owed message neither delivered nor discarded."""
    return (
        f"member {member} neither delivers nor discards {_message(message)}, "
        f"which member {obliged_by} delivers in view {view}"
    )


def delivered_late(member: int, message: Message, highest: int) -> str:
    """Fifo: a delivery after a higher number of the same sender."""
    return f"member {member} delivers {_message(message)} after number {highest}"


def effect_before_cause(member: int, event: str, message: Message, predecessor: Message) -> str:
    """Causal: a message handled before one that its sending depends on."""
    return (
        f"member {member} {event}s {_message(message)} before it delivers or discards {_message(predecessor)}, "
        f"which happened before it"
    )


def orders_differ(member: int, other: int, first: Message, second: Message) -> str:
    """Total: two members that deliver two common messages in different orders."""
    return (
        f"member {member} delivers {_message(first)} before {_message(second)}, "
        f"member {other} delivers them the other way round"
    )


def marked_unsent(member: int, message: Message) -> str:
    """Stability: a mark on a message that does not exist."""
    return f"member {member} marks {_message(message)} stable, which was never sent"


def marked_unreceived(member: int, mark: Message, lacking: int, message: Message) -> str:
    """Stability: a mark although a member of the view never receives a message that it covers."""
    return f"member {member} marks {_message(mark)} stable, but member {lacking} never receives {_message(message)}"


def marked_too_early(member: int, mark: Message, late: int, message: Message) -> str:
    """Stability: a mark before a member of the view receives a message that it covers."""
    return f"member {member} marks {_message(mark)} stable before member {late} receives {_message(message)}"


def views_differ(deliverer: int, lacking: int, message: Message, view: int, following: int) -> str:
    """View-synchrony: a message delivered in a view by only one of two members that go on to the same next view."""
    return (
        f"member {deliverer} delivers {_message(message)} in view {view}, member {lacking} does not, "
        f"and both install view {following} next"
    )


def consumer(group: str | None, member: int) -> str:
    """Name a broker's consumer: a group, or a member by itself."""
    return f"member {member}" if group is None else f"group {group}"


def lost_though_acknowledged(consumer: str, message: Message) -> str:
    """At-least-once: an acknowledged message that a consumer is never given."""
    return f"{consumer} never takes {_message(message)}, which the broker acknowledged"


def lost_though_delivered(consumer: str, message: Message, other: str) -> str:
    """At-least-once: a message that one consumer is given and another is not."""
    return f"{consumer} never takes {_message(message)}, which {other} is given"


def never_taken(consumer: str, message: Message, *, acknowledged: bool) -> str:
    """At-least-once, in a watch: a message that a consumer owes at the end."""
    why = "the broker acknowledged" if acknowledged else "another consumer is given"
    return f"{consumer} never takes {_message(message)}, which {why}"


def not_taken_yet(consumer: str, message: Message, *, acknowledged: bool) -> str:
    """At-least-once, in a watch: a message that a consumer has owed for longer than patience asks."""
    why = "the broker acknowledged" if acknowledged else "another consumer is given"
    return f"{consumer} has not taken {_message(message)} for longer than --patience, which {why}"


def given_again(consumer: str, message: Message) -> str:
    """At-most-once: a message that a consumer is given twice."""
    return f"{consumer} is given {_message(message)} again"


def given_again_unmarked(consumer: str, message: Message) -> str:
    """Redelivery: a message that a consumer is given twice without a mark."""
    return f"{given_again(consumer, message)} and is not told so"


def given_late(
    member: int, message: Message, offset: int | None, highest: int, topic: str, partition: str | None
) -> str:
    """Partition order: a delivery after a higher offset, or number, of the same partition."""
    where = topic if partition is None else f"{topic} partition {partition}"
    after = f" after number {highest}" if offset is None else f", offset {offset}, after offset {highest}"
    return f"member {member} is given {_message(message)}{after}, both in {where}"
