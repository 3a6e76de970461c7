"""The parts that pages are made of: tables, verdicts, tiles, notices, and figures with their numbers behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from antiphon.report.page import escape


class Html(str):
    """Text that is markup already; everything else is escaped."""

    __slots__ = ()


def html(content: object) -> str:
    """Markup as it is, anything else escaped; nothing where there is none."""
    return content if isinstance(content, Html) else "" if content is None else escape(str(content))


class Words(NamedTuple):
    """A guarantee as one would say it: its name, and what it means to have it."""

    name: str
    meaning: str


GUARANTEES: Final[dict[str, Words]] = {
    "integrity": Words("Integrity", "nothing is delivered twice, or out of nowhere"),
    "validity": Words("Validity", "whoever sends a message delivers it too"),
    "agreement": Words("Agreement", "what one member delivers, all who go on with it deliver"),
    "fifo": Words("Sender order", "each sender's messages are delivered in the order it sent them"),
    "causal": Words("Causal order", "no answer is delivered before what it answers"),
    "total": Words("Total order", "all members deliver in one and the same order"),
    "stability": Words("Stability", "what is called stable is really held by every member"),
    "view-synchrony": Words("View synchrony", "members that move on together have delivered the same messages"),
}

_SYMBOLS: Final = {"holds": "✓", "violated": "✗", "unknown": "?"}


def verdict(word: str, *, decides: bool = True) -> Html:
    """A verdict as sign and word; that of a guarantee nobody asked for is held back in colour."""
    kind = {"holds": "good", "violated": "bad", "unknown": "warn"}[word] if decides else "muted"
    return Html(f'<span class="verdict {kind}"><span aria-hidden="true">{_SYMBOLS[word]}</span> {word}</span>')


def notice(kind: str, title: str, text: str) -> Html:
    """Something that must not be overlooked; `kind` is good, bad or warn."""
    return Html(f'<div class="notice {kind}" role="note"><strong>{html(title)}</strong> {html(text)}</div>')


def tiles(facts: Iterable[tuple[str, object]]) -> Html:
    """A row of figures, each with what it is."""
    cells = "".join(f"<div><dt>{html(name)}</dt><dd>{html(value)}</dd></div>" for name, value in facts)
    return Html(f'<dl class="tiles">{cells}</dl>')


def table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "", numbers: Iterable[int] = ()
) -> Html:
    """A table that scrolls by itself; the first column heads the rows, `numbers` are flush right."""
    right = set(numbers)

    def cell(column: int, content: object) -> str:
        kind = ' class="number"' if column in right else ""
        name, scope = ("th", ' scope="row"') if column == 0 else ("td", "")
        return f"<{name}{scope}{kind}>{html(content)}</{name}>"

    head = "".join(
        f'<th scope="col"{" class=number" if column in right else ""}>{html(name)}</th>'
        for column, name in enumerate(heads)
    )
    body = "".join(f"<tr>{''.join(cell(column, content) for column, content in enumerate(row))}</tr>\n" for row in rows)
    title = f"<caption>{html(caption)}</caption>" if caption else ""
    whole = f"<table>{title}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    return Html(f'<div class="scroll" tabindex="0">{whole}</div>')


def figure(drawing: str, caption: str, behind: Html | None = None, summary: str = "The numbers behind it") -> Html:
    """A chart, what to see in it, and its numbers for those who want or need them."""
    numbers = f"<details><summary>{html(summary)}</summary>{behind}</details>" if behind else ""
    return Html(
        f'<figure class="chart"><div class="scroll" tabindex="0">{drawing}</div>'
        f"<figcaption>{html(caption)}</figcaption>{numbers}</figure>"
    )


def section(name: str, title: str, *content: object) -> Html:
    """A part of the page under a heading that can be linked to."""
    inner = "\n".join(html(one) for one in content if one)
    head = f'<h2 id="{name}-title">{html(title)}</h2>'
    return Html(f'<section id="{name}" aria-labelledby="{name}-title">{head}\n{inner}</section>')


def paragraph(*content: object, kind: str = "") -> Html:
    """Some sentences."""
    return Html(f"<p{f' class={kind!r}' if kind else ''}>{' '.join(html(one) for one in content if one)}</p>")


def bar(share: float) -> Html:
    """A bar inside of a table's cell; the number beside it says the same."""
    return Html(f'<span class="share" aria-hidden="true"><i style="width:{max(0.0, min(1.0, share)):.2%}"></i></span>')
