// Draws what the server pushes; every text goes in as text, never as markup.
(() => {
  const by = (id) => document.getElementById(id);
  const MARKS = { live: "●", silent: "◌", gone: "✕", never: "–", unpublished: "○" };

  const node = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = keptTogether(text);
    if (className) made.className = className;
    return made;
  };
  const clock = (at) => {
    const time = node("time", new Date(at * 1000).toLocaleTimeString());
    time.dateTime = new Date(at * 1000).toISOString();
    return time;
  };
  const count = (value) => (value === undefined || value === null ? "" : Math.round(value).toLocaleString("en"));
  const bytes = (value) => {
    if (value === undefined || value === null) return "";
    if (value < 10000) return count(value) + " B";
    return value < 1e7 ? count(value / 1000) + " kB" : count(value / 1e6) + " MB";
  };

  function spark(history) {
    const space = "http" + "://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg"), path = document.createElementNS(space, "path");
    svg.setAttribute("class", "spark");
    svg.setAttribute("viewBox", `0 0 ${history.length - 1} 10`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    const top = Math.max(...history, 1);
    svg.setAttribute("aria-label", `between ${count(Math.min(...history))} and ${count(Math.max(...history))} a second`);
    path.setAttribute("d", "M" + history.map((value, at) => `${at} ${9.5 - (9 * value) / top}`).join("L"));
    svg.append(path);
    return svg;
  }

  const COLUMNS = Array.from(document.querySelectorAll("#members thead th"), (head) => head.textContent);

  function row(member) {
    const made = node("tr"), own = member.published || {};
    made.dataset.state = member.state;
    made.dataset.member = member.member;
    const name = node("th", member.member);
    name.scope = "row";
    const state = node("td", member.says, "state " + member.level);
    state.dataset.mark = MARKS[member.state];
    if (member.holds_back_s) state.append(node("span", ` · holds stability back for ${member.holds_back_s} s`, "warn"));
    const lag = member.unheard ? "not heard" : count(member.lag);
    made.append(name, state);
    for (const text of [count(own.view), lag, count(own.held), bytes(own.waiting_bytes), bytes(own.inbox_bytes),
      count(own.sent_per_s), count(own.delivered_per_s)]) made.append(node("td", text, "number"));
    const last = node("td", undefined, "minute");
    if (own.history) last.append(spark(own.history));
    made.append(last);
    Array.from(made.children).slice(2).forEach((cell, at) => { cell.dataset.label = COLUMNS[at + 2]; });
    return made;
  }

  function entry(at, text, className) {
    const made = node("li");
    if (at !== null) made.append(clock(at));
    made.append(node("span", text, className));
    return made;
  }

  const change = (view) => {
    const parts = [`view ${view.view}: ${view.members.length} member${view.members.length === 1 ? "" : "s"}`];
    if (view.joined.length) parts.push("joined " + view.joined.join(", "));
    if (view.left.length) parts.push("without " + view.left.join(", "));
    return parts.join("; ");
  };

  function watch(found) {
    by("watch").hidden = !found;
    if (!found) return;
    by("watch-summary").textContent = found.events === null
      ? `antiphon watch has written nothing to ${found.checkpoint} yet.`
      : `${count(found.events)} events judged, ${count(found.events_per_s)} a second; ${count(found.count)} alarm${found.count === 1 ? "" : "s"}.`;
    by("guarantees").replaceChildren(...Object.entries(found.guarantees).map(([name, verdict]) => {
      const card = node("div", undefined, "panel");
      const bad = verdict.violations > 0 && verdict.decides, idle = verdict.examined === 0;
      const spare = verdict.violations > 0 && !verdict.decides; // not kept, and not promised
      card.append(node("b", name), node("span", bad ? `✕ ${count(verdict.violations)} violation${verdict.violations === 1 ? "" : "s"}` : idle ? "– nothing to examine yet"
        : spare ? "– not kept, not promised" : `✓ holds so far (${count(verdict.examined)})`, bad ? "bad" : idle || spare ? "muted" : "good"));
      return card;
    }));
    by("alarms").replaceChildren(...found.alarms.map((alarm) => entry(null, `${alarm.guarantee}, run ${alarm.run}: ${alarm.why}`, "bad")));
  }

  // the last ten minutes: how everybody stood, the views, and what went wrong
  function timeline(state) {
    const start = Math.min(state.now - 60, ...state.timeline.flatMap((lane) => lane.stretches.map((one) => one.start)));
    const moments = [
      ...state.views.map((view) => ({ at: view.at, kind: "view", short: "v" + view.view })),
      ...state.news.filter((news) => news.level === "bad").map((news) => ({ at: news.at, kind: "fault" })),
    ].sort((one, other) => one.at - other.at);
    const lanes = state.timeline.map((lane) => ({ name: lane.name, bars: lane.stretches.map((one) => ({ from: one.start, to: one.end, state: one.level })) }));
    by("timeline").hidden = !lanes.length;
    if (!lanes.length) return;
    const ago = (at) => { const s = Math.round(state.now - at); return s < 1 ? "now" : s < 120 ? `${s} s ago` : `${Math.round(s / 6) / 10} min ago`; };
    const shift = state.now; // ticks at round distances from now
    drawStrip(document.querySelector("#strip svg"), {
      start: start - shift, end: 0, timed: true, lanes: lanes.map((lane) => ({ ...lane, bars: lane.bars.map((bar) => ({ ...bar, from: bar.from - shift, to: bar.to - shift })) })),
      moments: moments.map((one) => ({ ...one, at: one.at - shift })), label: (at) => ago(at + shift),
    });
  }

  function draw(state) {
    by("group").textContent = state.group || "(no member yet)";
    document.title = (state.headline.level === "bad" ? "✕ " : "") + "Antiphon: " + (state.group || "a live group");
    const say = (id, text) => { if (by(id).textContent !== text) by(id).textContent = text; }; // read aloud on change only
    say("headline", keptTogether(state.headline.text));
    by("headline").dataset.level = state.headline.level;
    say("remedy", keptTogether(state.headline.remedy));
    by("remedy").hidden = !state.headline.remedy;
    timeline(state);
    document.querySelector("#members tbody").replaceChildren(...state.members.map(row));
    by("views").replaceChildren(...state.views.map((view) => entry(view.at, change(view))));
    by("news").replaceChildren(...state.news.map((news) => entry(news.at, news.text, news.level)));
    watch(state.watch);
  }

  let last = null;
  const source = new EventSource("events");
  source.onmessage = (event) => {
    last = new Date();
    by("connection").hidden = true;
    draw(JSON.parse(event.data));
  };
  source.onerror = () => {
    by("connection").hidden = false;
    by("connection").textContent = "The dashboard's server does not answer; what you see is of " + (last ? last.toLocaleTimeString() : "nothing") + ".";
  };
})();
