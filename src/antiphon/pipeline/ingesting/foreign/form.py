"""The form of a foreign log: which key of its records is which column, and what its words mean.

A preset is such a form in a TOML file of the package; a user's mapping becomes one when a log has names and ids of its
own. `LogForm.rows` turns one record into rows.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from antiphon.errors import UsageError
from antiphon.pipeline.ingesting.foreign import tags
from antiphon.pipeline.ingesting.foreign.replies import NIL_REPLIES, entries_of, is_reply
from antiphon.pipeline.reading import mapping as user
from antiphon.pipeline.reading.rows import value_inside
from antiphon.pipeline.reading.time_units import TimeUnit, nanoseconds, unit_named
from antiphon.pipeline.store.files import plain_name
from antiphon.trace.schema import (
    ACKNOWLEDGED,
    BROKER_COLUMNS,
    BROKER_KINDS,
    COLUMNS,
    EVENTS,
    SUBSCRIBED,
    SUBSCRIBED_LATE,
)

IF_SENT: Final = "acknowledged-if-sent"  # `ack`: the broker's of what this member sent; of anything else a consumer's
ABOUT_A_MESSAGE: Final = frozenset({"send", "receive", "deliver", "stable", "discard", "acknowledged", IF_SENT})
_FOLDER: Final = resources.files("antiphon.pipeline.ingesting.foreign").joinpath("presets")
PRESETS: Final = tuple(
    sorted(file.name.removesuffix(".toml") for file in _FOLDER.iterdir() if file.name.endswith(".toml"))
)
FROM_NOW: Final = "subscribed-from-now"  # to what is sent from now on; becomes one of the trace's kinds
TOLD: Final = (*BROKER_KINDS, FROM_NOW, IF_SENT, *tags.BY_TAG)
_TAGGED: Final = {ACKNOWLEDGED: tags.CONFIRMS, IF_SENT: tags.MAY_CONFIRM, tags.REFUSED: tags.REFUSES}
_TAGGED_ALL: Final = {
    ACKNOWLEDGED: tags.CONFIRMS_ALL, IF_SENT: tags.MAY_CONFIRM_ALL, tags.REFUSED: tags.REFUSES_ALL,
}  # fmt: skip
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_ENTRY_BITS: Final = 20  # of an entry's id in a Redis stream: what comes behind the milliseconds
_TEXTS: Final = (".txt", ".log")  # how texts are called whose lines a regular expression tells of
_NO_MEMBER: Final = "no member: it has none of the keys {}"
_NO_EVENT: Final = "no event: it has none of the keys {}"
_UNKNOWN_EVENT: Final = 'event is {}, which a mapping\'s [events] can give a meaning ("": it is no event); known are {}'
_NO_MESSAGE: Final = "{} without the message's id: it has none of the keys {}"


class ForeignRow(msgspec.Struct):
    """One event as a log has it: names and ids are text."""

    run: str
    member: str
    event: str
    sender: str | None = None
    id: str | None = None
    step: int | None = None
    time_ns: int | None = None
    view: int = 0
    bytes: int | None = None
    members: list[str] | None = None
    detail: str | None = None
    topic: str | None = None
    partition: str | None = None
    group: str | None = None
    redelivered: bool | None = None
    partition_offset: int | None = None
    span: str | None = None  # the operation's own id, by which others may refer to it
    about: str | None = None  # the operation of the message that this one is about
    channel: str | None = None  # over which a message was published
    tag: int | None = None  # its number there, or that which an acknowledgment names


class NoRow(ValueError):
    """Why a record is no event; `event` is what it would have been, where that is known."""

    def __init__(self, reason: str, event: str | None = None) -> None:
        super().__init__(reason)
        self.event = event


class LogForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the records of a log are read."""

    about: str = ""
    columns: dict[str, list[str]] = {}  # the trace's column -> the keys that may have it, the first that does counts
    events: dict[str, list[str]] = {}  # the log's word -> what happened, in order; nothing: the record is no event
    constants: dict[str, str | int] = {}
    defaults: dict[str, str] = {}  # what a record means that says nothing of a column; {file}: its file's name
    lines: list[str] = []  # of a text log: what its lines are like, regular expressions whose named groups are keys
    other_lines: Literal["quarantined", "ignored"] = "quarantined"  # those that are like none of them
    members: dict[str, int] = {}  # numbers that some names have
    ids: Literal["message", "log"] = "message"  # log: an id is one within its topic and partition, as an offset is
    numbers_from: int = 1
    time_unit: TimeUnit = ""  # of all times that are numbers
    guessed_unit: TimeUnit = ""  # of those whose key does not name one
    receipts: Literal["run", "member"] = "run"  # where there is no delivery, a receipt is one: in a run, or at a member
    order: Literal["file", "time"] = "file"  # what puts a member's rows in order where they have no step
    sends: Literal["recorded", "unrecorded"] = "recorded"
    own_deliveries: Literal["recorded", "implied"] = "recorded"
    promises: list[str] = []
    late: dict[
        str, list[str]
    ] = {}  # key -> values by which a subscription says that it has only what comes from now on
    again: list[str] = []  # words for a delivery that are used only where there was one before
    each: list[str] = []  # keys of lists: a record that has one tells of as many messages
    incoming: dict[str, list[str]] = {}  # key -> values by which a record says that it tells of what came in
    suffixes: tuple[str, ...] = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")

    def rows(self, record: Mapping[str, Any]) -> Iterator[ForeignRow]:
        """Return the rows of one record; NoRow says why there is none."""
        for one in self._messages(record):
            yield from self._rows(one)

    def _messages(self, record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Return a record for each message of one that lists several, as a reply of the broker has them."""
        listed = next((record[key] for key in self.each if is_reply(record.get(key))), None)
        if self._value(record, "seq") is not None or (listed is None and not self._is_of_nothing(record)):
            yield record
            return
        for one in entries_of(listed or []):
            of_stream = {} if one.stream is None else {self._keys("topic")[0]: one.stream}
            about = one.id if isinstance(one.id, Mapping) else {self._keys("seq")[0]: one.id}
            yield {**record, **of_stream, **about}

    def _is_of_nothing(self, record: Mapping[str, Any]) -> bool:
        """Say whether a record tells of a read that gave nothing, which is how Redis says that the time was over."""
        word = str(self._value(record, "event")).lower()
        return self.events.get(word) == ["deliver"] and any(
            key in record and record[key] is None for key in NIL_REPLIES if key in self.each
        )

    def _rows(self, record: Mapping[str, Any]) -> Iterator[ForeignRow]:
        word = self._value(record, "event")
        if word is None:
            raise NoRow(_NO_EVENT.format(", ".join(self._keys("event"))))
        kinds = self.events.get(str(word).lower(), [str(word)])
        if kinds == ["send"] and self.came_in(record):
            kinds = ["deliver"]
        if kinds == ["control"] and (detail := self.text(record, "detail")) in BROKER_KINDS:
            kinds = [str(detail)]
        for kind in map(functools.partial(self._by_tag, record), kinds):
            if not kind or (kind in (tags.OPENED, tags.SELECTED) and self.text(record, "member") is None):
                continue
            if kind not in EVENTS and kind not in TOLD:
                raise NoRow(_UNKNOWN_EVENT.format(repr(str(word)), ", ".join((*self.events, *EVENTS))))
            yield self._row(record, SUBSCRIBED_LATE if kind == SUBSCRIBED and self._begins_late(record) else kind)

    def _by_tag(self, record: Mapping[str, Any], kind: str) -> str:
        """Return what a record tells that names a delivery tag and no message; "" for nothing."""
        if kind not in _TAGGED or (kind != tags.REFUSED and self._value(record, "seq") is not None):
            return kind
        if "tag" not in self.columns or offset_of(self.text(record, "tag")) is None:
            return kind if kind == ACKNOWLEDGED else ""
        return (_TAGGED_ALL if is_yes(self._value(record, "multiple")) else _TAGGED)[kind]

    def unit_of(self, key: str) -> TimeUnit:
        """Return the unit of the times under a key; "" if only their size tells it."""
        return self.time_unit or unit_named(key) or self.guessed_unit

    def time_of(self, record: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the time of a record as it is written, None if it has none, and the key that has it."""
        return self._found(record, "time_ns")

    def came_in(self, record: Mapping[str, Any]) -> bool:
        """Say whether a record tells of what came in, where the same word stands for what goes out."""
        return any(str(record.get(key)).lower() in values for key, values in self.incoming.items())

    def _begins_late(self, record: Mapping[str, Any]) -> bool:
        return any(str(record.get(key)).lower() in values for key, values in self.late.items())

    def _row(self, record: Mapping[str, Any], kind: str) -> ForeignRow:
        event = "control" if kind in TOLD else kind
        member = self.text(record, "member")
        if member is None:
            raise NoRow(_NO_MEMBER.format(", ".join(self._keys("member"))), event)
        number = self.text(record, "seq")
        if kind in ABOUT_A_MESSAGE and number is None:
            raise NoRow(
                _NO_MESSAGE.format(
                    "an acknowledgment" if kind == ACKNOWLEDGED else f"a {kind}", ", ".join(self._keys("seq"))
                ),
                event,
            )
        members = self._value(record, "members")
        listed = members if isinstance(members, list) else str(members).replace(",", " ").split()
        mark, flag = self._found(record, "redelivered")
        if flag is None and kind == "deliver" and str(self._value(record, "event")).lower() in self.again:
            flag = True
        clock, when = self._found(record, "time_ns")
        return ForeignRow(
            run=self.text(record, "run") or "log",
            member=member,
            event=event,
            sender=(member if kind in ("send", "acknowledged", IF_SENT) else None) or self.text(record, "sender"),
            id=number if kind in ABOUT_A_MESSAGE else None,
            step=self._integer(record, "step"),
            time_ns=nanoseconds(when, self.unit_of(clock)),
            view=self._integer(record, "view") or 0,
            bytes=self._integer(record, "bytes"),
            members=None if members is None else [str(one) for one in listed],
            detail=kind if kind in TOLD else self.text(record, "detail"),
            topic=self.text(record, "topic"),
            partition=self.text(record, "partition"),
            group=self.text(record, "group"),
            redelivered=None if flag is None else is_yes(flag, least=least_of_yes(mark)),
            partition_offset=offset_of(self.text(record, "partition_offset")),
            span=self._reference(record, "span"),
            about=self._reference(record, "about"),
            channel=self._reference(record, "channel"),
            tag=offset_of(self._reference(record, "tag")),
        )

    def _reference(self, record: Mapping[str, Any], name: str) -> str | None:
        return self.text(record, name) if name in self.columns else None

    def _keys(self, name: str) -> list[str]:
        return self.columns.get(name, [name])

    def _value(self, record: Mapping[str, Any], name: str) -> Any:
        return self._found(record, name)[1]

    def _found(self, record: Mapping[str, Any], name: str) -> tuple[str, Any]:
        """Return what a record has for one of the trace's columns, and under which key."""
        if name in self.constants:
            return name, self.constants[name]
        for key in self._keys(name):
            value = value_inside(record, key)
            if value is not None and value != "":
                return key, value
        return name, self.defaults.get(name)

    def for_file(self, file: str) -> LogForm:
        """Return the form as it is for one file, whose name and folders may stand for what its records do not say."""
        name = Path(plain_name(file)).stem
        defaults = {column: text.replace("{file}", name) for column, text in self.defaults.items()}
        folders = user.said_by_folders(file)
        for column in (*COLUMNS, *BROKER_COLUMNS) if folders else ():
            said = [folders[key.lower()] for key in self._keys(column) if key.lower() in folders]
            defaults |= {column: said[0]} if said else {}
        return msgspec.structs.replace(self, defaults=defaults)

    def text(self, record: Mapping[str, Any], name: str) -> str | None:
        """Return what a record has for one of the trace's columns, as text."""
        value = self._value(record, name)
        if isinstance(value, list):  # as a tracer's `routing_keys`
            value = value[0] if value else None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return None if value is None else value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def _integer(self, record: Mapping[str, Any], name: str) -> int | None:
        value = self._value(record, name)
        try:
            return None if value is None else int(value)
        except (ValueError, TypeError):
            raise NoRow(f"{name} is {value!r}, which is no number") from None


def offset_of(text: str | None) -> int | None:
    """Return the number by which an offset is compared with others of its partition; None if it is none.

    The id of an entry in a Redis stream is one too: milliseconds, and a number within these.
    """
    first, dash, second = (text or "").partition("-")
    if not _DIGITS.fullmatch(first) or (dash and not _DIGITS.fullmatch(second)):
        return None
    if not dash:
        return int(first)
    return (int(first) << _ENTRY_BITS) + min(int(second), (1 << _ENTRY_BITS) - 1) if len(first) < 14 else None


def least_of_yes(key: str) -> int:
    """Return from which number on a mark says yes: 2 if it counts deliveries, as `num_delivered`; else 1."""
    name = key.lower()
    counts = any(part in name for part in ("num", "times", "count", "attempt", "deliveries"))
    return 2 if counts and "redeliver" not in name and name != "x-delivery-count" else 1


def is_yes(value: Any, least: int = 1) -> bool:
    """Say whether a mark says yes: a truth, a word for it, or a number from the least on."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    try:
        return float(text) >= least
    except ValueError:
        return text in ("true", "yes", "t", "y")


def form_of(mapping: user.Mapping) -> LogForm:
    """Return the form that a mapping describes: that of its preset, changed by what it says itself."""
    base = load_preset(mapping.preset) if mapping.preset else LogForm()
    columns = base.columns | {name: [key] for name, key in mapping.columns.items()}
    events = base.events | {word.lower(): [event] if event else [] for word, event in mapping.events.items()}
    return msgspec.structs.replace(
        base,
        columns=columns,
        events=events,
        constants=base.constants | mapping.constants,
        lines=[mapping.lines] if mapping.lines else base.lines,
        other_lines=mapping.other_lines,
        suffixes=tuple(dict.fromkeys((*base.suffixes, *(_TEXTS if mapping.lines else ())))),
        members=mapping.members,
        numbers_from=mapping.numbers_from if mapping.numbers_from != 1 else base.numbers_from,
        time_unit=mapping.time_unit or base.time_unit,
        guessed_unit=mapping.guessed_unit,
        sends="unrecorded" if "unrecorded" in (mapping.sends, base.sends) else "recorded",
    )


def load_preset(name: str) -> LogForm:
    """Read one of the package's presets."""
    if name not in PRESETS:
        raise UsageError(f"no preset is called {name!r}; they are {', '.join(PRESETS)}")
    text = _FOLDER.joinpath(f"{name}.toml").read_text()
    form = msgspec.convert(tomllib.loads(text), LogForm)
    assert set(form.columns) <= {*COLUMNS, *BROKER_COLUMNS, "span", "about", "channel", "tag", "multiple"}
    return form
