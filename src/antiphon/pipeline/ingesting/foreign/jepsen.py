"""Jepsen histories: a small EDN reader, and which operation is which event."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from antiphon.errors import UsageError

_GAP: Final = re.compile(r"(?:[\s,]|;[^\n]*)*")  # apart from the tokens, so that no token begins inside a comment
_TOKEN: Final = re.compile(
    r"""[\[\](){}]|\#\{|\#_|\^
    |"(?:\\.|[^"\\])*"                # text
    |\\(?:newline|space|tab|return|u[0-9a-fA-F]{4}|.)
    |\#?[^\s,;"\[\](){}]+             # symbols, keywords, numbers, tags""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING: Final = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_IS_JSON: Final = re.compile(r'\s*\[?\s*\{\s*"[^"]*"\s*:')
_WORDS: Final = {"nil": None, "true": True, "false": False}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
_DISCARD: Final = object()

_SENDS: Final = frozenset({"send", "enqueue", "publish", "broadcast", "add", "produce"})
_DELIVERS: Final = frozenset({"deliver", "dequeue", "receive", "read", "poll", "drain", "consume"})
_OF_A_SET: Final = frozenset({"broadcast", "add", "read"})  # who reads is given all that is there
_CONSUMERS: Final = "consumers"  # those who subscribe to keys of a log, and so share them
_COMPETING: Final = frozenset({"enqueue", "dequeue", "drain"})  # a queue: whoever takes it, takes it for all


class _CutShort(UsageError):
    """A text ends inside of a form."""


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self._text, self._file, self._at = text, file, 0

    def forms(self) -> Iterator[Any]:
        """Return the forms of the text, one after the other."""
        while (token := self._next()) is not None:
            form = self._form(token)
            if form is not _DISCARD:
                yield form

    def operations(self) -> Iterator[Any]:
        """Return the forms, and those in a vector of them; what is cut short at the end says so."""
        inside = False
        try:
            while (token := self._next()) is not None:
                if token in ("[", "(") and not inside:
                    inside = True
                elif token in ("]", ")") and inside:
                    inside = False
                elif (form := self._form(token)) is not _DISCARD:
                    yield form
        except _CutShort as problem:
            yield {NO_MESSAGE: str(problem)}
            return
        if inside:
            yield {NO_MESSAGE: "the history ends before a ]"}

    def _next(self) -> str | None:
        gap = _GAP.match(self._text, self._at)
        start = gap.end() if gap is not None else self._at
        if start == len(self._text):
            return None
        match = _TOKEN.match(self._text, start)
        if match is None:
            raise UsageError(f"{self._file}: not EDN near {self._text[start : start + 30].strip()!r}")
        self._at = match.end()
        return match[0]

    def _form(self, token: str) -> Any:
        if token in _CLOSING:
            items = self._until(_CLOSING[token])
            keys = (str(key) if isinstance(key, dict) else key for key in items[::2])
            return dict(zip(keys, items[1::2], strict=False)) if token == "{" else items
        if token == "#_":
            self._required()
            return _DISCARD
        if token == "^":
            self._required()
            return self._required()
        if token[0] == '"':
            return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), token[1:-1])
        if token[0] == "#":
            return self._required()  # a tagged form is what is tagged
        if token[0] == ":":
            return token[1:]
        if token in _WORDS:
            return _WORDS[token]
        return _number(token)

    def _required(self) -> Any:
        while (token := self._next()) is not None:
            form = self._form(token)
            if form is not _DISCARD:
                return form
        raise _CutShort("the history ends in the middle of a form")

    def _until(self, closing: str) -> list[Any]:
        items: list[Any] = []
        while (token := self._next()) is not None:
            if token == closing:
                return [tuple(item) if isinstance(item, list) else item for item in items]
            form = self._form(token)
            if form is not _DISCARD:
                items.append(form)
        raise _CutShort(f"the history ends before a {closing}")


def _number(token: str) -> Any:
    for kind in (int, float):
        try:
            return kind(token.rstrip("NM"))
        except ValueError:
            continue
    return token


def read_edn(text: str, file: str = "text") -> Iterator[Any]:
    """Return the forms of an EDN text: maps as dicts, vectors, lists and sets as lists, keywords as their names."""
    return _Reader(text, file).forms()


NO_MESSAGE: Final = "no message"  # the key under which a record says why it is about none


def read_history(text: str, file: str) -> Iterator[dict[str, Any]]:
    """Return a record for each message that an operation of a history sends, or that one has been given."""
    history = _History()
    for operation in _json_operations(text) if _IS_JSON.match(text) else _Reader(text, file).operations():
        if not isinstance(operation, dict):
            continue
        if NO_MESSAGE in operation:
            yield operation
        elif isinstance(operation.get("process"), int):  # the nemesis is none
            yield from history.records(operation)


def _json_operations(text: str) -> Iterator[Any]:
    """Return the operations of a history in JSON, whose keywords are texts: a list of them, or one a line."""
    decode = msgspec.json.Decoder().decode
    try:
        whole = decode(text)
        operations = iter(whole if isinstance(whole, list) else [whole])
    except msgspec.DecodeError:
        operations = _json_lines(text)
    for operation in operations:
        words = {key: str(operation[key]).removeprefix(":") for key in ("type", "f") if key in operation}
        yield operation | words


def _json_lines(text: str) -> Iterator[dict[str, Any]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    for line in text.splitlines():
        said = line.strip().strip("[],")  # of a list that was cut short
        if said:
            try:
                yield decode(said)
            except msgspec.DecodeError:
                yield {"line": line, NO_MESSAGE: "not a JSON object"}


_OTHER: Final = frozenset(
    {"subscribe", "assign", "close", "crash", "debug-topic-partitions"}
)  # nothing is sent by them


class _History:
    """What must be known of earlier operations to say what one means."""

    def __init__(self) -> None:
        self._takers: set[int] = set()  # processes that have asked a queue
        self._read: dict[int, set[Any]] = {}  # by process, what it has read of a set
        self._subscribed: set[int] = set()  # processes that share partitions with others

    def records(self, operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Return what one operation tells."""
        what, value = operation.get("f"), operation.get("value")
        if (why := _no_message(operation)) is not None:
            if operation.get("type") == "ok":  # once an operation
                yield {**operation, NO_MESSAGE: why}
            return
        if what in ("subscribe", "assign"):
            yield from self._subscription(operation)
        elif _steps(value):
            yield from self._steps(operation)
        else:
            yield from self._beginning(operation)
            if what == "read" and isinstance(value, list | tuple):  # all that is there: what is new was delivered
                known = self._read.setdefault(operation["process"], set())
                operation = operation | {"value": [one for one in dict.fromkeys(value) if one not in known]}
                known.update(value)
            yield from _records(operation)

    def _beginning(self, operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Return a subscription where a process first asks a queue: who takes from it is owed all that is in it."""
        what, process = operation.get("f"), operation["process"]
        if what in _COMPETING & _DELIVERS and process not in self._takers:
            self._takers.add(process)
            topic, group = operation.get("topic") or "queue", operation.get("group") or "queue"
            yield _told(operation, "subscribed") | {"topic": topic, "group": group}

    def _subscription(self, operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Return the subscriptions of a process to keys, which it shares with others or has assigned to itself."""
        process, keys = operation["process"], operation.get("value")
        if operation.get("type") != "ok" or not isinstance(keys, list | tuple):
            return
        shared = operation["f"] == "subscribe"
        (self._subscribed.add if shared else self._subscribed.discard)(process)
        for key in keys if shared else ():
            yield _told(operation, "subscribed") | {"topic": str(key), "group": _CONSUMERS}

    def _steps(self, operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Return what the steps of an operation on a log tell: `[:send key value]`, `[:poll {key [[at value]]}]`."""
        kind, process = operation.get("type"), operation["process"]
        for step in operation["value"]:
            if step[0] == "send" and kind in ("invoke", "ok"):
                _, key, sent = step
                value = sent[-1] if isinstance(sent, list | tuple) else sent
                event = "send" if kind == "invoke" else "acknowledged"
                yield _told(operation, event) | {"topic": str(key), "value": f"{key}/{value}"}
            elif step[0] == "poll" and kind == "ok" and len(step) > 1 and isinstance(step[1], dict):
                group = {"group": _CONSUMERS} if process in self._subscribed else {}
                for key, found in step[1].items():
                    for _, value in found:
                        yield _told(operation, "deliver") | {"topic": str(key), "value": f"{key}/{value}"} | group


def _no_message(operation: dict[str, Any]) -> str | None:
    """Say why an operation is not about messages, as those of other workloads are not; None if it may be."""
    what, value = operation.get("f"), operation.get("value")
    if _steps(value) or what in _OTHER or value is None or value == []:
        return None
    if what not in _SENDS | _DELIVERS:
        known = ", ".join(sorted(_SENDS | _DELIVERS))
        return f"operation {what}, of a workload without messages; those with messages are {known}"
    if what == "read" and value is not None and not isinstance(value, list | tuple):
        return "a read of one value, as of a register or a counter; a read of a set gives a list of messages"
    return None


def _steps(value: Any) -> bool:
    """Whether an operation's value is a list of steps, as those on logs are written."""
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(isinstance(one, list | tuple) and len(one) > 0 and one[0] in ("send", "poll") for one in value)
    )


def _told(operation: dict[str, Any], event: str) -> dict[str, Any]:
    return {"process": operation["process"], "event": event, "time": operation.get("time")}


def _records(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    what, kind = operation.get("f"), operation.get("type")
    event = {
        (True, "invoke"): "send",
        (True, "ok"): "acknowledged",
        (False, "ok"): "deliver",
    }.get((what in _SENDS, str(kind)))
    if event is None or what not in _SENDS | _DELIVERS:
        return
    shared = _told(operation, event)
    if what in _COMPETING:
        shared |= {"topic": "queue", "group": "queue" if event == "deliver" else None}
    elif what in _OF_A_SET:
        shared |= {"topic": "set"}
    for name in ("topic", "partition", "group", "run", "sender"):
        if operation.get(name) is not None:
            shared[name] = operation[name]
    value = operation.get("value")
    if isinstance(value, dict):
        yield (
            shared
            | {key: value.get(key, shared.get(key)) for key in {*shared, *value}}
            | {"value": value.get("value", value.get("id"))}
        )
        return
    for one in value if isinstance(value, list | tuple) else [value]:
        if one is not None:
            yield shared | {"value": one}
