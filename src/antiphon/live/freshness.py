"""Freshness: which hellos were said just now, whatever the clocks say, and which are recordings.

Every hello contains a question, a random number that changes every few seconds, and repeats the questions of others. A
hello that repeats this member's own question was sent after the question, so the process that sent it is alive. From
then on its hellos are numbered, and each is taken once. If another process appears under the same name, the earlier one
has to answer a newer question: a recording cannot.
"""

from __future__ import annotations

import os
from typing import Annotated, Final

import msgspec

from antiphon.live.session import Refused

ASK_S: Final = 10.0  # a question is answered while it is the newest or the last before
ECHOES_MAX: Final = 16  # in one hello, which is one packet
_HEARD_MAX: Final = 256  # questions that are still to be repeated


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """What shows of a hello that it is fresh."""

    life: int  # of its sender: one start of a process
    number: int  # of the hello, from 1
    question: int
    echoes: Annotated[tuple[int, ...], msgspec.Meta(max_length=ECHOES_MAX)] = ()  # what others have asked


class Freshness:
    """Stamps one's own hellos, and tells whether those of others are fresh."""

    def __init__(self) -> None:
        self._life, self._number = _draw(), 0
        self._questions: dict[int, int] = {}  # the newest two, each with its place in the order of asking
        self._asked = 0  # questions in all
        self._ask_at = 0.0  # the next one
        self._heard: dict[str, int] = {}  # what others ask, by name
        self._proven: dict[str, tuple[int, int]] = {}  # by name, its life and the number of its newest hello
        self._followed: dict[int, int] = {}  # lives that others have followed, and how much had been asked by then

    def stamp(self, now: float) -> Stamp:
        """Return the stamp of the next hello; `now` is of any clock that never goes back."""
        if now >= self._ask_at or not self._questions:
            self._ask(now)
        self._number += 1
        echoes = tuple(self._heard.popitem()[1] for _ in range(min(ECHOES_MAX, len(self._heard))))
        return Stamp(self._life, self._number, next(reversed(self._questions)), echoes)

    def _ask(self, now: float) -> None:
        """Change the question, and forget what only an older question could prove."""
        self._asked += 1
        self._questions = {**dict(list(self._questions.items())[-1:]), _draw(): self._asked}
        self._ask_at = now + ASK_S
        oldest = next(iter(self._questions.values()))
        self._followed = {life: asked for life, asked in self._followed.items() if asked >= oldest}

    def is_proven(self, name: str, stamp: Stamp) -> bool:
        """Say whether a hello of a name is known to be fresh; raise `Refused` if it was taken before."""
        life, newest = self._proven.get(name, (0, 0))
        if life == stamp.life and stamp.number <= newest:
            raise Refused("old-hello")
        self._hear(name, stamp.question)
        if life != stamp.life:
            answered = max((self._questions.get(echo, 0) for echo in stamp.echoes), default=0)
            if answered <= self._followed.get(stamp.life, 0):
                return False
            if life:
                self._followed[life] = self._asked
                self._ask_at = 0.0  # if it is alive after all, it answers the next question
        self._proven[name] = stamp.life, stamp.number
        return True

    def _hear(self, name: str, question: int) -> None:
        """Repeat a question in the next hellos, the newest first."""
        self._heard.pop(name, None)
        if len(self._heard) >= _HEARD_MAX:
            del self._heard[next(iter(self._heard))]
        self._heard[name] = question


def _draw() -> int:
    return int.from_bytes(os.urandom(8), "big") or 1  # 0: none
