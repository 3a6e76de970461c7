"""The elements that pages are made of: tables, verdicts, tiles, notices, and figures with their numbers behind them.

Markup is `markupsafe.Markup`, and whatever is formatted into it is escaped unless it is markup already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from markupsafe import Markup, escape

from antiphon.wording import kept_together

SIGNS: Final[dict[str, str]] = {"good": "✓", "bad": "✗", "warn": "?"}


def shown(content: object) -> Markup:
    """Return what a reader sees of some content: text is escaped, with its quantities kept together on a line."""
    return content if isinstance(content, Markup) else escape(kept_together(str(content)))


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Put parts one after the other; text is escaped, and what is None or empty is left out."""
    return Markup(between).join(shown(part) for part in parts if part)


def headline(kicker: str, about: str, mood: str, text: str, happened: Iterable[str] = ()) -> Markup:
    """Return the top of a page: what it is about, what happened, and the verdict; `mood` is good, bad or warn.

    Each sentence on what happened stands by itself, what followed from it in lighter type.
    """
    first = joined(Markup('<span class="happened">{}</span> ').format(_told(sentence)) for sentence in happened)
    return Markup(
        '<p class="muted kicker">{} <span class="mono">{}</span></p>'
        '<h1 class="headline">{}<span class="{}"><span aria-hidden="true">{}</span> {}</span></h1>'
    ).format(kicker, about, first, mood, SIGNS[mood], shown(text))


def _told(sentence: str) -> Markup:
    what, _, followed = sentence.partition("; ")
    return (
        Markup('{}; <span class="followed">{}</span>').format(shown(what), shown(followed)) if followed else shown(what)
    )


def notice(kind: str, title: str, text: str) -> Markup:
    """Return something that must not be overlooked; `kind` is good, bad, warn or info."""
    return Markup('<div class="notice {}" role="note"><strong>{}</strong> {}</div>').format(
        kind, shown(title), shown(text)
    )


def tiles(facts: Iterable[tuple[str, object]]) -> Markup:
    """Return a row of figures, each with what it is."""
    cells = joined(Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(name, shown(value)) for name, value in facts)
    return Markup('<dl class="tiles">{}</dl>').format(cells)


def table(
    heads: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    caption: str = "",
    numbers: Iterable[int] = (),
    kind: str = "",
    row_head: int | None = 0,
    data: Sequence[Mapping[str, object]] = (),
    stacks: bool = False,
) -> Markup:
    """Return a table that scrolls by itself on a narrow screen or, if it `stacks`, shows its cells one below the other.

    The column `row_head` heads the rows, the columns `numbers` are flush right; `kind` is a class of the table, `data`
    has for each row the data-* attributes that scripts and tests find it by.
    """
    right = set(numbers)

    def cell(column: int, content: object) -> Markup:
        attributes = {"class": "number" if column in right else ""}
        attributes |= {"data-label": str(heads[column])} if stacks else {}
        name = "th" if column == row_head else "td"
        attributes |= {"scope": "row"} if column == row_head else {}
        return element(name, "" if content is None else content, attributes)

    head = joined(
        element("th", name, {"scope": "col", "class": "number" if column in right else ""})
        for column, name in enumerate(heads)
    )
    body = joined(
        element(
            "tr",
            joined(cell(column, content) for column, content in enumerate(row)),
            {f"data-{name}": str(value) for name, value in (data[place] if data else {}).items()},
        )
        + "\n"
        for place, row in enumerate(rows)
    )
    title = element("caption", caption) if caption else ""
    inner = Markup("{}<thead><tr>{}</tr></thead>\n<tbody>{}</tbody>").format(title, head, body)
    scroll = {"class": "scroll stacks" if stacks else "scroll", "tabindex": "0"}
    return element("div", element("table", inner, {"class": kind}), scroll)


def element(name: str, content: object, attributes: Mapping[str, str] | None = None) -> Markup:
    """Return one element; an attribute that is empty is left out."""
    given = joined(Markup(' {}="{}"').format(key, value) for key, value in (attributes or {}).items() if value)
    return Markup("<{0}{1}>{2}</{0}>").format(name, given, content if name == "code" else shown(content))


def figure(drawing: str, caption: str, behind: Markup | None = None) -> Markup:
    """Return a chart (SVG), what to see in it, and its numbers for those who want or need them."""
    numbers = Markup("<details><summary>The numbers behind it</summary>{}</details>").format(behind) if behind else ""
    return Markup(
        '<figure class="chart"><div class="scroll" tabindex="0">{}</div><figcaption>{}</figcaption>{}</figure>'
    ).format(Markup(drawing), shown(caption), numbers)


def section(name: str, title: str, *content: object) -> Markup:
    """Return a part of the page under a heading that can be linked to."""
    return Markup('<section id="{0}" aria-labelledby="{0}-title"><h2 id="{0}-title">{1}</h2>\n{2}</section>').format(
        name, title, joined(content, "\n")
    )


def paragraph(*content: object, kind: str = "") -> Markup:
    """Return some sentences."""
    return element("p", joined(content, " "), {"class": kind})


def bar(share: float) -> Markup:
    """Return a bar inside of a table's cell; the number beside it says the same."""
    width = f"{max(0.0, min(1.0, share)):.2%}"
    return Markup('<span class="share" aria-hidden="true"><i style="width:{}"></i></span>').format(width)


def origin(recorded_by: str | None = None) -> Markup:
    """Return the foot of a page: which versions made the trace and the page."""
    from antiphon import __version__

    by = f"recorded by antiphon {recorded_by}, " if recorded_by else ""
    said = f"{by}reported by antiphon {__version__}. This file needs nothing but itself."
    return paragraph(said[0].upper() + said[1:], kind="muted origin")
