"""The page about one trace: the verdicts in words, the violations drawn, then what was measured."""

from __future__ import annotations

import shlex
from typing import Final

from markupsafe import Markup

from antiphon.diagram.marks import tell_payload
from antiphon.diagram.page import DIAGRAM_SCRIPT, DIAGRAM_STYLE, witness_diagram
from antiphon.pipeline.results import CheckResult, GuaranteeResult
from antiphon.report.facts import Facts
from antiphon.report.guarantee_words import GUARANTEES, verdict
from antiphon.report.headline import headline, kind_of, verdict_sentence
from antiphon.report.history_section import history, told
from antiphon.report.incidents import headline_of, incidents
from antiphon.report.measured_sections import measured_sections
from antiphon.report.member_names import begin, group_size, member_name, with_names
from antiphon.report.run_settings import RunSettings
from antiphon.report.timeline import began_at, ended_at
from antiphon.report.witness_rows import NamedWitness, WitnessRows
from antiphon.web import elements
from antiphon.web.elements import element, joined, notice, paragraph, section, table, tiles
from antiphon.web.page import asset, page
from antiphon.wording import count, duration, listed, ratio

_WORST_FIRST: Final = ("violated", "unknown", "holds")
REASONS_MAX: Final = 5  # why rows were put aside: so many reasons are said
OPEN_MAX: Final = 2  # witnesses of one guarantee that are shown at once; the others unfold


def trace_page(facts: Facts) -> str:
    """Return the whole document."""
    body = joined(
        (
            _head(facts),
            _verdicts(facts),
            _violations(facts),
            history(facts),
            *measured_sections(facts),
            _explore(facts),
            elements.origin(facts.settings.versions.antiphon),
        ),
        "\n",
    )
    drawn = bool(facts.drawn)
    return page(
        f"{headline(facts)} Report on {facts.trace}",
        body,
        style=asset("report.css") + (DIAGRAM_STYLE if drawn else ""),
        script=(DIAGRAM_SCRIPT if drawn else "") + asset("report.js"),
    )


# --- the top ----------------------------------------------------------------------------------------------------------


def _mood(facts: Facts) -> str:
    if facts.checked is None or not facts.events:
        return "warn"
    words = {facts.checked.guarantees[name].verdict for name in facts.checked.deciding()}
    return "bad" if "violated" in words else "warn" if "unknown" in words or not words else "good"


def _head(facts: Facts) -> Markup:
    happened = incidents(facts)
    top = elements.headline("Report on", facts.trace, _mood(facts), verdict_sentence(facts), headline_of(happened))
    return joined((top, told(happened), paragraph(_story(facts), kind="story"), *_notices(facts), _tiles(facts)))


def _explore(facts: Facts) -> Markup | None:
    """Say how any moment of the trace can be looked at, as long as it is there."""
    if not facts.events or facts.lost is not None:
        return None
    command = element("code", f"antiphon explore {shlex.quote(facts.trace)}")
    said = ("To look at any moment of it, event by event:", command)
    return section("explore", "What is not on this page", paragraph(*said))


def _story(facts: Facts) -> str:
    """Who did what, for how long, on what kind of network."""
    if not facts.events:
        return "It has no events, so there is nothing to check and nothing to measure."
    who = f"In {count(facts.runs, 'run')} of up to {count(facts.members, 'member')}, " if facts.runs > 1 else ""
    members = "they" if who else group_size(facts).replace(", ", " in ")
    if facts.measured is None:
        return f"{who}{members} left {count(facts.events, 'event')}."
    rows = facts.measured.rows
    said = f"{who}{members} sent {count(rows.get('send', 0), 'message')} and delivered {rows.get('deliver', 0):,} times"
    span = _span_ns(facts)
    said += f" in {duration(span)}" if span and facts.runs == 1 else ""
    return f"{said}{_setting(facts.settings)}."


def _span_ns(facts: Facts) -> int:
    run = facts.run
    if any(row.clock_off_ns for row in facts.processes):  # then the first and the last time are of different clocks
        began, ended = ([at for row in facts.processes if (at := when(facts, row))] for when in (began_at, ended_at))
        return max(ended, default=0) - min(began, default=0)
    return 0 if run is None or run.first_ns is None or run.last_ns is None else run.last_ns - run.first_ns


def _setting(settings: RunSettings) -> str:
    """Say which protocols ran, and what the network did if it was a simulated one."""
    said = []
    if settings.ordering is not None:
        said.append(f"ordering {settings.ordering}")
        if settings.stability not in (None, settings.ordering):
            said.append(f"stability by {settings.stability}")
    if settings.parameters is not None:
        network = settings.parameters.network
        shares = ((network.loss, "lost"), (network.duplicate, "doubled"), (network.reorder, "held back"))
        said += [f"{100 * share:g}% of the datagrams {words}" for share, words in shares if share]
    return f"; {', '.join(said)}" if said else ""


def _notices(facts: Facts) -> list[Markup]:
    said = []
    if facts.events and facts.checked is None:
        text = "It was only measured: whether its guarantees held is not known. antiphon check says."
        said.append(notice("warn", "Not checked.", text))
    if facts.quarantined:
        which = ""
        if facts.checked is not None:
            lost = [name for name, one in facts.checked.guarantees.items() if one.verdict == "unknown"]
            names = listed([GUARANTEES[name].name for name in lost]) if lost else ""
            which = f" Unknown, because of them or for lack of evidence: {names}." if names else ""
        examples = {
            reason: f", as {row}" for reason, row in facts.quarantine_examples.items()
        }  # older results have none
        reasons = "".join(
            f" {put_aside:,}: {reason}{examples.get(reason, '')}."
            for reason, put_aside in [*facts.quarantine_reasons.items()][:REASONS_MAX]
        )
        text = f"They were put aside and are part of nothing below.{which}{reasons}"
        said.append(notice("warn", f"{count(facts.quarantined, 'row')} could not be read.", text))
    if words := facts.times.words():
        said.append(notice("info", "The unit of times is a guess.", f"{words}."))
    if facts.stale:
        said.append(notice("warn", "The trace has changed since the table was made.", f"{facts.stale}."))
    if facts.lost is not None:
        text = f"{facts.lost} is not there any more, so nothing below could be measured or drawn from it."
        said.append(notice("warn", "The trace is gone.", text))
    if facts.measured is not None and facts.measured.clock != "global" and facts.events:
        text = "Times between different members are off by as much as their clocks are, and some measures are unknown."
        said.append(notice("warn", "The members have no common clock.", text))
    if facts.settings.finished is False:
        text = "The simulation reached its limit of time before everything was delivered and stable."
        said.append(notice("warn", "The run did not finish.", text))
    if facts.runs > 1 and facts.run is not None:
        text = f"What is drawn over time is the run {facts.run.run}; --run NAME draws another."
        said.append(notice("info", f"{facts.runs:,} runs.", text))
    return said


def _tiles(facts: Facts) -> Markup | None:
    measured = facts.measured
    if not facts.events or measured is None:
        return None
    size, _, lives = group_size(facts).partition(", ")
    shown: list[tuple[str, object]] = [("members", size.split()[0])]
    shown += [("lives", lives.split()[0])] if lives else []
    shown.append(("events", f"{facts.events:,}"))
    for name, key in (("median delivery", "delivery"), ("median until stable", "stable")):
        found = measured.latency.get(key)
        if found is not None:
            shown.append((name, duration(found.p50_ns)))
    if measured.buffer is not None:
        shown.append(("most messages held", f"{measured.buffer.peak:,}"))
    if measured.retransmissions is not None:
        shown.append(("sent again", f"{measured.retransmissions:,}"))
    if measured.overhead is not None:
        shown.append(("extra bytes per byte sent", ratio(measured.overhead)))
    return tiles(shown)


# --- the verdicts -----------------------------------------------------------------------------------------------------


def _verdicts(facts: Facts) -> Markup | None:
    if facts.checked is None:
        return None
    found, names = facts.checked.guarantees, facts.checked.deciding()
    kind = kind_of(facts.checked, names)
    worst_first = sorted(names, key=lambda name: _WORST_FIRST.index(found[name].verdict))
    ordered = [*worst_first, *(name for name in found if name not in names)]
    wanted = "not promised" if kind == "promised" else "not decided"
    rows = [
        (
            verdict(found[name].verdict, decides=name in names),
            _guarantee(name),
            kind if name in names else wanted,
            _coverage(name, found[name]),
            *([_uniform(facts.uniform, name)] if facts.uniform is not None else []),
        )
        for name in ordered
    ]
    whole = table(
        ("Verdict", "Guarantee", "Asked for", "What was examined", *(["Uniform"] if facts.uniform else [])),
        rows,
        kind="verdicts",
        row_head=1,
        data=[
            {"guarantee": name, "verdict": found[name].verdict, "violations": found[name].violations}
            for name in ordered
        ],
    )
    spare = [name for name in found if name not in names and found[name].violations]
    note = ""
    if spare and kind == "promised":
        said = listed([GUARANTEES[name].name for name in spare])
        note = f"{said} {'was' if len(spare) == 1 else 'were'} not kept, and not promised: that is no fault."
    uniform = ""
    if facts.uniform is not None:
        uniform = "Uniform: what members delivered that crashed or left counts as well. Safe delivery promises it."
    title = "What was promised, what was kept" if kind == "promised" else "Which guarantees were kept"
    notes = [paragraph(text, kind="muted") for text in (note, uniform) if text]
    return section("verdicts", title, whole, *notes)


def _coverage(name: str, found: GuaranteeResult) -> str:
    """Say how much a verdict covers, in its units."""
    words = GUARANTEES[name]
    if not found.examined and not found.violations:
        return "nothing"
    broken = f": {count(found.violations, *words.broken)}" if found.violations else ""
    return f"{count(found.examined, *words.examined)}{broken}"


def _uniform(uniform: CheckResult, name: str) -> Markup | str:
    found = uniform.guarantees.get(name)
    if found is None:
        return "the same"
    return joined((verdict(found.verdict, decides=False), f" {_coverage(name, found)}"))


def _guarantee(name: str) -> Markup:
    return Markup('{} <span class="muted mono">{}</span><span class="meaning">{}</span>').format(
        GUARANTEES[name].name, name, GUARANTEES[name].meaning
    )


# --- the violations ---------------------------------------------------------------------------------------------------


def _violations(facts: Facts) -> Markup | None:
    if facts.checked is None:
        return None
    parts: list[Markup] = []
    for name in facts.checked.deciding():
        found, words = facts.checked.guarantees[name], GUARANTEES[name]
        if not found.violations:
            continue
        shown = f", {len(found.witnesses):,} of them here" if len(found.witnesses) < found.violations else ""
        parts.append(element("h3", f"{words.name}: {count(found.violations, 'violation')}{shown}"))
        parts.append(paragraph(f"{words.name} means that {words.meaning}.", kind="muted"))
        for index, witness in enumerate(found.witnesses):
            named = NamedWitness(name, witness)
            around = next((one.rows for one in facts.drawn if one.named == named), None)
            parts.append(_witness(facts, named, around, folded=index >= OPEN_MAX))
    return section("violations", "Where it went wrong", *parts) if parts else None


def _witness(facts: Facts, named: NamedWitness, around: WitnessRows | None, *, folded: bool) -> Markup:
    witness = named.witness
    run = f" (run {witness.run})" if facts.runs > 1 else ""
    why = f"{begin(facts, with_names(facts, witness.why))}{run}."
    said = _what_was_said(around)
    rows = [
        (
            _called(facts, witness.member if event.member is None else event.member),
            f"{event.step:,}",
            event.event,
            f"message {event.seq} of {_called(facts, event.sender)}{said.get((event.sender, event.seq), '')}"
            if event.seq is not None
            else "",
        )
        for event in witness.events
    ]
    events = table(("Member", "Step", "Does", "What"), rows, numbers=(1,))
    diagram = _diagram(facts, around) if around is not None and around.events else ""
    inner = Markup("{}<details{}><summary>The events that show it</summary>{}</details>").format(
        diagram, "" if diagram else Markup(" open"), events
    )
    if folded:
        inner = Markup('<details class="folded" open><summary>{}</summary>{}</details>').format(why, inner)
    else:
        inner = element("h4", why) + inner
    return element("article", inner, {"class": "witness", "data-guarantee": named.guarantee})


def _what_was_said(around: WitnessRows | None) -> dict[tuple[int | None, int | None], str]:
    """Return what the messages of a witness say, where the trace has it."""
    told = {(event.sender, event.seq): tell_payload(event) for event in (around.events if around is not None else ())}
    return {message: f": {text}" for message, text in told.items() if text}


def _called(facts: Facts, member: int | None) -> str:
    return "" if member is None else member_name(facts, member).removeprefix("member ")


def _diagram(facts: Facts, around: WitnessRows) -> Markup:
    title = "What happened around it; the rings mark the events that show it"
    if around.drawn < around.members:
        title += f" ({around.drawn} of {around.members:,} members are drawn)"
    names = {event.member: member_name(facts, event.member) for event in around.events}
    agree = facts.measured is not None and facts.measured.clock == "global"
    return witness_diagram(around.events, around.marked, title, clocks_agree=agree, names=names)
