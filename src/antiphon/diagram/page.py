"""Space-time diagrams: members as lines, messages as arrows, for a document (SVG) and to explore (HTML)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from markupsafe import Markup

from antiphon.diagram.layout import DiagramLayout, lay_out
from antiphon.diagram.story import story
from antiphon.diagram.svg import draw, legend_entries
from antiphon.trace.event import Event
from antiphon.web.elements import element, joined, paragraph
from antiphon.web.page import asset, page

DIAGRAM_STYLE: Final = asset("diagram.css") + asset("diagram-frame.css")
DIAGRAM_SCRIPT: Final = asset("diagram.js")

HINT: Final = "Point at an event for its details; click a message to follow its causal past and future."
_BUTTONS: Final = (("out", "−", "Zoom out"), ("in", "+", "Zoom in"), ("whole", "Whole", "Show the whole width"))


def witness_diagram(
    events: Sequence[Event],
    marked: Sequence[tuple[int, int]],
    title: str,
    *,
    clocks_agree: bool = False,
    names: Mapping[int, str] | None = None,
) -> Markup:
    """Return an interactive `<figure>` of some rows of one run, those at the marked (member, step) ringed.

    The page must have DIAGRAM_STYLE and DIAGRAM_SCRIPT once. `clocks_agree`: the run has one global clock.
    """
    return figure(lay_out(events, clocks_agree=clocks_agree, marked=marked, names=names), title)


def figure(layout: DiagramLayout, title: str, *, before: bool = True, after: bool = True) -> Markup:
    """Return an interactive `<figure>`; `before` and `after` say whether the trace goes on outside of the window."""
    buttons = joined(
        element("button", text, {"type": "button", "data-zoom": name, "title": tip, "aria-label": tip})
        for name, text, tip in _BUTTONS
    )
    keys = joined(
        Markup('<span><svg class="space-time" viewBox="-17 -10 40 20" aria-hidden="true">{}</svg> {}</span>').format(
            Markup(drawing), meaning
        )
        for drawing, meaning in legend_entries(layout)
    )
    return _FIGURE.format(
        before=int(before),
        after=int(after),
        title=title,
        buttons=buttons,
        drawing=Markup(draw(layout, title)),
        hint=HINT,
        keys=keys,
    )


_FIGURE: Final = Markup("""<figure class="diagram" data-before="{before}" data-after="{after}">
<figcaption>{title}</figcaption>
<div class="tools" hidden>{buttons}<button type="button" data-zoom="clear" disabled>Show all messages</button>
<span class="hint">Zoom: Ctrl and wheel, + and −. Pan: drag, scroll, arrow keys. Enter: from event to event.</span>
</div>
<div class="pan">{drawing}</div>
<p class="told" aria-live="polite">{hint}</p>
<div class="legend">{keys}</div>
</figure>""")


def standalone(layout: DiagramLayout, title: str) -> str:
    """Return a whole SVG file, for a document: light and dark by the reader's setting, light in print."""
    style = asset("diagram-theme.css") + asset("diagram.css")
    return draw(layout, title, style=style) + "\n"


def page_of(layout: DiagramLayout, title: str, notes: Sequence[str], *, before: bool, after: bool) -> str:
    """Return a whole HTML file with one diagram, as wide as the window, and its message's story in words."""
    caption = f"{len(layout.marks)} events at {len(layout.members)} members"
    drawn = figure(layout, caption, before=before, after=after)
    told = joined(element("li", line) for line in story(layout))
    words = (element("h2", "In words"), element("ul", told)) if told else ()
    body = joined((element("h1", title), drawn, *map(paragraph, notes), *words), "\n")
    return page(title, body, script=DIAGRAM_SCRIPT, style=DIAGRAM_STYLE + "main, .bar { max-width: none; }")
