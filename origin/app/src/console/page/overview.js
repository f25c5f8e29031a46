// Is everything fine? What needs attention, the sales that run and come next, and what happened since the console was
// opened.

import { api } from "./api.js";
import { Samples, line, spark } from "./charts.js";
import { complaint, el, empty, refresh, replace, segments, state, table } from "./dom.js";
import { count, instant, plural, rate } from "./format.js";
import { differenceOf } from "./gateways.js";
import { hourChart } from "./limits.js";
import { place, saleStatus, sold, sorted, stage, when } from "./sales.js";
import { send } from "./session.js";
import { traffic } from "./traffic.js";

const EVERY_MS = 5_000;

/** The chart of the last hour is loaded once per this many refreshes. */
const HOUR_TURNS = 6;

/** Live sales whose numbers are read at every interval, and upcoming ones shown below them. */
const [LIVE_MAX, NEXT_MAX] = [6, 4];

/** The window in which a room counts as full. */
const FULL = 0.98;

/** Orders of each sale over time, kept while the console is open. */
const orders = new Map();

const item = (tone, word, text, link, more) => el("li", { "data-key": `${word} ${text}` }, state(word, tone), el("span", {}, text), el("a", { href: link }, more));

/** What needs attention, by area. Each returns items, and fails only if its answer is missing. */
const CHECKS = [
  [null, async () => {
    const { status, redis, ...parts } = await send("readyz").then((answer) => answer.json());
    const wrong = Object.entries({ ...parts, ...(redis ? { redis } : {}) }).filter(([, word]) => word !== "ok");
    return wrong.map(([name, word]) => item("bad", "Health", `${name.replaceAll("_", " ")}: ${word}. See the origin’s log for what to do.`, "#/overview", ""));
  }],
  ["rooms:read", async () => (await api.rooms()).flatMap((room) => {
    const queue = room.queue;
    const setting = room.setting ?? room.configured;
    const found = [];
    if (setting && setting.mode !== "open" && (queue?.waiting ?? 0) > 0) {
      found.push(item("warn", "Room", `“${room.name}” is ${setting.mode} with ${count(queue.waiting)} waiting.`, "#/rooms", "Waiting rooms"));
    }
    if (queue && setting?.active_max > 0 && queue.inside >= FULL * setting.active_max) {
      found.push(item("warn", "Room", `“${room.name}” is full: ${count(queue.inside)} of ${count(setting.active_max)} inside.`, "#/rooms", "Waiting rooms"));
    }
    return found;
  })],
  ["limits:read", async () => {
    const { differences } = await api.gateways();
    const found = differences.slice(0, DRIFT_MAX).map((one) => item("warn", "Gateways", differenceOf(one), "#/gateways", "Compare"));
    const more = differences.length - found.length;
    return more > 0 ? [...found, item("warn", "Gateways", `${plural(more, "more difference")} between gateways.`, "#/gateways", "Compare")] : found;
  }],
  ["events:read", async () => {
    const [groups, pulls, refused] = await Promise.all([api.groups(), api.pulls(), api.deadLetters({ group: "collect", limit: 100 })]);
    const many = refused.dead_letters.length;
    const dead = groups.filter((group) => group.dead_letters > 0);
    return [
      ...groups.filter((group) => group.state === "outage").map((group) => item("bad", "Events", `Consumer group “${group.name}” fails: ${group.error ?? "unknown"}.`, "#/events", "Events")),
      ...dead.map((group) => item("warn", "Dead letters", `${count(group.dead_letters)} in “${group.name}”.`, `#/events/dead-letters?group=${group.name}`, "View")),
      ...(many > 0 ? [item("warn", "Dead letters", `${refused.next_page ? "At least " : ""}${plural(many, "event")} refused on arrival.`, "#/events/dead-letters?group=collect", "View")] : []),
      ...pulls.filter((pull) => pull.failures > 0).map((pull) => item("warn", "Collector", `“${pull.name}” failed ${plural(pull.failures, "time")} in a row.`, "#/events", "Events")),
    ];
  }],
];

/** Differences between gateways that the overview names. */
const DRIFT_MAX = 3;

/** What is wrong with a sale. */
function saleTroubles(sale, balanced) {
  const found = [];
  const to = (tone, text) => found.push(item(tone, "Sale", `“${sale.title}” ${text}`, place(sale), "Open the sale"));
  if (sale.paused_at_ms) {
    to("bad", "is paused, because SQL has lost orders.");
  }
  if (stage(sale) === "live" && !sale.warmed_at_ms && sale.effective_state === "open") {
    to("bad", "has started but is not warm: no one can buy.");
  }
  if (balanced === false && sale.warmed_at_ms) {
    to("warn", "has operations in progress, or its stock does not add up. Check the stock balance.");
  }
  return found;
}

/** All sales, with live numbers for running sales. */
async function readSales() {
  const all = sorted(await api.sales());
  const running = all.filter((sale) => stage(sale) === "live").slice(0, LIVE_MAX);
  const live = await Promise.all(running.map((sale) => api.liveNow(sale.id).catch(() => null)));
  live.forEach((one, at) => {
    const { id } = running[at];
    if (one) {
      orders.set(id, orders.get(id) ?? new Samples(720));
      orders.get(id).add(Date.now(), { orders: Object.values(one.orders_by_state).reduce((sum, number) => sum + number, 0) });
    }
  });
  return { all, running, live, next: all.filter((sale) => stage(sale) === "upcoming").slice(0, NEXT_MAX) };
}

/** Payments that are due for refund. */
async function refunds() {
  const due = await api.refundsDue();
  const rows = due.map((payment) => [el("code", {}, payment.payment ?? payment.id), el("a", { href: `#/orders/${payment.order}` }, payment.order), payment.reason ?? ""]);
  return { due, elements: rows.length > 0 ? [el("h2", {}, "Refunds due"), table("due", ["Payment", "Order", "Reason"], rows, rows.map((_, at) => due[at].order))] : null };
}

/** Orders per second between two samples. */
function rates(samples) {
  const { all } = samples;
  return all.slice(1).map((one, at) => (1_000 * (one.orders - all[at].orders)) / (one.at_ms - all[at].at_ms));
}

function saleRow(sale, live) {
  const samples = orders.get(sale.id);
  const now = samples?.slope("orders", 30_000) ?? null;
  const units = live?.sale.warmed_at_ms ? { ...sale, remaining: live.sale.shards.reduce((sum, shard) => sum + (shard.stock ?? 0) + (shard.held ?? 0), 0) } : sale;
  const text = rate(now);
  return [
    el("a", { href: place(sale) }, sale.title),
    state(...saleStatus(units, live?.orders_by_state.unpaid ?? 0)),
    sold(units),
    stage(sale) === "live" ? el("span", {}, text, spark(samples ? rates(samples) : [], `Orders per second, now ${text}`)) : "",
    when(sale),
  ];
}

/** The sales that run and come next. */
function saleCard(desk, { all, running, live, next }) {
  const shown = [...running, ...next];
  const make = desk.may("sales:write") && el("a", { class: "button primary", href: "#/sales/new" }, "New sale");
  const rows = shown.map((sale, at) => saleRow(sale, live[at]));
  return [
    el("div", { class: "row apart" }, el("h2", {}, "Sales now and next"), el("a", { href: "#/sales" }, `All ${plural(all.length, "sale")}`)),
    shown.length > 0 ? table("now", ["Sale", "State", "Sold", "Orders per second", "When"], rows, shown.map((sale) => sale.id)) : empty("no-live", "No sale runs or comes next.", make),
  ];
}

/** Each chart: title, and its series as name, colour and member of the samples. */
const CHARTS = [
  ["Orders per second", [["Ordered", "c2", "orders"], ["Refused", "c4", "refused"]], "sales:read"],
  ["Clicks per second", [["Clicks", "c0", "clicks"]], "links:read"],
  ["Events per second", [["Accepted", "c0", "events"], ["Rejected", "c4", "rejected"]], "events:read"],
];

const SPANS = [["day", "Last 24 hours"], ["live", "Live"]];

function trafficCharts(desk) {
  const charts = CHARTS.filter(([, , scope]) => desk.may(scope)).map(([title, series]) => ({ series, chart: line(title, "line", rate) }));
  let span = "day";
  const show = async () => {
    await traffic.readPast().catch(() => null);
    for (const { series, chart } of charts) {
      chart.show(...traffic.chart(series, span === "live"));
    }
  };
  const chosen = segments("span", "Traffic", SPANS, async (value) => {
    span = value;
    await show();
    return true;
  });
  chosen.set(span);
  return { chosen: chosen.element, elements: charts.map(({ chart }) => el("section", { class: "card" }, chart.element)), show };
}

export async function overview(desk) {
  const [list, said] = [el("div", {}), el("div", {})];
  const due = el("section", { class: "card", id: "refunds", "aria-label": "Refunds due" });
  const sales = el("section", { class: "card", "aria-label": "Sales now and next" });
  const charts = desk.who.tenant ? { chosen: null, elements: [], show: () => {} } : trafficCharts(desk);
  const refused = desk.may("limits:read") && hourChart();
  let turn = 0;
  const checks = CHECKS.filter(([scope]) => !scope || desk.may(scope));
  const look = async () => {
    const found = [];
    const missing = [];
    if (desk.may("sales:read")) {
      try {
        const read = await readSales();
        refresh(sales, saleCard(desk, read));
        found.push(...read.all.flatMap((sale) => saleTroubles(sale, read.live[read.running.indexOf(sale)]?.sale.balanced)));
        const given = await refunds();
        refresh(due, given.elements);
        due.hidden = given.due.length === 0;
        if (given.due.length > 0) {
          found.push(item("warn", "Refunds due", `${plural(given.due.length, "payment")} to give back, listed below.`, `#/orders/${given.due[0].order}`, "Open the first"));
        }
        replace(said);
      } catch (error) {
        replace(said, complaint(error));
      }
    }
    const answers = await Promise.allSettled(checks.map(([, check]) => check()));
    for (const answer of answers) {
      if (answer.status === "fulfilled") {
        found.push(...answer.value);
      } else if (![403, 404].includes(answer.reason.status)) {
        missing.push(answer.reason.message);
      }
    }
    const fine = missing.length > 0 ? el("p", { class: "notice warn" }, `Not everything could be checked. ${missing[0]}`) : el("p", { class: "notice good" }, "Everything is fine.");
    refresh(list, found.length > 0 ? el("ul", { class: "attention" }, found) : fine, el("p", { class: "hint" }, `Checked at ${instant(Date.now())}.`));
    if (refused && turn % HOUR_TURNS === 0) {
      await refused.show().catch(() => null);
    }
    turn += 1;
    await charts.show();
  };
  await look();
  const timer = setInterval(() => document.hidden || look(), EVERY_MS);
  desk.onLeave(() => clearInterval(timer));
  return [
    "Overview",
    el("section", { class: "card", id: "attention", "aria-labelledby": "attention-title" }, el("h2", { id: "attention-title" }, "Needs attention"), list),
    said,
    desk.may("sales:read") && [sales, due],
    charts.chosen,
    el("div", { class: "columns" }, charts.elements, refused && el("section", { class: "card", "aria-label": "Rate limits" }, refused.element)),
  ];
}
