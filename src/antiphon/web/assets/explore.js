// Asks the local server for windows of a trace and draws them; every text goes in as text, never as markup, but for
// the diagrams, which the server has drawn.
(() => {
  const by = (id) => document.getElementById(id);
  const strip = by("strip").querySelector("svg"), lanes = by("lanes").querySelector("svg");
  let run = null, shown = null, latest = 0, focus = null, scale = null, last = null;

  const said = new URLSearchParams(location.hash.slice(1));

  async function ask(path, questions) {
    const wanted = Object.fromEntries(Object.entries(questions).filter(([, value]) => value !== null && value !== ""));
    let answer;
    try { answer = await fetch(path + "?" + new URLSearchParams(wanted)); } catch { throw new Error("The server of this page does not answer; start antiphon explore again."); }
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    return found;
  }

  const complain = (error) => { by("trouble").hidden = !error; by("trouble").textContent = error ? error.message : ""; };

  const label = (value) => tellTime(value, run.end - run.start, run.timed);

  function remember() {
    const kept = { run: run.run, from: Math.round(shown[0]), to: Math.round(shown[1]), focus: focus || "", members: by("members").value };
    history.replaceState(null, "", "#" + new URLSearchParams(Object.entries(kept).filter(([, value]) => value !== "")));
  }

  function drawWhole() {
    scale = drawStrip(strip, { ...run, window: shown });
    const slider = by("strip"), middle = (shown[0] + shown[1]) / 2;
    slider.setAttribute("aria-valuenow", String(Math.round((100 * (middle - run.start)) / (run.end - run.start))));
    slider.setAttribute("aria-valuetext", `${label(shown[0])} to ${label(shown[1])}`);
  }

  function drawLanes() {
    if (!last) return;
    const own = last.lanes.filter((lane) => !lane.summed).flatMap((lane) => lane.counts);
    drawStrip(lanes, { start: last.start, end: last.end, timed: run.timed, moments: run.moments, lanes: last.lanes, most: Math.max(...own, 1e-9) });
  }

  function drawMoments() {
    const near = new Set(run.moments.filter((one) => (one.until ?? one.at) >= shown[0] && one.at <= shown[1]));
    by("moments").replaceChildren(...run.moments.slice(0, 500).map((one) => {
      const item = document.createElement("li"), time = document.createElement("time"), go = document.createElement("button");
      time.textContent = label(one.at);
      go.type = "button";
      go.textContent = keptTogether(one.text);
      if (one.kind === "fault" || one.kind === "violation") go.className = "bad";
      go.addEventListener("click", () => jump(one));
      const known = document.createElement("span");
      known.className = "muted";
      known.textContent = " · " + one.known;
      item.dataset.here = near.has(one) ? "1" : "0";
      item.append(time, go, known);
      return item;
    }));
    if (!run.moments.length) by("moments").replaceChildren(Object.assign(document.createElement("li"), { textContent: "Nothing happened to the group, as far as the trace says." }));
  }

  async function show(start, end, message) {
    const least = run.timed ? 1 : 8, width = Math.max(end - start, least);
    start = Math.max(run.start, Math.min(start, run.end - width));
    shown = [start, Math.min(run.end, start + width)];
    focus = message || null;
    drawWhole();
    remember();
    const mine = ++latest;
    by("diagram").classList.add("busy");
    try {
      const found = await ask("window", { run: run.run, from: Math.floor(shown[0]), to: Math.ceil(shown[1]), members: by("members").value.trim(), focus });
      if (mine !== latest) return;
      complain(null);
      last = found;
      by("words").textContent = keptTogether((focus ? `Message ${focus}. ` : "") + found.words);
      by("diagram").innerHTML = found.drawn || "";
      for (const figure of by("diagram").querySelectorAll("figure.diagram")) startDiagram(figure);
      drawLanes();
      drawMoments();
    } catch (error) {
      if (mine === latest) complain(error);
    }
    if (mine === latest) { by("diagram").classList.remove("busy"); document.body.dataset.shown = String(mine); }
  }

  // a window around something: as it is if it takes time, else a hundredth of what is shown, and never all of the run
  function jump(one) {
    const length = (one.until ?? one.at) - one.at;
    const width = length > 0 ? length * 1.4 : Math.min((shown[1] - shown[0]) / 4, (run.end - run.start) / 100);
    const middle = one.at + length / 2;
    return show(middle - width / 2, middle + width / 2);
  }

  async function next(direction) {
    const what = by("what").value, forwards = direction === "next", all = shown[0] <= run.start && shown[1] >= run.end;
    const middle = !all ? (shown[0] + shown[1]) / 2 : forwards ? run.start - 1 : run.end + 1; // of the whole run: its first, its last
    if (what === "message") {
      const at = focus && last && last.focus ? Math.round(forwards ? shown[0] + (shown[1] - shown[0]) / 5 : shown[0]) : Math.round(middle);
      return find({ at, direction }, forwards ? "There is no message after this." : "There is no message before this.");
    }
    const centre = (one) => ((one.until ?? one.at) + one.at) / 2, slack = all ? 0 : (shown[1] - shown[0]) * 1e-6 + 0.6;
    const wanted = run.moments.filter((one) => one.kind === what && (forwards ? centre(one) > middle + slack : centre(one) < middle - slack));
    wanted.sort((one, other) => centre(one) - centre(other));
    const found = forwards ? wanted[0] : wanted[wanted.length - 1];
    if (found) { await jump(found); by("words").textContent = `${found.text}. ` + by("words").textContent; }
    else by("words").textContent = what === "violation" && !run.checked ? "Nobody has checked this trace here: give what antiphon check wrote with --out too." : `There is no ${what} ${forwards ? "after" : "before"} this.`;
  }

  async function find(question, nothing) {
    try {
      const found = await ask("message", { run: run.run, ...question });
      complain(null);
      if (found.message === null) by("words").textContent = nothing;
      else { by("message").value = found.message; await show(found.start, found.end, found.message); }
    } catch (error) { complain(error); }
  }

  const move = (share) => { const by_ = (shown[1] - shown[0]) * share; return show(shown[0] + by_, shown[1] + by_); };
  const zoom = (factor) => { const middle = (shown[0] + shown[1]) / 2, half = ((shown[1] - shown[0]) * factor) / 2; return show(middle - half, middle + half); };
  const DO = {
    earlier: () => move(-0.5), later: () => move(0.5), in: () => zoom(0.25), out: () => zoom(4),
    whole: () => show(run.start, run.end), previous: () => next("previous"), next: () => next("next"),
  };
  const KEYS = { ArrowLeft: "earlier", ArrowRight: "later", "+": "in", "=": "in", "-": "out", 0: "whole", n: "next", p: "previous" };

  document.querySelector(".controls").addEventListener("click", (click) => {
    const wanted = click.target.closest("[data-do]");
    if (wanted && run) DO[wanted.dataset.do]();
  });
  by("strip").addEventListener("keydown", (press) => {
    if (!run || press.ctrlKey || press.metaKey || press.altKey) return;
    if (press.key === "Home") show(run.start, run.start + shown[1] - shown[0]);
    else if (press.key === "End") show(run.end - (shown[1] - shown[0]), run.end);
    else if (KEYS[press.key]) DO[KEYS[press.key]]();
    else return;
    press.preventDefault();
  });
  let held = null;
  by("strip").addEventListener("pointerdown", (press) => {
    if (!run) return;
    held = scale.time(press.clientX - strip.getBoundingClientRect().left);
    by("strip").setPointerCapture(press.pointerId);
  });
  by("strip").addEventListener("pointermove", (move_) => {
    if (held === null) return;
    const here = scale.time(move_.clientX - strip.getBoundingClientRect().left);
    drawStrip(strip, { ...run, window: [Math.min(held, here), Math.max(held, here)] });
  });
  by("strip").addEventListener("pointerup", (release) => {
    if (held === null) return;
    const here = scale.time(release.clientX - strip.getBoundingClientRect().left), from = held;
    held = null;
    if (Math.abs(scale.place(here) - scale.place(from)) > 4) show(Math.min(from, here), Math.max(from, here));
    else { const half = (shown[1] - shown[0]) / 2; show(here - half, here + half); }  // a click: there
  });
  by("strip").addEventListener("pointercancel", () => { held = null; if (run) drawWhole(); });
  by("find").addEventListener("submit", (sent) => { sent.preventDefault(); if (run && by("message").value.trim()) find({ message: by("message").value.trim() }, ""); });
  by("choose").addEventListener("submit", (sent) => { sent.preventDefault(); if (run) show(shown[0], shown[1], focus); });
  by("run").addEventListener("change", () => open(by("run").value));
  addEventListener("resize", () => { if (run && shown) { drawWhole(); drawLanes(); } });

  async function open(name, from, to, message) {
    try {
      run = await ask("overview", { run: name || "" });
    } catch (error) { complain(error); return; }
    run.moments.forEach((one) => { one.short = one.kind === "view" ? one.text.split(/ of |;/)[0].replace("view ", "v") : ""; });
    by("trace").textContent = run.trace;
    document.title = "Explore " + run.trace;
    by("headline").textContent = keptTogether(run.headline);
    by("size").textContent = `${run.events.toLocaleString("en")} events of ${run.size}${run.runs.length > 1 ? ", run " + run.run : ""}`;
    by("notes").textContent = run.notes.join(" ");
    by("run-choice").hidden = run.runs.length < 2;
    if (by("run").options.length !== run.runs.length) by("run").replaceChildren(...run.runs.map((one) => new Option(one, one)));
    by("run").value = run.run;
    const faults = run.moments.filter((one) => one.kind === "fault").length;
    by("what").value = run.moments.some((one) => one.kind === "violation") ? "violation" : faults ? "fault" : run.moments.length ? "view" : "message";
    await show(Number.isFinite(from) ? from : run.start, Number.isFinite(to) ? to : run.end, message);
  }

  by("members").value = said.get("members") || "";
  const number = (name) => (said.has(name) ? Number(said.get(name)) : NaN);
  open(said.get("run"), number("from"), number("to"), said.get("focus"));
})();
