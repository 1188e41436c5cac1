"use strict";
// The live page: follows /v1/events and draws what they say. Decides nothing about the cluster.

const PAGE_ROWS = 200, CHANGES_MAX = 50, GROUPS_MAX = 50, GROUPS_EVERY_MS = 3000;
const STATES = {
  leaderless: "no leader", needs_recovery: "needs recovery", under_min_isr: "below min ISR",
  under_replicated: "under-replicated", elr_in_use: "ELR in use", recovering: "recovering",
  reassigning: "reassigning", offline_replicas: "offline replicas",
};
const SETS = {
  leader: "leader", isr: "in the ISR", elr: "eligible leader replica (ELR)",
  lastKnown: "last known ELR", behind: "out of sync",
};
const RULES = {
  isr: "from the ISR", elr: "from the ELR", preferred: "preferred replica", last_known_leader: "last known leader, unclean",
  unclean_random: "any replica, unclean", designated: "chosen by an operator", longest_log: "longest log, unclean",
};
const partitions = new Map();
let cluster = null, shownRows = PAGE_ROWS, pointedAt = null, isDue = false, isFirst = true, lastWord = 0;
let decisions = null, groups = null, drawnBrokers = "";
const changes = [];
const at = (id) => document.getElementById(id);

function make(name, text, attributes = {}) {
  const element = document.createElement(name);
  if (text !== undefined && text !== null) element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// --- what arrives ------------------------------------------------------------------------------------------

function follow() {
  const source = new EventSource("/v1/events");
  const on = (kind, handle) => source.addEventListener(kind, (event) => {
    lastWord = Date.now();
    handle(JSON.parse(event.data));
    due();
  });
  on("cluster", (body) => {
    if (body.is_whole) { partitions.clear(); isFirst = true; }
    else noteBrokers(body.brokers);
    cluster = body;
  });
  on("partitions", (body) => { for (const row of body.rows) { notePartition(row); partitions.set(nameOf(row), row); } });
  on("deleted", (body) => { for (const name of body.partitions) { partitions.delete(name); note(`${name} was deleted`); } });
  on("offset", () => { isFirst = false; askWhy(); });
  source.onopen = () => { lastWord = Date.now(); due(); };
  source.onerror = due;
  // a browser gives up when it is refused (too many pages, a node that starts): ask again
  const watch = setInterval(() => {
    if (source.readyState === EventSource.CLOSED) { clearInterval(watch); follow(); }
    due();
  }, 1000);
}

const nameOf = (row) => `${row.topic}-${row.partition}`;
const list = (ids) => ids.length ? ids.join(", ") : "none";

function note(text) {
  changes.unshift({ when: new Date(), text });
  changes.length = Math.min(changes.length, CHANGES_MAX);
}

function noteBrokers(brokers) {
  const before = new Map((cluster ? cluster.brokers : []).map((broker) => [broker.id, broker]));
  for (const broker of brokers) {
    const known = before.get(broker.id);
    if (!known) note(`broker ${broker.id} registered`);
    else if (known.epoch !== broker.epoch) note(`broker ${broker.id} registered again after ${broker.registered === "clean" ? "a clean" : "an unclean"} shutdown`);
    else if (known.state !== broker.state) note(`broker ${broker.id} is ${broker.state}`);
  }
}

function notePartition(row) {
  const before = partitions.get(nameOf(row));
  if (isFirst || !before) return;
  const parts = [];
  const say = (word, old, now) => { if (String(old) !== String(now)) parts.push(`${word} ${old} → ${now}`); };
  say("leader", before.leader ?? "none", row.leader ?? "none");
  say("ISR", list(before.isr), list(row.isr));
  say("ELR", list(before.elr), list(row.elr));
  if (parts.length) note(`${nameOf(row)}: ${parts.join("; ")}`);
}

// The active controller knows why; other nodes show only what changed.
let isAsking = false;
async function askWhy() {
  if (isAsking || !cluster || cluster.node.role !== "controller") return;
  isAsking = true;
  try {
    const reply = await fetch(`/v1/decisions?limit=${CHANGES_MAX}`);
    if (reply.ok) { decisions = (await reply.json()).decisions; due(); }
  } catch { /* the stream says when the node is gone */ }
  isAsking = false;
}

// Each broker knows the groups that it coordinates; no event tells of them.
async function askGroups() {
  if (cluster && cluster.node.role === "broker" && !document.hidden) {
    try {
      const reply = await fetch(`/v1/groups?limit=${GROUPS_MAX}`);
      if (reply.ok) { groups = await reply.json(); due(); }
    } catch { /* the stream says when the node is gone */ }
  }
  setTimeout(askGroups, GROUPS_EVERY_MS);
}

// --- what is drawn -----------------------------------------------------------------------------------------

function due() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => { isDue = false; draw(); });
}

function draw() {
  const isSilent = Date.now() - lastWord > 12000;
  at("connection").hidden = !(cluster && isSilent);
  at("connection").textContent = "This node does not answer: what you see is its last word. Trying again.";
  if (!cluster) return;
  const quorum = cluster.quorum;
  at("facts").textContent = [
    quorum.leader_id === null ? "no active controller is known here" : `active controller ${quorum.leader_id}, epoch ${quorum.epoch}`,
    `${cluster.node.role} ${cluster.node.id} answers (${cluster.node.state})`,
    `metadata offset ${cluster.metadata_offset}`, `cluster ${cluster.cluster_id}`,
  ].join(" · ");
  drawSentence();
  drawBrokers();
  drawPartitions();
  drawGroups();
  drawChanges();
}

const isUp = (id) => cluster.brokers.some((broker) => broker.id === id && broker.state !== "fenced");
const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;

function sentence() {
  const rows = [...partitions.values()];
  if (!cluster.brokers.length) return ["warn", "No broker has registered yet"];
  if (!rows.length) return ["good", `${count(cluster.brokers.length, "broker", "brokers")}, no topics yet`];
  const leaderless = rows.filter((row) => row.leader === null);
  if (leaderless.length) {
    const row = leaderless.sort(worstFirst)[0];
    const complete = row.isr.length ? row.isr : row.elr;
    const waits = complete.length ? `it waits for broker ${complete.join(" or ")}` : "no replica may lead without loss";
    const more = leaderless.length > 1 ? `; ${leaderless.length - 1} more have none` : "";
    return ["bad", `${nameOf(row)} has no leader: ${waits}${more}`];
  }
  const refused = rows.filter((row) => row.headroom.writes < 0);
  if (refused.length) return ["bad", `${count(refused.length, "partition is", "partitions are")} below min ISR: writes with acks=all wait`];
  const lossy = Math.min(...rows.map((row) => row.headroom.lossy));
  const weak = rows.filter((row) => row.headroom.lossy === lossy);
  if (lossy <= 0) return ["warn", `${nameOf(weak.sort(worstFirst)[0])}${weak.length > 1 ? ` and ${weak.length - 1} more` : ""}: one more power loss may take acknowledged records`];
  const frozen = rows.filter((row) => row.headroom.writes === 0).length;
  const all = rows.length === 1 ? `${nameOf(rows[0])} survives` : `All ${rows.length} partitions survive`;
  const text = `${all} ${count(lossy, "more power loss", "more power losses")}`;
  return frozen ? ["warn", `${text}; ${count(frozen, "takes", "take")} no writes after the next stop`] : ["good", text];
}

function drawSentence() {
  const [kind, text] = pointedAt === null ? sentence() : ["warn", whatIf(pointedAt).text];
  const title = at("sentence");
  if (title.textContent !== text) title.textContent = text;
  title.className = kind;
  document.title = pointedAt === null ? `${text} · Holdfast` : document.title;
}

// What would follow if one broker stopped: rows that change, and a sentence.
function whatIf(id) {
  const affected = new Map();
  let moved = 0, lost = 0, refused = 0;
  for (const row of partitions.values()) {
    const words = [];
    if (row.leader === id) {
      const next = row.next_leader;
      const may = (row.isr.some((one) => one !== id) ? row.isr : row.elr).filter((one) => one !== id && isUp(one) && !row.offline_replicas.includes(one));
      if (next ? next.leader === null : !may.length) { lost++; words.push("no leader"); }
      else { moved++; words.push(next ? `led by ${next.leader} (${RULES[next.reason]})` : `led by one of ${may.join(", ")}`); }
    }
    if (row.isr.includes(id) && row.isr.length - 1 < row.min_isr) { refused++; words.push("writes wait"); }
    if (words.length) affected.set(nameOf(row), words.join(", "));
  }
  const parts = [];
  if (moved) parts.push(count(moved, "partition gets another leader", "partitions get another leader"));
  if (lost) parts.push(count(lost, "partition has no leader", "partitions have no leader"));
  if (refused) parts.push(`acks=all waits on ${count(refused, "partition", "partitions")}`);
  return { affected, text: `If broker ${id} stopped: ${parts.join(", ") || "nothing would change for clients"}` };
}

function drawBrokers() {
  const racks = new Map();
  for (const broker of cluster.brokers) {
    const rack = broker.rack === null ? "no rack" : `rack ${broker.rack}`;
    if (!racks.has(rack)) racks.set(rack, []);
    racks.get(rack).push(broker);
  }
  const leads = new Map(), holds = new Map();
  for (const row of partitions.values()) {
    leads.set(row.leader, (leads.get(row.leader) || 0) + 1);
    for (const id of row.replicas) holds.set(id, (holds.get(id) || 0) + 1);
  }
  // a card that is made anew under the pointer would be entered again and again
  const now = JSON.stringify([cluster.brokers, [...leads], [...holds]]);
  if (now === drawnBrokers) return;
  drawnBrokers = now;
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.broker : undefined;
  at("racks").replaceChildren(...[...racks].sort().map(([rack, brokers]) => {
    const box = make("div", null, { class: "rack" }), cards = make("div");
    for (const broker of brokers) {
      const card = make("button", null, { class: `broker ${broker.state}`, type: "button", "data-broker": broker.id });
      card.append(
        make("b", `Broker ${broker.id}`), make("span", `${broker.state}, registered ${broker.registered}`),
        make("span", `leads ${leads.get(broker.id) || 0} of ${holds.get(broker.id) || 0} replicas`),
        make("span", `epoch ${broker.epoch}${broker.offline_replicas ? `, ${broker.offline_replicas} offline` : ""}`),
      );
      card.onmouseenter = card.onfocus = () => { pointedAt = broker.id; due(); };
      card.onmouseleave = card.onblur = () => { pointedAt = null; due(); };
      cards.append(card);
    }
    box.append(make("h3", rack), cards);
    return box;
  }));
  if (focused !== undefined) {
    const card = document.querySelector(`[data-broker="${focused}"]`);
    if (card) card.focus({ preventScroll: true });
  }
}

// The set of a replica: its shape, a letter, and words for those who hear the page.
function setOf(row, id) {
  if (row.leader === id) return "leader";
  if (row.isr.includes(id)) return "isr";
  if (row.elr.includes(id)) return "elr";
  if (row.last_known_elr.includes(id)) return "lastKnown";
  return row.replicas.includes(id) ? "behind" : null;
}

function shape(set, isOffline) {
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", "0 0 26 26");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", SETS[set] + (isOffline ? ", offline" : ""));
  const part = (name, attributes, text) => {
    const element = document.createElementNS(space, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text) element.textContent = text;
    picture.append(element);
  };
  const square = { x: 3, y: 3, width: 20, height: 20, rx: 3 };
  if (set === "leader") part("path", { d: "M3 23 V7 L8 12 L13 3 L18 12 L23 7 V23 Z", class: "leads" });
  else if (set === "isr") part("rect", { ...square, class: "full" });
  else {
    part("rect", { ...square, class: set === "behind" ? "edge dots" : "edge" });
    if (set === "elr") part("rect", { x: 4, y: 13, width: 18, height: 9, class: "half" });
  }
  const letter = { leader: "L", isr: "I", elr: "E", lastKnown: "?", behind: "" }[set];
  if (letter) part("text", { x: 13, y: set === "leader" ? 21 : set === "elr" ? 12 : 17.5, class: set === "leader" || set === "isr" ? "inverse" : "" }, letter);
  if (isOffline) part("path", { d: "M3 3 L23 23", class: "off" });
  const title = document.createElementNS(space, "title");
  title.textContent = picture.getAttribute("aria-label");
  picture.append(title);
  return picture;
}

const badness = (row) => (row.leader === null ? 1000 : 0) + (row.states.includes("needs_recovery") ? 500 : 0) + (row.headroom.writes < 0 ? 100 : 0)
  + (row.headroom.lossy <= 0 ? 50 : 0) + 5 * row.states.length - row.headroom.writes;
const worstFirst = (one, other) => badness(other) - badness(one) || one.topic.localeCompare(other.topic) || one.partition - other.partition;

function drawPartitions() {
  const topic = at("topic").value, state = at("state").value;
  const wanted = [...partitions.values()].filter((row) => row.topic.includes(topic) && (!state || row.states.includes(state))).sort(worstFirst);
  const ids = [...new Set([...cluster.brokers.map((broker) => broker.id), ...wanted.slice(0, shownRows).flatMap((row) => row.replicas)])].sort((a, b) => a - b);
  const what = pointedAt === null ? null : whatIf(pointedAt);
  at("shown").textContent = wanted.length > shownRows ? `worst ${shownRows} of ${wanted.length}` : `${wanted.length}`;
  at("more").hidden = wanted.length <= shownRows;
  at("heads").replaceChildren(
    make("th", "Partition", { scope: "col" }), ...ids.map((id) => make("th", `${id}`, { class: "replica", scope: "col", title: `broker ${id}` })),
    make("th", what ? "Then" : "Leads next", { scope: "col" }),
    make("th", "Writes", { class: "number", scope: "col", title: "replicas that may leave before acks=all waits" }),
    make("th", "Online", { class: "number", scope: "col", title: "brokers that may stop before no replica can lead" }),
    make("th", "Lossy", { class: "number", scope: "col", title: "power losses until acknowledged records may be lost" }),
    make("th", "State", { scope: "col" }),
  );
  at("rows").replaceChildren(...wanted.slice(0, shownRows).map((row) => {
    const line = make("tr");
    if (what && what.affected.has(nameOf(row))) line.className = "affected";
    line.append(make("td", nameOf(row)));
    for (const id of ids) {
      const cell = make("td", null, { class: "replica" }), set = setOf(row, id);
      if (set) cell.append(shape(set, row.offline_replicas.includes(id)));
      line.append(cell);
    }
    line.append(make("td", what ? what.affected.get(nameOf(row)) || "" : nextOf(row)));
    for (const kind of ["writes", "online", "lossy"]) {
      const left = row.headroom[kind];
      line.append(make("td", left < 0 ? `${-left} short` : `${left}`, { class: `number ${left < 0 ? "short" : left === 0 ? "none" : ""}` }));
    }
    line.append(make("td", row.states.map((one) => STATES[one]).join(", ") || "ok"));
    return line;
  }));
}

function nextOf(row) {
  const next = row.next_leader;
  if (!next) return "ask a controller";
  if (next.leader !== null) return `${next.leader} (${RULES[next.reason]})`;
  return next.waits_for.length ? `waits for ${next.waits_for.join(", ")}` : "needs recovery";
}

function drawGroups() {
  at("groups-section").hidden = !(groups && groups.count);
  if (!groups) return;
  const shown = groups.groups;
  at("groups-from").textContent = `${shown.length < groups.count ? `most lag: ${shown.length} of ${groups.count}` : groups.count} coordinated by this broker; each broker's page has its own`;
  at("groups").replaceChildren(...shown.map((group) => {
    const line = make("tr"), { lag, unknown } = group;
    const least = unknown ? `${lag} or more` : `${lag}`;
    line.append(
      make("td", group.group), make("td", group.state), make("td", `${group.members}`, { class: "number" }),
      make("td", unknown && unknown === group.partitions ? "unknown" : least, { class: "number" }),
      make("td", group.worst.map((one) => `${one.topic}-${one.partition}: ${one.lag}`).join(", ") || (unknown ? "unknown" : "none")),
    );
    return line;
  }));
}

function drawChanges() {
  const isActive = cluster.node.role === "controller" && cluster.quorum.leader_id === cluster.node.id;
  const known = isActive && decisions ? decisions.map((one) => {
    const parts = [];
    for (const [word, [old, now]] of [["leader", one.leader], ["ISR", one.isr], ["ELR", one.elr]]) {
      const text = (value) => Array.isArray(value) ? list(value) : value ?? "none";
      if (text(old) !== text(now)) parts.push(`${word} ${text(old)} → ${text(now)}`);
    }
    const rule = one.elected_by ? ` (elected: ${RULES[one.elected_by]})` : "";
    return make("li", `${one.topic}-${one.partition}: ${parts.join("; ") || "no change of sets"}, because ${one.cause}${rule}`);
  }) : changes.map((one) => {
    const line = make("li");
    line.append(make("time", one.when.toLocaleTimeString()), one.text);
    return line;
  });
  at("changes-from").textContent = isActive ? "with their reasons" : "since this page was opened; the active controller's page has the reasons";
  at("changes").replaceChildren(...(known.length ? known : [make("li", "none yet")]));
}

// --- start -------------------------------------------------------------------------------------------------

for (const [state, words] of Object.entries(STATES)) at("state").append(make("option", words, { value: state }));
at("topic").oninput = at("state").onchange = () => { shownRows = PAGE_ROWS; due(); };
at("filters").onsubmit = (event) => event.preventDefault();
at("more").onclick = () => { shownRows += PAGE_ROWS; due(); };
at("legend").append(...Object.entries(SETS).map(([set, words]) => {
  const item = make("li");
  item.append(shape(set, false), ` ${words}`);
  return item;
}));
at("group-heads").append(
  make("th", "Group", { scope: "col" }), make("th", "State", { scope: "col" }), make("th", "Members", { class: "number", scope: "col" }),
  make("th", "Lag", { class: "number", scope: "col", title: "committed records that the group has not committed as read" }),
  make("th", "Most of it in", { scope: "col" }),
);
follow();
askGroups();
