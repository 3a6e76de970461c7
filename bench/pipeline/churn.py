"""A group whose members die and come back as new incarnations, for years: its trace, one view after the other.

In each view everyone sends, delivers everybody's messages in one order and marks them stable; then some die and new
incarnations take their places. A death is a `leave`, a `crash`, or silent: the last rows of the log are lost, and with
`lose_sends` what the others have delivered may be among them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from antiphon.trace.event import Event

NAMES = 10_000  # the ids of a name's incarnations are so far apart
SECOND = 1_000_000_000


@dataclass
class Life:
    """One incarnation of a member."""

    id: int
    step: int = 0
    seq: int = 0
    rows: list[Event] = field(default_factory=list)


class Churn:
    """Plays the group; what it wrote since the last call is `written`."""

    def __init__(
        self,
        *,
        members: int = 6,
        messages: int = 2,
        silent: float = 0.1,
        lose_sends: bool = False,
        wrong: float = 0.0,
        same_id: bool = False,
        seed: int = 1,
        run: str = "churn",
    ) -> None:
        self.rng, self.run = random.Random(seed), run
        self.messages, self.silent, self.lose_sends, self.wrong, self.same_id = (
            messages,
            silent,
            lose_sends,
            wrong,
            same_id,
        )
        self.lives = [Life(slot + 1) for slot in range(members)]
        self.number = self.now = 0
        self.deaths = self.silent_deaths = 0

    def views(self, count: int, deaths: int = 1) -> Iterator[list[Event]]:
        """Play so many views, each ending with some deaths; yields the rows that reached the logs in each."""
        for _ in range(count):
            self._view()
            victims = self.rng.sample(range(len(self.lives)), deaths)
            written = [row for slot in victims for row in self._die(slot)]
            for life in self.lives:
                written += life.rows
                life.rows = []
            for slot in victims:
                self.lives[slot] = self._reborn(self.lives[slot])
            yield written

    def _note(self, life: Life, event: str, sender: int | None = None, seq: int | None = None, **more: object) -> None:
        life.step += 1
        self.now += SECOND // 1000
        row = Event(self.run, life.id, life.step, event, sender, seq, self.now, self.number, **more)  # type: ignore[arg-type]
        life.rows.append(row)

    def _view(self) -> None:
        self.number += 1
        members = sorted(life.id for life in self.lives)
        for life in self.lives:
            self._note(life, "view", members=members)
        sent: list[tuple[int, int]] = []
        for _ in range(self.messages):
            for life in self.lives:
                life.seq += 1
                self._note(life, "send", life.id, life.seq)
                sent.append((life.id, life.seq))
        for life in self.lives:
            order = list(sent)
            if self.rng.random() < self.wrong:
                self._spoil(order)
            for message in order:
                self._note(life, "deliver", *message)
        for life in self.lives:
            for other in self.lives:
                self._note(life, "stable", other.id, other.seq)

    def _spoil(self, order: list[tuple[int, int]]) -> None:
        at = self.rng.randrange(len(order) - 1)
        if self.rng.random() < 0.5:
            order[at], order[at + 1] = order[at + 1], order[at]
        else:
            order.insert(at + 1, order[at])

    def _die(self, slot: int) -> list[Event]:
        life = self.lives[slot]
        self.deaths += 1
        if self.rng.random() >= self.silent:
            self._note(life, self.rng.choice(["leave", "crash"]))
            rows = life.rows
        else:
            self.silent_deaths += 1
            last_send = max(at for at, row in enumerate(life.rows) if row.event == "send")
            first = last_send if self.lose_sends and self.rng.random() < 0.5 else last_send + 1
            rows = life.rows[: self.rng.randint(first, len(life.rows))]
        life.rows = []
        return rows

    def _reborn(self, life: Life) -> Life:
        if not self.same_id:
            return Life(life.id + NAMES)
        life.step += 100  # what was lost had steps too
        return life


class Clients:
    """Clients of a broker that come and go: two publish for ever, others subscribe, take what comes, and leave.

    One at a time consumes for itself and two share a queue; each stays for `stay` messages, then another takes its
    place, with an id of its own. With `vanish`, that share of them go without a word.
    """

    def __init__(self, *, stay: int = 20, lost: float = 0.0, vanish: float = 0.0, seed: int = 1) -> None:
        self.rng, self.stay, self.lost, self.vanish = random.Random(seed), stay, lost, vanish
        self.now, self.gone = 0, 0
        self.sent = {1: 0, 2: 0}
        self.steps: dict[int, int] = {}
        self.rows: list[Event] = []
        self.ids = iter(range(3, 1 << 30))
        self.here: list[tuple[int, str | None, int]] = []  # client, its group, how many messages it stays for

    def _note(self, member: int, event: str, sender: int | None = None, seq: int | None = None, **more: object) -> None:
        self.steps[member] = self.steps.get(member, 0) + 1
        self.now += SECOND // 1000
        self.rows.append(Event("r", member, self.steps[member], event, sender, seq, self.now, **more))  # type: ignore[arg-type]

    def _come(self, group: str | None) -> tuple[int, str | None, int]:
        client = next(self.ids)
        self._note(client, "control", detail="subscribed-late", topic="orders", group=group)
        return client, group, self.stay + self.rng.randint(0, self.stay)

    def messages(self, count: int) -> list[Event]:
        """Play so many messages; returns the rows."""
        self.rows = []
        for _ in range(count):
            self.here = self.here or [self._come(None), self._come("q"), self._come("q")]
            sender = self.rng.choice((1, 2))
            self.sent[sender] += 1
            message = sender, self.sent[sender]
            self._note(sender, "send", *message, topic="orders")
            self._note(sender, "control", *message, detail="acknowledged")
            for client, group, _ in (self.here[0], self.rng.choice(self.here[1:])):
                if self.rng.random() >= self.lost:
                    self._note(client, "deliver", *message, topic="orders", group=group)
            for at, (client, group, left) in enumerate(self.here):
                self.here[at] = client, group, left - 1
                if left <= 1:
                    self.gone += 1
                    if self.rng.random() >= self.vanish:
                        self._note(client, "control", detail="unsubscribed", topic="orders", group=group)
                        self._note(client, "leave")
                    self.here[at] = self._come(group)
        rows = self.rows
        return rows
