"""The page about one trace: the verdicts in words, the violations drawn, then what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from antiphon.report.diagram import DIAGRAM_SCRIPT, DIAGRAM_STYLE, witness_diagram
from antiphon.report.measures import measures
from antiphon.report.page import asset, escape, page
from antiphon.report.parts import (
    GUARANTEES,
    Html,
    html,
    notice,
    paragraph,
    section,
    table,
    tiles,
    verdict,
)
from antiphon.report.sources import Facts, deciding
from antiphon.report.windows import Window
from antiphon.wording import count, duration, listed

_WORST_FIRST: Final = ("violated", "unknown", "holds")
OPEN_MAX: Final = 2  # witnesses of one guarantee that are shown at once; the others unfold


def trace_page(facts: Facts) -> str:
    """The whole document."""
    body = "\n".join(
        html(part)
        for part in (
            _head(facts),
            _verdicts(facts),
            _violations(facts),
            *measures(facts),
            _origin(facts),
        )
        if part
    )
    drawn = bool(facts.drawn)
    return page(
        f"{headline(facts)} Report on {facts.trace}",
        body,
        style=asset("report.css") + (DIAGRAM_STYLE if drawn else ""),
        script=(DIAGRAM_SCRIPT if drawn else "") + asset("report.js"),
    )


# --- the top ----------------------------------------------------------------------------------------------------------


def headline(facts: Facts) -> str:
    """What happened, in one sentence."""
    if not facts.events:
        return "The trace is empty."
    if facts.checked is None:
        return "Not checked."
    found, names = facts.checked["guarantees"], deciding(facts.checked)
    kind = _kind_of(facts, names)
    broken = [GUARANTEES[name].name for name in names if found[name]["verdict"] == "violated"]
    open_ = [GUARANTEES[name].name for name in names if found[name]["verdict"] == "unknown"]
    if broken:
        return f"{listed(broken)} {'is' if len(broken) == 1 else 'are'} broken."
    if open_ or not names:
        return f"{listed(open_)} cannot be decided." if open_ else "Nothing could be examined."
    if len(names) == 1:
        return f"{GUARANTEES[names[0]].name} holds."
    return f"All {len(names)} {kind} guarantees hold."


def _kind_of(facts: Facts, names: Sequence[str]) -> str:
    assert facts.checked is not None
    found = facts.checked["guarantees"]
    if len(found) < len(GUARANTEES):
        return "requested"
    return "promised" if any(found[name]["promised"] for name in names) else "examined"


def _mood(facts: Facts) -> str:
    if facts.checked is None or not facts.events:
        return "warn"
    words = {facts.checked["guarantees"][name]["verdict"] for name in deciding(facts.checked)}
    return "bad" if "violated" in words else "warn" if "unknown" in words or not words else "good"


def _head(facts: Facts) -> Html:
    mood = _mood(facts)
    sign = {"good": "✓", "bad": "✗", "warn": "?"}[mood]
    return Html(
        f'<p class="muted kicker">Report on <span class="mono">{escape(facts.trace)}</span></p>'
        f'<h1 class="headline {mood}"><span aria-hidden="true">{sign}</span> {escape(headline(facts))}</h1>'
        f"{paragraph(_story(facts), kind='story')}{_notices(facts)}{_tiles(facts)}"
    )


def _story(facts: Facts) -> str:
    """Who did what, for how long, on what kind of network."""
    if not facts.events:
        return "It has no events, so there is nothing to check and nothing to measure."
    who = f"In {count(facts.runs, 'run')} of up to {count(facts.members, 'member')}, " if facts.runs > 1 else ""
    members = "they" if who else count(facts.members, "member")
    rows = (facts.measured or {}).get("rows")
    if rows is None:
        return f"{who}{members} left {count(facts.events, 'event')}."
    said = f"{who}{members} sent {count(rows['send'], 'message')} and delivered {rows['deliver']:,} times"
    span = _span_ns(facts)
    said += f" in {duration(span)}" if span and facts.runs == 1 else ""
    return f"{said}{_setting(facts.about)}."


def _span_ns(facts: Facts) -> int:
    run = facts.run or {}
    return 0 if run.get("first_ns") is None else run["last_ns"] - run["first_ns"]


def _setting(about: Mapping[str, Any]) -> str:
    """The protocols, and the network if it was a simulated one."""
    said = []
    if isinstance(about.get("ordering"), str):
        stability = about.get("stability")
        said.append(f"ordering {about['ordering']}")
        if isinstance(stability, str) and stability != about["ordering"]:
            said.append(f"stability by {stability}")
    parameters = about.get("parameters")
    network = parameters.get("network") if isinstance(parameters, dict) else None
    if isinstance(network, dict):
        for key, words in (("loss", "lost"), ("duplicate", "doubled"), ("reorder", "held back")):
            if isinstance(network.get(key), (int, float)) and network[key]:
                said.append(f"{100 * network[key]:g}% of the datagrams {words}")
    return f"; {', '.join(said)}" if said else ""


def _notices(facts: Facts) -> str:
    said = []
    if facts.events and facts.checked is None:
        text = "It was only measured: whether its guarantees held is not known. antiphon check says."
        said.append(notice("warn", "Not checked.", text))
    if facts.quarantined:
        which = ""
        if facts.checked is not None:
            lost = [name for name, one in facts.checked["guarantees"].items() if one["verdict"] == "unknown"]
            names = listed([GUARANTEES[name].name for name in lost]) if lost else ""
            which = f" Unknown, because of them or for lack of evidence: {names}." if names else ""
        text = f"They were put aside and are part of nothing below.{which}"
        said.append(notice("warn", f"{count(facts.quarantined, 'row')} could not be read.", text))
    if facts.lost is not None:
        text = f"{facts.lost} is not there any more, so nothing below could be measured or drawn from it."
        said.append(notice("warn", "The trace is gone.", text))
    if facts.measured is not None and facts.measured["clock"] != "global" and facts.events:
        text = "Times between different members are off by as much as their clocks are, and some measures are unknown."
        said.append(notice("warn", "The members have no common clock.", text))
    if facts.about.get("finished") is False:
        text = "The simulation reached its limit of time before everything was delivered and stable."
        said.append(notice("warn", "The run did not finish.", text))
    if facts.runs > 1 and facts.run is not None:
        text = f"What is drawn over time is the run {facts.run['run']}; --run NAME draws another."
        said.append(notice("info", f"{facts.runs:,} runs.", text))
    return "".join(said)


def _tiles(facts: Facts) -> Html | str:
    if not facts.events or facts.measured is None:
        return ""
    measured, latency = facts.measured, facts.measured["latency"]
    shown: list[tuple[str, object]] = [("members", f"{facts.members:,}"), ("events", f"{facts.events:,}")]
    for name, key in (("median delivery", "delivery"), ("median until stable", "stable")):
        if latency.get(key):
            shown.append((name, duration(latency[key]["p50_ns"])))
    if measured["buffer"] is not None:
        shown.append(("most messages held", f"{measured['buffer']['peak']:,}"))
    if measured["retransmissions"] is not None:
        shown.append(("sent again", f"{measured['retransmissions']:,}"))
    if measured["overhead"] is not None:
        shown.append(("extra bytes per byte sent", f"{measured['overhead']:.2f}"))
    return tiles(shown)


# --- the verdicts -----------------------------------------------------------------------------------------------------


def _verdicts(facts: Facts) -> Html | None:
    if facts.checked is None:
        return None
    found, names = facts.checked["guarantees"], deciding(facts.checked)
    kind = _kind_of(facts, names)
    worst_first = sorted(names, key=lambda name: _WORST_FIRST.index(found[name]["verdict"]))
    ordered = [*worst_first, *(name for name in found if name not in names)]
    rows = []
    for name in ordered:
        one, words = found[name], GUARANTEES[name]
        wanted = kind if name in names else "not promised" if kind == "promised" else "not decided"
        rows.append(
            f'<tr data-guarantee="{name}" data-verdict="{one["verdict"]}" data-violations="{one["violations"]}">'
            f"<td>{verdict(one['verdict'], decides=name in names)}</td>"
            f'<th scope="row">{escape(words.name)} <span class="muted mono">{name}</span>'
            f'<span class="meaning">{escape(words.meaning)}</span></th>'
            f"<td>{wanted}</td>"
            f'<td class="number">{one["examined"]:,}</td><td class="number">{one["violations"]:,}</td></tr>\n'
        )
    heads = "".join(
        f'<th scope="col"{" class=number" if right else ""}>{head}</th>'
        for head, right in (("Verdict", 0), ("Guarantee", 0), ("Asked for", 0), ("Examined", 1), ("Violations", 1))
    )
    whole = f'<table class="verdicts"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    spare = [name for name in found if name not in names and found[name]["violations"]]
    note = ""
    if spare and kind == "promised":
        said = listed([GUARANTEES[name].name for name in spare])
        note = f"{said} {'was' if len(spare) == 1 else 'were'} not kept, and not promised: that is no fault."
    return section(
        "verdicts",
        "What was promised, what was kept" if kind == "promised" else "Which guarantees were kept",
        Html(f'<div class="scroll" tabindex="0">{whole}</div>'),
        paragraph(note, kind="muted") if note else "",
    )  # fmt: skip


# --- the violations ---------------------------------------------------------------------------------------------------


def _violations(facts: Facts) -> Html | None:
    if facts.checked is None:
        return None
    found = facts.checked["guarantees"]
    parts: list[object] = []
    for name in deciding(facts.checked):
        one = found[name]
        if not one["violations"]:
            continue
        drawn = [(witness, window) for guarantee, witness, window in facts.drawn if guarantee == name]
        words = GUARANTEES[name]
        shown = f", {len(one['witnesses']):,} of them here" if len(one["witnesses"]) < one["violations"] else ""
        parts.append(
            Html(
                f"<h3>{escape(words.name)}: {count(one['violations'], 'violation')}{shown}</h3>"
                f"{paragraph(f'{words.name} means that {words.meaning}.', kind='muted')}"
            )
        )
        for place, witness in enumerate(one["witnesses"]):
            window = next((window for other, window in drawn if other == witness), None)
            parts.append(_witness(facts, name, witness, window, folded=place >= OPEN_MAX))
    if not parts:
        return None
    return section("violations", "Where it went wrong", *parts)


def _witness(facts: Facts, name: str, witness: Mapping[str, Any], window: Window | None, *, folded: bool) -> Html:
    run = f" (run {witness['run']})" if facts.runs > 1 else ""
    why = escape(witness["why"][0].upper() + witness["why"][1:] + run + ".")
    rows = [
        (
            f"{event.get('member', witness['member'])}",
            f"{event['step']:,}",
            event["event"],
            f"message {event['seq']} of {event['sender']}" if event["seq"] is not None else "",
        )
        for event in witness["events"]
    ]
    events = table(("Member", "Step", "Does", "What"), rows, numbers=(1,))
    diagram = _diagram(facts, window) if window is not None and window.events else ""
    inner = (
        f"{diagram}<details{'' if diagram else ' open'}><summary>The events that show it</summary>{events}</details>"
    )
    if folded:
        inner = f'<details class="folded" open><summary>{why}</summary>{inner}</details>'
    else:
        inner = f"<h4>{why}</h4>{inner}"
    return Html(f'<article class="witness" data-guarantee="{name}">{inner}</article>')


def _diagram(facts: Facts, window: Window) -> str:
    title = "What happened around it; the rings mark the events that show it"
    if window.drawn < window.members:
        title += f" ({window.drawn} of {window.members:,} members are drawn)"
    agree = (facts.measured or {}).get("clock") == "global"
    return witness_diagram(window.events, window.marked, title, clocks_agree=agree)


def _origin(facts: Facts) -> Html:
    from antiphon import __version__

    versions = facts.about.get("versions")
    recorded = versions.get("antiphon") if isinstance(versions, dict) else None
    by = f"recorded by antiphon {recorded}, " if recorded else ""
    said = f"{by}reported by antiphon {__version__}. This file needs nothing but itself."
    return paragraph(said[0].upper() + said[1:], kind="muted origin")
