"""What a simulated run can end with besides an error of the application's own."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.errors import AntiphonError
from antiphon.trace.event import Event
from antiphon.trace.verdict import Witness


class Stuck(AntiphonError, AssertionError):
    """Tasks wait for what will never happen, or the clock stands still; says who waits for what."""


class NotSimulated(AntiphonError, RuntimeError):
    """The application asked a simulated loop for something real: a socket, a thread, a process, a blocking sleep."""


class Unexamined(AntiphonError, AssertionError):
    """Messages were sent, but nothing by which a promised guarantee can be judged happened; says which and why."""

    def __init__(self, run: str, guarantee: str, why: str) -> None:
        super().__init__(
            f"group {run}: nothing of {guarantee} could be examined: {why}; let members end in good order, or say "
            f"unexamined=[{guarantee!r}] if it does not matter here"
        )
        self.run, self.guarantee = run, guarantee


class Violated(AntiphonError, AssertionError):
    """A guarantee that the group gives did not hold, with the few events that show it."""

    def __init__(self, run: str, guarantee: str, witness: Witness, events: Sequence[Event]) -> None:
        super().__init__(f"group {run}: {guarantee} is violated: {witness.why}")
        self.run, self.guarantee, self.witness, self.events = run, guarantee, witness, events
