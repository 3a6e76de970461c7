"""Arguments of public calls, checked where they enter: what is wrong is said with the argument's name."""

from __future__ import annotations

import asyncio
import inspect
import math
import operator
import os
import types
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from threading import get_ident
from typing import Any, Final, Literal, Union, get_args, get_origin
from weakref import WeakSet

from antiphon.errors import UsageError, UsageTypeError


def check_type(name: str, value: object, hint: Any) -> None:
    """Raise unless a value has its declared type: `UsageTypeError`, or `UsageError` if it is a wrong value of it."""
    if conforms(value, hint):
        return
    choices = [choice for one in _alternatives(hint) if get_origin(one) is Literal for choice in get_args(one)]
    if choices and any(type(value) is type(choice) for choice in choices):
        raise UsageError(f"{name}: {value!r} is none of {', '.join(map(repr, choices))}")
    raise UsageTypeError(f"{name}: must be {_shown(hint)}, not {type(value).__name__} ({value!r:.40})")


def conforms(value: object, hint: Any) -> bool:
    """Return whether a value is of a type, as far as that can be seen without calling it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(conforms(value, one) for one in arguments)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in arguments)
    if origin is Callable:
        return callable(value)
    if origin is type:
        return isinstance(value, type)
    if origin is Sequence:
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str | bytes | bytearray)
            and all(conforms(one, arguments[0]) for one in value)
        )
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(conforms(key, arguments[0]) for key in value)
    if origin is PathLike:
        return isinstance(value, PathLike) and isinstance(os.fspath(value), str)
    if hint in (int, float):
        return not isinstance(value, bool) and (isinstance(value, int) or (hint is float and _is_finite(value)))
    return isinstance(value, type(None) if hint is None else hint)


def _is_finite(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _shown(hint: Any) -> str:
    names = []
    for one in _alternatives(hint):
        origin = get_origin(one)
        if origin is Literal:
            names.append(" or ".join(map(repr, get_args(one))))
        elif origin is Callable:
            names.append("a function")
        elif origin is Sequence:
            names.append(f"a sequence of {_shown(get_args(one)[0])}")
        elif origin is type:
            names.append("a class")
        elif origin in (dict, Mapping):
            names.append("a dict with names as keys")
        elif origin is PathLike:
            names.append("a path")
        elif one in (None, type(None)):
            names.append("None")
        else:
            names.append("a number" if one is float else one.__name__)
    return " or ".join(names)


def check_range(name: str, value: float, least: float, most: float = math.inf) -> None:
    """Raise a `UsageError` unless a number lies between two others."""
    if not least <= value <= most:
        reach = f"at least {least}" if most == math.inf else f"between {least} and {most}"
        raise UsageError(f"{name}: must be {reach}, not {value}")


def check_text(name: str, value: object) -> None:
    """Raise a `UsageError` if a text, or one inside a list or a table, holds what no file and no packet can hold."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{name}: {value!r:.40} is no text: half of a surrogate pair stands alone in it") from None
    elif isinstance(value, Mapping):
        for key, one in value.items():
            check_text(name, key)
            check_text(f"{name}.{key}", one)
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        for one in value:
            check_text(name, one)


def check_path(name: str, value: str | PathLike[str]) -> None:
    """Raise a `UsageError` unless a text or path can name a file or a folder."""
    text = os.fspath(value)
    check_text(name, text)
    if not text or "\0" in text:
        raise UsageError(f"{name}: {text!r:.40} names no folder")


def check_takes(name: str, function: Callable[..., object], arguments: int) -> None:
    """Raise a `UsageTypeError` unless a function takes so many arguments, as far as its signature tells."""
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except ValueError:
        return  # it does not tell, as some that are written in C
    except TypeError:
        takes = "one argument" if arguments else "no argument"
        raise UsageTypeError(f"{name}: is called with {takes}, which {function!r:.60} does not take") from None


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raise a `UsageError` unless this loop is the one that runs here: a group is not for two threads."""
    if asyncio.get_running_loop() is not loop:
        raise UsageError(_OTHER_LOOP)


class AtHome:
    """The loop in which a group was entered: whether it is the one that runs here is asked at each message.

    `asyncio.get_running_loop` asks the kernel for the process each time, before Python 3.12; the thread costs a tenth.
    """

    def __init__(self) -> None:
        self.loop, self._thread = asyncio.get_running_loop(), get_ident()
        _HOMES.add(self)

    def check(self) -> None:
        """Raise a `UsageError` in another loop or thread."""
        if get_ident() != self._thread or not self.loop.is_running():
            check_loop(self.loop)


_HOMES: Final[WeakSet[AtHome]] = WeakSet()


def _leave_home_in_a_child() -> None:
    """Let nothing be at home in a forked child, whose only thread has the number of the one that forked."""
    for home in _HOMES:
        home._thread = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_home_in_a_child)


def check_thread(loop: asyncio.AbstractEventLoop) -> None:
    """Raise a `UsageError` where this loop runs in another thread, or another loop here: for calls that do not wait."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        if loop.is_running():
            raise UsageError(_OTHER_LOOP) from None
    else:
        if running is not loop:
            raise UsageError(_OTHER_LOOP)


_OTHER_LOOP: Final = (
    "loop: a group belongs to the event loop in which it was entered; from another, "
    "use asyncio.run_coroutine_threadsafe(group.send(...), loop), or loop.call_soon_threadsafe(group.set_keys, key)"
)


def plain(value: object) -> Any:
    """Return what a text, a number or bytes of a class of the application's own holds, also inside a list or a table.

    A member of a `StrEnum` is its text, for instance: what is compared, shown and written is of the plain types.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return as_payload(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return operator.index(value)
    if isinstance(value, float):
        return float.__float__(value)
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))  # type: ignore[call-overload, call-arg]
    if type(value) is dict:
        return {plain(key): plain(one) for key, one in value.items()}
    return value


def as_payload(payload: object, name: str = "payload") -> bytes:
    """Return a payload as bytes, or raise: text must be encoded first."""
    if type(payload) is bytes:
        return payload
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(memoryview(payload))  # of a kind of bytes of the application's own, its bytes alone
    hint = "; encode it: text.encode()" if isinstance(payload, str) else ""
    raise UsageTypeError(f"{name}: must be bytes, not {type(payload).__name__}{hint}")
