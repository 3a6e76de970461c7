"""What members are called on the console: by name and life, as on pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from antiphon.protocol.membership.views import name_of

if TYPE_CHECKING:
    from antiphon.pipeline.store.layout import TraceLayout
    from antiphon.report.run_settings import RunSettings


class MemberWords:
    """Names the members of a trace's runs, while its layout is there; `given` are the names that a foreign log had."""

    def __init__(self, trace: str, layout: TraceLayout, given: Mapping[int, str]) -> None:
        self._trace, self._layout, self._given = trace, layout, given
        self._runs: dict[str, tuple[RunSettings, dict[int, int]]] = {}

    @property
    def first_run(self) -> str:
        """The first of the trace's runs."""
        return self._layout.runs[0]

    def called(self, run: str, member: int) -> str:
        """Return what a member is called: "alice, 2nd life", "member 3"."""
        settings, lives = self._known(run)
        name = settings.name_of(member) or f"member {name_of(member) if settings.views else member}"
        return name + settings.life_of(member, lives)

    def sentence(self, run: str, text: str) -> str:
        """Return a sentence of a checker with names in the places of numbers."""
        from antiphon.report.member_names import put_names

        return put_names(text, lambda member: self.called(run, member))

    def _known(self, run: str) -> tuple[RunSettings, dict[int, int]]:
        from antiphon.report.run_settings import count_lives, run_settings

        if run not in self._runs:
            layout = self._layout
            index = layout.runs.index(run)
            views = [members for members in layout.skeleton(index)["members"].to_pylist() if members]
            units = range(int(layout.run_bounds[index]), int(layout.run_bounds[index + 1]))
            listed = [member for members in views for member in members]
            lives = count_lives(listed or [int(layout.unit_member[unit]) for unit in units])
            self._runs[run] = run_settings(self._trace, run, self._given), lives
        return self._runs[run]
