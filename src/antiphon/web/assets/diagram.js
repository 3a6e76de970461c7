// Zoom, pan, details and causal past and future, for every .diagram of the page.
(() => {
  const ZOOM_MIN = 0.1, ZOOM_MAX = 6, STEP = 1.25;

  // Which messages the sending of `chosen` depended on, and which depend on it, by the sends and deliveries that are
  // drawn: a member's own sends and deliveries come before whatever it sends next.
  function follow(lanes, chosen) {
    const needs = new Map(), sent = new Set();
    for (const lane of lanes.values()) {
      const known = new Set();
      for (const { event, message } of lane) {
        if (event === "send" && !sent.has(message)) {
          sent.add(message);
          needs.set(message, new Set(known));
          known.add(message);
        } else if (event === "deliver") known.add(message);
      }
    }
    const feeds = new Map();
    for (const [message, causes] of needs) {
      for (const cause of causes) {
        if (!feeds.has(cause)) feeds.set(cause, new Set());
        feeds.get(cause).add(message);
      }
    }
    const reach = (edges) => {
      const found = new Set(), open = [chosen];
      while (open.length) {
        for (const next of edges.get(open.pop()) || []) {
          if (next !== chosen && !found.has(next)) { found.add(next); open.push(next); }
        }
      }
      return found;
    };
    return { past: reach(needs), future: reach(feeds), sent };
  }

  function start(figure) {
    const pan = figure.querySelector(".pan"), svg = pan.querySelector("svg"), told = figure.querySelector(".told");
    const natural = svg.viewBox.baseVal.width, tall = svg.viewBox.baseVal.height;
    const names = svg.querySelector(".names"), events = [...svg.querySelectorAll(".event")];
    const lanes = new Map();
    for (const element of events) {
      const { member, event, message } = element.dataset;
      if (!lanes.has(member)) lanes.set(member, []);
      lanes.get(member).push({ element, event, message });
    }
    const hint = told.textContent, clear = figure.querySelector("[data-zoom=clear]");
    let zoom = 1, chosen = null;

    // Zoom and pan: the drawing is scaled inside a box that scrolls, so that every way to scroll works.
    const keepNames = () => names.setAttribute("transform", `translate(${pan.scrollLeft / zoom} 0)`);
    function setZoom(wanted, x = pan.clientWidth / 2, y = pan.clientHeight / 2) {
      const before = zoom;
      zoom = Math.min(ZOOM_MAX, Math.max(ZOOM_MIN, wanted));
      const left = (pan.scrollLeft + x) * zoom / before - x, top = (pan.scrollTop + y) * zoom / before - y;
      svg.style.width = natural * zoom + "px";
      svg.style.height = tall * zoom + "px";
      pan.scrollLeft = left;
      pan.scrollTop = top;
      keepNames();
    }
    const whole = () => setZoom(Math.min(1, pan.clientWidth / natural));
    pan.addEventListener("scroll", keepNames);
    pan.addEventListener("wheel", (wheel) => {
      if (!wheel.ctrlKey && !wheel.metaKey) return; // without a key the page scrolls, as everywhere
      wheel.preventDefault();
      const box = pan.getBoundingClientRect();
      setZoom(zoom * Math.exp(-wheel.deltaY / 300), wheel.clientX - box.left, wheel.clientY - box.top);
    }, { passive: false });
    let held = null, moved = false;
    pan.addEventListener("pointerdown", (down) => {
      moved = false;
      if (down.pointerType === "mouse" && down.button === 0) held = [down.clientX + pan.scrollLeft, down.clientY + pan.scrollTop];
    });
    window.addEventListener("pointermove", (move) => {
      if (!held) return;
      const left = held[0] - move.clientX, top = held[1] - move.clientY;
      if (!moved && Math.hypot(left - pan.scrollLeft, top - pan.scrollTop) < 4) return;
      moved = true;
      pan.classList.add("held");
      pan.scrollLeft = left;
      pan.scrollTop = top;
    });
    window.addEventListener("pointerup", () => { held = null; pan.classList.remove("held"); });

    // Details
    const title = (element) => element.querySelector("title").textContent;
    function words(element) { // with those that are drawn in the same place
      if (!element.matches(".event")) return title(element);
      const place = element.getAttribute("transform");
      const stack = lanes.get(element.dataset.member).filter((one) => one.element.getAttribute("transform") === place);
      return stack.map((one) => title(one.element)).join("; ");
    }
    function show(element) {
      for (const other of svg.querySelectorAll(".shown")) other.classList.remove("shown");
      if (element) element.classList.add("shown");
      if (element) told.textContent = words(element);
      else tellFollowed();
    }
    svg.addEventListener("pointerover", (over) => {
      const element = over.target.closest(".event, .links [data-message]");
      if (element) show(element);
    });
    svg.addEventListener("pointerleave", () => show(null));
    svg.addEventListener("focusin", (focus) => { if (focus.target.matches(".event")) show(focus.target); });

    // Past and future
    function followMessage(message) {
      chosen = message;
      clear.disabled = message === null;
      const found = message === null ? null : follow(lanes, message);
      svg.classList.toggle("following", message !== null);
      for (const element of svg.querySelectorAll("[data-message]")) {
        const one = element.dataset.message;
        element.classList.toggle("chosen", one === message);
        element.classList.toggle("past", found !== null && found.past.has(one));
        element.classList.toggle("future", found !== null && found.future.has(one));
      }
      figure.dataset.past = found ? [...found.past].sort().join(" ") : "";
      figure.dataset.future = found ? [...found.future].sort().join(" ") : "";
      tellFollowed();
    }
    function tellFollowed() {
      if (chosen === null) { told.textContent = hint; return; }
      const { past, future, sent } = follow(lanes, chosen);
      const list = (messages) => messages.size === 0 ? "none" : messages.size > 24 ? String(messages.size) : [...messages].join(", ");
      const cut = [];
      if (figure.dataset.before === "1" || !sent.has(chosen) || [...past].some((one) => !sent.has(one))) cut.push("its past may go on before this window");
      if (figure.dataset.after === "1") cut.push("its future may go on after it");
      told.textContent = `${chosen} depends on: ${list(past)}. On it depend: ${list(future)}. The others are independent of it`
        + (cut.length ? `, as far as this window shows: ${cut.join(", ")}.` : ".");
    }
    svg.addEventListener("click", (click) => {
      if (moved) return;
      const element = click.target.closest("[data-message]");
      followMessage(element && element.dataset.message !== chosen ? element.dataset.message : null);
    });

    // Keys: with the drawing in focus arrows pan; Tab or Enter enters it, then they go from event to event.
    function step(element, key) {
      const lane = lanes.get(element.dataset.member).map((one) => one.element), at = lane.indexOf(element);
      if (key === "ArrowRight") return lane[at + 1];
      if (key === "ArrowLeft") return lane[at - 1];
      const order = [...lanes.keys()], other = lanes.get(order[order.indexOf(element.dataset.member) + (key === "ArrowDown" ? 1 : -1)]);
      if (!other) return null;
      const x = element.getBoundingClientRect().x;
      const distance = (one) => Math.abs(one.element.getBoundingClientRect().x - x);
      return other.reduce((best, one) => distance(one) < distance(best) ? one : best).element;
    }
    svg.addEventListener("keydown", (press) => {
      const inside = press.target.matches(".event"), key = press.key;
      if (key === "+" || key === "=") setZoom(zoom * STEP);
      else if (key === "-") setZoom(zoom / STEP);
      else if (key === "0") setZoom(1);
      else if (key === "Escape") { followMessage(null); if (inside) svg.focus(); }
      else if (key === "Enter" || key === " ") {
        if (!inside) { if (events.length) events[0].focus(); }
        else if (press.target.dataset.message) followMessage(press.target.dataset.message);
      } else if (key.startsWith("Arrow")) {
        if (inside) { const next = step(press.target, key); if (next) { next.focus(); next.scrollIntoView({ block: "nearest", inline: "nearest" }); } }
        else pan.scrollBy({ left: key === "ArrowRight" ? 80 : key === "ArrowLeft" ? -80 : 0, top: key === "ArrowDown" ? 80 : key === "ArrowUp" ? -80 : 0 });
      } else return;
      press.preventDefault();
    });
    figure.querySelector(".tools").addEventListener("click", (click) => {
      const button = click.target.closest("[data-zoom]");
      if (!button) return;
      if (button.dataset.zoom === "in") setZoom(zoom * STEP);
      else if (button.dataset.zoom === "out") setZoom(zoom / STEP);
      else if (button.dataset.zoom === "whole") whole();
      else followMessage(null);
    });
    figure.querySelector(".tools").hidden = false;
    setZoom(1);
    const first = svg.querySelector(".marked, .event.focus");
    if (first) pan.scrollLeft = first.getCTM().e - pan.clientWidth / 3;
  }

  for (const figure of document.querySelectorAll("figure.diagram")) start(figure);
  window.startDiagram = start; // for pages that bring a diagram later
})();
