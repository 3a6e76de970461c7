// The timeline of a group, drawn over time: how much happened, who was there, views, faults and what stands out.
// Whoever uses it gives what is drawn; every text goes in as text, never as markup.
const SVG = "http" + "://www.w3.org/2000/svg";
const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

function svgNode(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// a round number of steps for an axis of so many values
function roundStep(span, most) {
  const least = span / most, size = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((lead) => lead * size).find((step) => step >= least);
}

// a time in the unit that suits the axis, or a position in a log
function tellTime(value, span, timed) {
  if (!timed) return Math.round(value).toLocaleString("en");
  const [unit, size] = UNITS.find(([, length]) => span >= 2 * length) || UNITS[UNITS.length - 1];
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10((size * 20) / span))));
  return (value / size).toLocaleString("en", { maximumFractionDigits: digits }) + " " + unit;
}

const STRIP = { left: 8, top: 22, axis: 22, lane: 24, density: 56 };

// Draws into `svg`; returns how to turn a time into a place on it and back.
//   about: {start, end, timed, density, lanes, moments, window, label(value)}
function drawStrip(svg, about) {
  const names = (about.lanes || []).map((lane) => lane.name);
  const left = names.length ? Math.min(180, 14 + 7 * Math.max(...names.map((name) => Math.min(name.length, 24)))) : STRIP.left;
  const width = Math.max(svg.clientWidth || svg.parentElement.clientWidth, 200);
  const lane = about.laneHeight || STRIP.lane;
  const body = names.length ? lane * names.length : STRIP.density, height = STRIP.top + body + STRIP.axis;
  const span = Math.max(about.end - about.start, 1e-9);
  const place = (time) => left + ((time - about.start) / span) * (width - left - 8);
  const time = (x) => about.start + ((x - left) / (width - left - 8)) * span;
  const inside = (at) => Math.max(left, Math.min(width - 8, place(at)));
  const tell = about.label || ((value) => tellTime(value, span, about.timed));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  const parts = [];
  const step = roundStep(span, Math.max(2, Math.floor((width - left) / 84)));
  for (let at = Math.ceil(about.start / step) * step; at <= about.end; at += step) {
    parts.push(svgNode("path", { class: "tick", d: `M${place(at)} ${STRIP.top}v${body}` }));
    const anchor = place(at) > width - 40 ? "end" : place(at) < left + 30 ? "start" : "middle";
    parts.push(svgNode("text", { class: "scale", x: place(at), y: height - 6, "text-anchor": anchor }, tell(at)));
  }
  for (const one of about.moments || []) {
    if (one.until === null || one.until === undefined || one.kind === "view") continue;
    if (one.until < about.start || one.at > about.end) continue;
    parts.push(svgNode("rect", { class: "shade " + one.kind, x: inside(one.at), y: STRIP.top, width: Math.max(1, inside(one.until) - inside(one.at)), height: body }));
  }
  if (about.density) {
    const most = Math.max(...about.density, 1), size = (width - left - 8) / about.density.length;
    const heights = about.density.map((value) => body * Math.sqrt(value / most)); // a burst must not hide the rest
    parts.push(svgNode("path", { class: "density", d: `M${left} ${STRIP.top + body}` + heights.map((value, at) => `L${(left + at * size).toFixed(1)} ${(STRIP.top + body - value).toFixed(1)}H${(left + (at + 1) * size).toFixed(1)}`).join("") + `V${STRIP.top + body}z` }));
  }
  (about.lanes || []).forEach((row, at) => {
    const y = STRIP.top + at * lane;
    parts.push(svgNode("text", { class: "lane-name", x: left - 8, y: y + lane / 2 + 4, "text-anchor": "end" }, row.name.length > 24 ? row.name.slice(0, 23) + "…" : row.name));
    if (row.counts) {
      const most = Math.max(...row.counts, 1e-9), size = (width - left - 8) / row.counts.length;
      const top = row.summed ? most : about.most || most;
      const tall = (share) => (lane - 5) * Math.sqrt(Math.min(1, share));
      row.counts.forEach((value, index) => {
        if (value > 0) parts.push(svgNode("rect", { class: row.summed ? "count summed" : "count", x: (left + index * size).toFixed(1), width: (size + 0.4).toFixed(1), y: (y + lane - 3 - tall(value / top)).toFixed(1), height: tall(value / top).toFixed(1) }));
      });
    }
    for (const bar of row.bars || []) {
      parts.push(svgNode("rect", { class: "stretch " + bar.state, x: inside(bar.from), y: y + 6, width: Math.max(2, inside(bar.to) - inside(bar.from)), height: lane - 12 }));
    }
    for (const mark of row.marks || []) parts.push(svgNode("path", { class: "cross", d: `M${inside(mark) - 4} ${y + lane / 2 - 4}l8 8m0-8l-8 8` }));
  });
  let room = -Infinity;
  for (const one of about.moments || []) {
    if (one.at < about.start || one.at > about.end) continue;
    const x = place(one.at);
    parts.push(svgNode("path", { class: "moment " + one.kind, d: one.kind === "violation" ? `M${x} ${STRIP.top + body}V${STRIP.top - 6}l-4 -7h8l-4 7` : `M${x} ${STRIP.top - 4}V${STRIP.top + body}` }));
    const short = one.short || "";
    if (short && x >= room && x + 7 * short.length < width) {
      parts.push(svgNode("text", { class: "moment-name " + one.kind, x: x + 2, y: STRIP.top - 8 }, short));
      room = x + 7 * short.length + 8;
    }
  }
  if (about.window) {
    const from = inside(about.window[0]), to = Math.max(inside(about.window[1]), from + 3);
    parts.push(svgNode("rect", { class: "window", x: from, y: STRIP.top - 3, width: to - from, height: body + 6 }));
  }
  svg.replaceChildren(...parts);
  return { place, time };
}
