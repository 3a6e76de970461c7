"""Member processes that are told what to do, one call of the public interface at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support import commanded_member

GIVE_UP_S = 60.0


class Member:
    """One process; what it said so far is in `said`."""

    def __init__(self, address: str, settings: dict[str, Any]) -> None:
        self.address, self._settings = address, settings
        self.said: list[dict[str, Any]] = []
        self.start()

    def start(self) -> None:
        """Start the process, or start it again."""
        words = [sys.executable, str(Path(commanded_member.__file__)), "test", json.dumps(self._settings)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.said.append(json.loads(line))

    def tell(self, command: str, **arguments: Any) -> None:
        """Give a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([command, arguments]) + "\n")
        self.process.stdin.flush()

    def ask(self, command: str, answer: str, **arguments: Any) -> Any:
        """Give a command, and return what a report says that has a certain field."""
        before = len(self.said)
        self.tell(command, **arguments)
        self.wait_for(lambda: any(answer in one for one in self.said[before:]), f"{command} is answered")
        return next(one for one in self.said[before:] if answer in one)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is so."""
        give_up_at = time.monotonic() + GIVE_UP_S
        while not condition():
            assert time.monotonic() < give_up_at, f"{what}, at {self.address}: {self.said[-8:]}"
            time.sleep(0.02)

    def wait_for_view(self, *members: Member, after: int = 0) -> None:
        """Wait until the newest view of all that was said since is of these."""
        addresses = {member.address for member in members}

        def there() -> bool:
            views = [set(one["members"]) for one in self.said[after:] if "view" in one and "members" in one]
            return bool(views) and views[-1] == addresses

        self.wait_for(there, f"a view of {addresses}")

    def outcome(self, of: str) -> str:
        """Wait for what became of a message, and return it."""
        self.wait_for(lambda: any(one.get("of") == of for one in self.said), f"the receipt of {of} ends")
        return next(str(one["outcome"]) for one in self.said if one.get("of") == of)

    def messages(self) -> list[str]:
        """Return what it delivered, in all its starts."""
        return [one["message"] for one in self.said if "message" in one]

    def state(self) -> list[str]:
        """Ask what it has delivered, or was given as delivered."""
        state: list[str] = self.ask("state", "state")["state"]
        return state

    def notices(self) -> list[str]:
        """Return what it was told about itself."""
        return [one["notice"] for one in self.said if "notice" in one]

    def kill(self) -> None:
        """End the process without a word."""
        self.process.kill()
        self.process.wait()
        self._reader.join()


class Commanded:
    """The processes of one group on the loopback address."""

    def __init__(self, addresses: list[str], folder: Path, **settings: Any) -> None:
        self._addresses, self._folder = addresses, folder
        self._settings = {"key": os.urandom(16).hex(), "leave_s": 1.0, **settings}
        self.members: list[Member] = []

    def start(self, count: int, **settings: Any) -> list[Member]:
        """Start some more members; what is given here is theirs alone."""
        fresh = self._addresses[len(self.members) : len(self.members) + count]
        for own in fresh:
            peers = [peer for peer in self._addresses if peer != own]
            state = str(self.state_of(own))
            about = {"bind": own, "peers": peers, "state": state, **self._settings, **settings}
            self.members.append(Member(own, about))
        return self.members[-count:]

    def state_of(self, address: str) -> Path:
        """Return the state folder of a member, which is its own."""
        return self._folder / address.replace(":", "-")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.kill()
