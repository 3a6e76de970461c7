"""The trace contract: one row an event, the same columns whether live, simulated or another system's."""

from __future__ import annotations

from typing import Final, Literal, get_args

EventName = Literal["send", "receive", "deliver", "stable", "discard", "control", "view", "leave", "crash", "end"]
EVENTS: Final[tuple[str, ...]] = get_args(EventName)

# column -> Arrow type, in the order in which they are written
COLUMNS: Final[dict[str, str]] = {
    "run": "string",
    "member": "int32",
    "step": "int64",  # its position in that member's own history: unique in (run, member), increasing, gaps allowed
    "time_ns": "int64",  # that member's clock; for measuring, never for ordering
    "event": "string",
    "sender": "int32",
    "seq": "int64",  # that sender's own number for the message, from 1; for `stable`, all up to it
    "view": "int64",  # 0 where membership is fixed
    "bytes": "int64",
    "members": "list<int32>",
    "detail": "string",
}
# what logs of message brokers have besides; column -> Arrow type
BROKER_COLUMNS: Final[dict[str, str]] = {
    "topic": "string",
    "partition": "string",
    "group": "string",  # the consumer group, queue or durable subscription; null: the member for itself
    "redelivered": "bool",
    "partition_offset": "int64",  # where the broker has put the message in its partition
}
REQUIRED: Final[tuple[str, ...]] = ("run", "member", "step", "event", "sender", "seq")

GUARANTEES: Final[tuple[str, ...]] = (
    "integrity",
    "validity",
    "agreement",
    "fifo",
    "causal",
    "total",
    "stability",
    "view-synchrony",
)
BROKER_GUARANTEES: Final[tuple[str, ...]] = ("at-least-once", "at-most-once", "partition-order", "redelivery")
ALL_GUARANTEES: Final = (*GUARANTEES, *BROKER_GUARANTEES)  # the latter are examined where a trace has topics

# what brokers and their clients say to each other: the `detail` of a `control` row
ACKNOWLEDGED, SUBSCRIBED, SUBSCRIBED_LATE, UNSUBSCRIBED = (
    "acknowledged",
    "subscribed",
    "subscribed-late",
    "unsubscribed",
)
# what was done at a member, from outside of its protocol: the `detail` of a `control` row
KEYS_CHANGED: Final = "keys changed"  # it seals with other keys from then on
INBOX_FULL: Final = "inbox full"  # its application does not take what was delivered, so that nothing more is taken in
INBOX_READ: Final = "inbox read"  # there is room again
DONE_AT_MEMBER: Final = (KEYS_CHANGED, INBOX_FULL, INBOX_READ)
STOPPED: Final = "stopped"  # of a `crash`: its application stopped it, or could not leave, with unfinished messages
BROKER_KINDS: Final = (ACKNOWLEDGED, SUBSCRIBED, SUBSCRIBED_LATE, UNSUBSCRIBED)
