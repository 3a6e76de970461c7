"""Space-time diagrams: members as lines, messages as arrows, for a document (SVG) and to explore (HTML)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from antiphon.report.diagram_layout import Layout, lay_out
from antiphon.report.diagram_story import story
from antiphon.report.diagram_svg import draw, legend_entries
from antiphon.report.page import asset, escape, page
from antiphon.trace.event import Event

DIAGRAM_STYLE: Final = asset("diagram.css") + asset("diagram-frame.css")
DIAGRAM_SCRIPT: Final = asset("diagram.js")

HINT: Final = "Point at an event for its details; click a message to follow its causal past and future."
_BUTTONS: Final = (("out", "−", "Zoom out"), ("in", "+", "Zoom in"), ("whole", "Whole", "Show the whole width"))


def witness_diagram(
    events: Sequence[Mapping[str, object]],
    marked: Sequence[tuple[int, int]],
    title: str,
    *,
    clocks_agree: bool = False,
) -> str:
    """An interactive `<figure>` of some rows of one run, those at the marked (member, step) ringed.

    The page must have DIAGRAM_STYLE and DIAGRAM_SCRIPT once. `clocks_agree`: the run has one global clock.
    """
    rows = [_event(row) for row in events]
    return figure(lay_out(rows, clocks_agree=clocks_agree, marked=marked), title)


def figure(layout: Layout, title: str, *, before: bool = True, after: bool = True) -> str:
    """An interactive `<figure>`; `before` and `after` say whether the trace goes on outside of the window."""
    buttons = "".join(
        f'<button type="button" data-zoom="{name}" title="{tip}" aria-label="{tip}">{text}</button>'
        for name, text, tip in _BUTTONS
    )
    keys = "".join(
        f'<span><svg class="space-time" viewBox="-17 -10 40 20" aria-hidden="true">{drawing}</svg>'
        f" {escape(meaning)}</span>"
        for drawing, meaning in legend_entries(layout)
    )
    return f"""<figure class="diagram" data-before="{int(before)}" data-after="{int(after)}">
<figcaption>{escape(title)}</figcaption>
<div class="tools" hidden>{buttons}<button type="button" data-zoom="clear" disabled>Show all messages</button>
<span class="hint">Zoom: Ctrl and wheel, + and −. Pan: drag, scroll, arrow keys. Enter: from event to event.</span>
</div>
<div class="pan">{draw(layout, title)}</div>
<p class="told" aria-live="polite">{HINT}</p>
<div class="legend">{keys}</div>
</figure>"""


def standalone(layout: Layout, title: str) -> str:
    """A whole SVG file, for a document: light and dark by the reader's setting, light in print."""
    style = asset("diagram-theme.css") + asset("diagram.css")
    return draw(layout, title, style=style) + "\n"


def page_of(layout: Layout, title: str, notes: Sequence[str], *, before: bool, after: bool) -> str:
    """A whole HTML file with one diagram, as wide as the window, and its message's story in words."""
    caption = f"{len(layout.marks)} events at {len(layout.members)} members"
    drawn = figure(layout, caption, before=before, after=after)
    told = "".join(f"<li>{escape(line)}</li>" for line in story(layout))
    noted = "".join(f"<p>{escape(note)}</p>" for note in notes)
    words = f"<h2>In words</h2>\n<ul>{told}</ul>" if told else ""
    body = f"<h1>{escape(title)}</h1>\n{drawn}\n{noted}\n{words}"
    return page(title, body, script=DIAGRAM_SCRIPT, style=DIAGRAM_STYLE + "main, .bar { max-width: none; }")


def _event(row: Mapping[str, object]) -> Event:
    known: dict[str, object] = {name: row[name] for name in Event.__struct_fields__ if row.get(name) is not None}
    return Event(**{"run": "", **known})  # type: ignore[arg-type]
