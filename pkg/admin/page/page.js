"use strict";
// Shows /status, again every two seconds. Everything is put in as text, never as HTML.

const every = 2000, patience = 4000;
const $ = (id) => document.getElementById(id);
let last = null; // when the worker last answered, by this machine's clock

const numbers = new Intl.NumberFormat("en");
const count = (n) => (n === undefined || n === null || n < 0 ? "–" : numbers.format(n));

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)) + " " + units[i];
}

function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return s + " s";
  if (s < 5400) return Math.round(s / 60) + " min";
  if (s < 172800) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " days";
}

// Times are shown on the calendar that is counted; of today only the clock.
function clock(status) {
  const parts = (zone) => new Intl.DateTimeFormat("sv-SE", {
    timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  });
  let format;
  try { format = parts(status.time_zone || "UTC"); } catch { format = parts("UTC"); }
  const now = new Date(status.now), today = format.format(now).slice(0, 10);
  return {
    at(text) {
      if (!text) return "–";
      const shown = format.format(new Date(text));
      return shown.startsWith(today) ? shown.slice(11) : shown;
    },
    ago(text) { return text ? span((now - new Date(text)) / 1000) + " ago" : "–"; },
    age(text) { return text ? span((now - new Date(text)) / 1000) : "–"; },
  };
}

function element(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

function pairs(id, rows) {
  $(id).replaceChildren(...rows.filter((r) => r).flatMap(([term, text, className]) => [element("dt", term), element("dd", text, className)]));
}

function header(s, c) {
  const trouble = s.partitions_behind > 0 || s.partitions.some((p) => p.problem);
  const tone = s.ready ? (trouble ? "warn" : "ok") : "bad";
  document.querySelector("header").className = tone;
  $("headline").textContent = s.headline;
  $("who").textContent = [s.worker, s.version, s.started && "up " + c.age(s.started), "days in " + (s.time_zone || "UTC")].filter(Boolean).join(" · ");
  $("reasons").hidden = s.reasons.length === 0;
  $("reasons").replaceChildren(...s.reasons.map((r) => element("li", r.check + ": " + r.reason + (r.since ? " (for " + c.age(r.since) + ")" : ""))));
  document.title = (s.ready ? "" : "✗ ") + "rollcall " + s.worker;
}

// What a partition does, in a word, and since when. One that runs may be held up or paused all the same; a moment's queue is neither.
function doing(p) {
  const paused = p.paused.filter((word) => word !== p.state && word !== "queue");
  const why = [paused.join(", "), p.problem].filter(Boolean).join("; ");
  if (p.state !== "running") return { word: p.state, since: p.since, why, tone: p.state === "stopped" || p.problem ? "bad" : "warn" };
  if (p.problem) return { word: "held up", why, tone: "bad" };
  if (paused.length) return { word: "paused", since: p.paused_since, why, tone: "warn" };
  return { word: "running", why, tone: "ok" };
}

function partitions(s, c) {
  const list = s.partitions, states = new Map();
  let lag = 0;
  for (const p of list) {
    const { word } = doing(p);
    states.set(word, (states.get(word) || 0) + 1);
    if (p.lag > 0) lag += p.lag;
  }
  const summary = [...states].map(([state, n]) => n + " " + state).join(", ");
  $("partitions-summary").textContent = list.length === 0 ? "None assigned to this worker." : summary + "; " + count(lag) + " records still to read.";
  $("partitions").hidden = list.length === 0;
  const labels = [...$("partitions").tHead.rows[0].cells].map((cell) => cell.textContent);
  $("partitions").tBodies[0].replaceChildren(...list.map((p) => {
    const row = element("tr"), d = doing(p);
    const state = d.word + (d.since ? " for " + c.age(d.since) : "") + (d.why ? ": " + d.why : "");
    row.append(
      element("td", p.topic + "/" + p.partition),
      element("td", state, "words " + d.tone),
      element("td", count(p.lag), "n"), element("td", c.at(p.complete_until)), element("td", c.at(p.watermark)),
      element("td", count(p.position), "n"), element("td", count(p.committed), "n"), element("td", count(p.log_end), "n"),
      element("td", p.history || "–", "dim"));
    [...row.cells].forEach((cell, i) => { cell.dataset.label = labels[i]; }); // a narrow page has no head of the table
    return row;
  }));
}

function details(s, c) {
  const l = s.loads, d = s.discovery, t = s.table;
  const full = l.buffer_limit > 0 ? Math.round(100 * l.buffer_bytes / l.buffer_limit) : 0;
  pairs("loads", [
    l.blocked && ["blocked", l.blocked, "bad"],
    ["last", l.last_at ? count(l.last_rows) + " rows in " + l.last_seconds.toFixed(2) + " s, " + c.ago(l.last_at) : "none yet"],
    l.last_label && ["label", l.last_label, "dim"],
    ["done", count(l.done)],
    ["in flight", l.in_flight_since ? "for " + c.age(l.in_flight_since) + (l.attempts > 1 ? ", attempt " + l.attempts : "") : "none", l.attempts > 1 ? "warn" : ""],
    l.last_error && ["last error", l.last_error + (l.last_error_at ? " (" + c.ago(l.last_error_at) + ")" : ""), "warn"],
    ["every", span(l.flush_interval_seconds)],
    ["buffer", bytes(l.buffer_bytes) + " of " + bytes(l.buffer_limit) + " (" + full + " %)", full >= 90 ? "warn" : ""],
  ]);
  const trouble = [["leaderless", d.leaderless], ["missing", d.missing], ["gone", d.gone]].filter(([, n]) => n > 0);
  pairs("discovery", [
    ["breaker", d.breaker || "–", d.breaker === "closed" ? "ok" : d.breaker ? "warn" : ""],
    ["last success", c.ago(d.last_success)],
    d.last_error && ["last error", d.last_error + (d.last_error_at ? " (" + c.ago(d.last_error_at) + ")" : ""), "warn"],
    ["brokers", count(d.brokers)],
    ["partitions", count(d.known) + " known" + trouble.map(([word, n]) => ", " + n + " " + word).join(""), trouble.length ? "warn" : ""],
  ]);
  pairs("table", [
    ["name", t.name || "–"],
    t.view && ["view", t.view],
    ["mode", t.mode || "–"],
    ["state", (t.state || "–") + (t.checked_at ? ", checked " + c.ago(t.checked_at) : ""), t.state === "ok" ? "ok" : t.state ? "warn" : ""],
    t.difference && ["difference", t.difference, "bad"],
  ]);
}

function svg(tag, attributes) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  return e;
}

// One small chart per measure: their scales have nothing in common.
function chart(name, days) {
  const values = days.map((d) => d.measures[name] || 0), most = Math.max(1, ...values);
  const figure = element("figure"), caption = element("figcaption");
  caption.append(element("span", name), element("b", count(values[values.length - 1])));
  const step = 300 / days.length, width = Math.min(step * 0.8, 48);
  const picture = svg("svg", { viewBox: "0 0 300 80", preserveAspectRatio: "none", role: "img", "aria-label": name + " per day" });
  values.forEach((value, i) => {
    const height = Math.max(value > 0 ? 1 : 0, 76 * value / most);
    const bar = svg("rect", { x: i * step + (step - width) / 2, y: 78 - height, width, height });
    if (i === values.length - 1) bar.setAttribute("class", "last");
    const title = svg("title", {});
    title.textContent = days[i].day + ": " + count(value);
    bar.append(title);
    picture.append(bar);
  });
  picture.append(svg("line", { x1: 0, x2: 300, y1: 79, y2: 79 }));
  const ends = element("div", undefined, "days");
  if (days.length > 1) ends.append(element("span", days[0].day));
  ends.append(element("span", days[days.length - 1].day));
  figure.append(caption, picture, ends);
  return figure;
}

function totals(s) {
  const days = s.totals.slice(-14), names = [...s.measures];
  for (const d of days) for (const name of Object.keys(d.measures || {})) if (!names.includes(name)) names.push(name);
  $("totals-section").hidden = days.length === 0;
  $("totals").replaceChildren(...(days.length ? names : []).slice(0, 6).map((name) => chart(name, days)));
}

function show(s) {
  const c = clock(s);
  header(s, c);
  totals(s);
  partitions(s, c);
  details(s, c);
  $("main").hidden = false;
}

function silence(why) {
  const since = last === null ? "" : " since " + span((Date.now() - last) / 1000);
  $("silence").textContent = "No answer from the worker" + since + ": " + why;
  $("silence").hidden = false;
  $("main").className = "stale";
  document.querySelector("header").className = "bad";
}

async function ask() {
  try {
    const reply = await fetch("status", { cache: "no-store", signal: AbortSignal.timeout(patience) });
    const body = await reply.json();
    if (!reply.ok) throw new Error(body.error || "HTTP " + reply.status);
    show(body);
    last = Date.now();
    $("silence").hidden = true;
    $("main").className = "";
  } catch (e) {
    silence(e.message || String(e));
  }
}

async function run() {
  for (;;) {
    if (!document.hidden) await ask();
    await new Promise((done) => setTimeout(done, every));
  }
}
document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
run();
