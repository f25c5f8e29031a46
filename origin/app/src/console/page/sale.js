// One sale: its live numbers and charts, its switch, stock, settings, balance check and activity.

import { api } from "./api.js";
import { trailOf } from "./audit.js";
import { blocked } from "./blocked.js";
import { Samples, columns, line } from "./charts.js";
import { ask, button, el, fact, follow, refresh, replace, segments, state, table, tabs, tile, toast, working } from "./dom.js";
import { count, instant, length, money, rate, share, time } from "./format.js";
import { moneyOf } from "./money.js";
import { STATES, place, saleStatus, stage, when } from "./sales.js";
import { stock } from "./stock.js";

/** What to ask before the switch of a sale changes: a text, the action, and the button that keeps the old state. */
const QUESTIONS = {
  open: (left) => [`Buyers can buy at once. ${left}`, "Open sale"],
  shadow: (left) => [`Everyone passes, and decisions are only recorded: nothing holds back requests. ${left}`, "Switch to shadow"],
  drain: (left) => [`No new buyers; buyers already holding a unit can finish. ${left}`, "Drain sale"],
  closed: (left) => [`Buying stops at once. Existing orders are kept. ${left}`, "Close sale"],
};

const sum = (sale, key) => sale.shards.reduce((all, shard) => all + (shard[key] ?? 0), 0);

/** A verdict as words: `cap_reached` is `Cap reached`. */
const words = (verdict) => verdict.charAt(0).toUpperCase() + verdict.slice(1).replaceAll("_", " ");

/** Colours of the most frequent verdicts; the others share one. */
const COLOURS = { granted: "c2", granted_again: "c1", sold_out: "c6", all_reserved: "c5", cap_reached: "c3", rate_limited: "c4" };

/** The switch of a sale, and the button that warms it. `update` follows the sale. */
function control(desk, sale, said) {
  let now = sale;
  const isFixed = !desk.may("sales:write") || Boolean(sale.archived_at_ms);
  const choose = async (to) => {
    const isQuiet = to === "open" && stage(now) !== "live";
    const before = now.state;
    const left = `${count(now.remaining)} of ${count(now.total)} units are not sold.`;
    const [text, deed] = QUESTIONS[to](left);
    if (!isQuiet && !(await ask(`${deed} “${now.title}”?`, text, deed, `Keep sale ${STATES[now.state].toLowerCase()}`))) {
      return false;
    }
    try {
      // Only what was chosen: colleagues may have changed the rest meanwhile.
      update({ ...now, ...(await api.switchTo(now.id, { state: to })) });
      replace(said);
      // Undone by the same control, which asks again if that floods or stops the sale.
      toast(`“${now.title}” is switched to ${STATES[to]}.`, async () => {
        if (await choose(before)) {
          chosen.set(before);
        }
      });
      return true;
    } catch (error) {
      replace(said, el("p", { class: "notice bad", role: "alert" }, error.message));
      return false;
    }
  };
  const chosen = segments("state", "State", Object.entries(STATES), choose, isFixed);
  const [badge, note, left] = [el("span", { id: "sale-status" }), el("span", { class: "hint" }), el("span", {})];
  const warm = desk.may("sales:write") && button("Warm", { id: "warm" }, said, async () => {
    const warmed = await api.warm(sale.id);
    return `Warm: loaded ${warmed.shards_filled} of ${warmed.shard_count} shards just now.`;
  });
  const update = (sale, unpaid = 0) => {
    now = sale;
    chosen.set(sale.state);
    refresh(badge, state(...saleStatus(sale, unpaid)));
    refresh(left, sale.archived_at_ms ? "" : when(sale));
    note.textContent = sale.state !== sale.effective_state ? `All sales are switched to at least ${STATES[sale.effective_state]}.` : "";
    if (warm) {
      warm.hidden = Boolean(sale.archived_at_ms);
    }
  };
  update(sale);
  const element = el("section", { class: "card", "aria-label": "State", id: "switch" },
    el("div", { class: "row apart" }, el("div", { class: "row" }, badge, left, note), el("div", { class: "row low", id: "actions" }, chosen.element, warm)),
    said);
  return { element, update };
}

/** Decisions per second by verdict, from the gateways' counts of the last minutes. */
class Decisions {
  constructor() {
    this.samples = new Samples();
    this.steps = [];
    this.sums = new Map();
    this.before = null;
  }

  add(now, decided) {
    const before = this.before;
    this.before = { now, decided };
    const minute = (ms) => Math.floor(ms / 60_000);
    const isLess = before && Object.entries(before.decided).some(([verdict, sum]) => (decided[verdict] ?? 0) < sum);
    // When the oldest minute leaves the counts, they do not show how many are new.
    if (!before || isLess || minute(before.now) !== minute(now)) {
      return;
    }
    const step = Object.fromEntries(Object.entries(decided).map(([verdict, sum]) => [verdict, sum - (before.decided[verdict] ?? 0)]));
    this.steps.push({ seconds: (now - before.now) / 1_000, step });
    this.steps.splice(0, this.steps.length - 5);
    const seconds = this.steps.reduce((all, one) => all + one.seconds, 0);
    const rates = {};
    for (const { step: counted } of this.steps) {
      for (const [verdict, sum] of Object.entries(counted)) {
        rates[verdict] = (rates[verdict] ?? 0) + sum / seconds;
        this.sums.set(verdict, (this.sums.get(verdict) ?? 0) + sum);
      }
    }
    this.samples.add(now, rates);
  }

  series() {
    const known = Object.keys(COLOURS).filter((verdict) => this.sums.get(verdict) > 0);
    const others = [...this.sums.keys()].filter((verdict) => !(verdict in COLOURS) && this.sums.get(verdict) > 0);
    const zero = (points) => points.map(([ms, value]) => [ms, value ?? 0]);
    const series = known.map((verdict) => ({ name: words(verdict), colour: COLOURS[verdict], points: zero(this.samples.points(verdict)) }));
    if (others.length > 0 || series.length === 0) {
      const all = others.map((verdict) => zero(this.samples.points(verdict)));
      const points = this.samples.points("").map(([ms], at) => [ms, all.reduce((total, one) => total + one[at][1], 0)]);
      series.push({ name: others.length > 0 ? "Other" : "Decisions", colour: "c0", points });
    }
    return series;
  }
}

/** Live numbers and charts, every second. `show` is called with the sale and its number of unpaid orders. */
function live(desk, found, show) {
  const units = el("dl", { class: "tiles", "aria-label": "Units" });
  const orders = el("dl", { class: "tiles", "aria-label": "Orders" });
  const [shards, answered] = [el("div", {}), el("div", {})];
  const said = el("p", { class: "hint", id: "live-said" }, "Connecting …");
  const [samples, decisions] = [new Samples(), new Decisions()];
  const stockChart = line("Units over time", "area");
  const rateChart = line("Gateway decisions per second", "area", rate);
  const opened = Date.now();
  const since = () => `Since you opened this page, ${length(Date.now() - opened)} ago.`;
  const source = api.live(found.id);
  desk.onLeave(() => source.close());
  source.addEventListener("message", (event) => {
    const { sale, orders_by_state, verdicts } = JSON.parse(event.data);
    const now = { stock: sum(sale, "stock"), held: sum(sale, "held"), bought: sum(sale, "bought") };
    samples.add(Date.now(), now);
    decisions.add(Date.now(), verdicts.decided);
    show({ ...sale, remaining: sale.warmed_at_ms ? now.stock + now.held : sale.remaining }, orders_by_state.unpaid);
    refresh(units, unitTiles(sale, now, samples));
    refresh(orders, orderTiles(sale, orders_by_state, now));
    said.textContent = balance(sale);
    refresh(shards, shardBars(sale));
    refresh(answered, verdictList(verdicts));
    stockChart.show([["Ordered", "c0", "bought"], ["Held", "c3", "held"], ["In stock", "c2", "stock"]]
      .map(([name, colour, member]) => ({ name, colour, points: samples.points(member) })), since());
    rateChart.show(decisions.series(), since());
  });
  source.addEventListener("problem", (event) => {
    said.textContent = JSON.parse(event.data).detail;
  });
  source.addEventListener("error", () => {
    said.textContent = "Connecting …";
  });
  return [
    el("section", { class: "card", "aria-labelledby": "live-title" }, el("h2", { id: "live-title" }, "Now"), el("h3", {}, "Units"), units, el("h3", {}, "Orders"), orders, said),
    el("div", { class: "columns" }, el("section", { class: "card" }, stockChart.element), el("section", { class: "card" }, rateChart.element)),
    shards,
    el("section", { class: "card" }, answered),
  ];
}

function balance(sale) {
  if (!sale.warmed_at_ms) {
    return "Not warm: Redis has no stock of this sale.";
  }
  return sale.balanced ? "Units in stock, held and ordered add up to the total." : "Orders are in progress, or the sum is off: check the stock balance.";
}

function unitTiles(sale, now, samples) {
  const slope = samples.slope("stock");
  const left = slope < 0 && now.stock > 0 ? `sold out in about ${length((1_000 * now.stock) / -slope)} at this rate` : null;
  return [
    tile("In stock", count(now.stock), { id: "live-stock" }, left),
    tile("Held", count(now.held), { id: "live-held" }),
    tile("Ordered", count(now.bought), { id: "live-bought" }, share(now.bought, sale.total)),
    tile("Total", count(sale.total)),
  ];
}

function orderTiles(sale, by, now) {
  const all = by.unpaid + by.paid + by.cancelled + by.expired;
  const one = (name, key, small) => tile(name, count(by[key]), { id: `live-${key}` }, small);
  return [
    one("Unpaid", "unpaid"),
    one("Paid", "paid", all > 0 ? `${share(by.paid, all)} of orders` : null),
    one("Cancelled", "cancelled"),
    one("Expired", "expired"),
    sale.price && tile("Value of ordered units", money(sale.price.unit_amount * now.bought, sale.price.currency), {}, null, "money"),
  ];
}

/** Gateway decisions of the last minutes, the most frequent first. */
function verdictList({ minutes, decided, shadow }) {
  const names = [...new Set([...Object.keys(decided), ...Object.keys(shadow)])];
  const title = el("h2", {}, `Gateway decisions, last ${minutes} minutes`);
  if (names.length === 0) {
    return [title, el("p", { class: "hint", id: "no-verdicts" }, "No data yet. Turn on ", el("code", {}, "report"), " in the gate’s configuration.")];
  }
  const both = (verdict) => (decided[verdict] ?? 0) + (shadow[verdict] ?? 0);
  names.sort((one, other) => both(other) - both(one));
  const rows = names.map((verdict) => [el("span", { title: verdict }, words(verdict)), count(decided[verdict] ?? 0), count(shadow[verdict] ?? 0)]);
  return [title, table("verdicts", ["Outcome", "#Requests", "#Dry run (not enforced)"], rows, names)];
}

function shardBars(sale) {
  if (sale.shards.length < 2) {
    return null;
  }
  const of = sale.total / sale.shards.length;
  const bars = sale.shards.map((shard, n) => ({ name: String(n), value: shard.stock, of: Math.max(of, shard.stock ?? 0) }));
  const rows = sale.shards.map((shard, n) => [String(n), count(shard.stock), count(shard.held), count(shard.bought)]);
  const list = table("shard-list", ["Shard", "#Stock", "#Held", "#Ordered"], rows, rows.map(([n]) => n));
  return el("section", { class: "card" }, el("h2", {}, "Stock by shard"), columns("Units in stock by shard", bars),
    el("details", { id: "shards" }, el("summary", {}, "As a table"), list));
}

const FALLBACKS = [["skip_risk", "Skip risk checks"], ["skip_reservation", "Skip reservations"], ["static_page", "Serve static page"]];

/** The form for fallbacks. `update` follows the sale. */
function fallbacks(desk, sale) {
  const isFixed = !desk.may("sales:write");
  const of = Object.fromEntries(FALLBACKS.map(([key]) => [key, el("input", { type: "checkbox", name: key, disabled: isFixed })]));
  const texts = Object.fromEntries(FALLBACKS);
  const [said, note] = [el("div", {}), el("div", {})];
  const followed = follow(of, note, (key) => texts[key]);
  const submit = el("button", { type: "submit", disabled: isFixed }, "Save fallbacks");
  const change = working(submit, said, async () => {
    const changed = followed.changed();
    if (changed.length === 0) {
      return "Nothing is changed.";
    }
    const list = changed.map((key) => `${texts[key]}: ${of[key].checked ? "on" : "off"}`).join(", ");
    if (stage(sale) === "live" && !(await ask(`Change fallbacks of “${sale.title}”?`, `${list}. The sale is live.`, "Change fallbacks", "Keep as they are"))) {
      return null;
    }
    const now = await api.switchTo(sale.id, { degrade: Object.fromEntries(changed.map((key) => [key, of[key].checked])) });
    followed.update(now.degrade, true);
    return `Saved. ${list}.`;
  });
  const update = (now) => followed.update(Object.fromEntries(FALLBACKS.map(([key]) => [key, now.degrade[key]])));
  update(sale);
  const element = el("form", { class: "card", id: "fallbacks", onsubmit: change }, el("h2", {}, "Fallbacks"),
    el("p", { class: "hint" }, "For when a part of your shop is down."), note, said,
    el("fieldset", {}, el("legend", { class: "unseen" }, "Fallbacks"), el("div", { class: "choices" }, FALLBACKS.map(([key, text]) => el("label", {}, of[key], text)))),
    el("div", { class: "row" }, submit));
  return { element, update };
}

/** The balance check: each term of the sum. `outdated` removes the result. */
function books(sale) {
  const shown = el("div", { id: "books" });
  const said = el("div", {});
  const look = button("Check stock balance", { id: "read-books" }, said, async () => {
    const read = await api.audit(sale.id);
    const terms = read.terms ?? {};
    const row = ["stock", "transfers", "claims", "orders", "total", "drift"].map((key) => fact(key, count(terms[key])));
    const verdict = read.terms ? (read.balanced ? state("Balanced", "good") : state("Not balanced", "bad")) : state("Unknown: a shard is cold", "warn");
    const exact = read.exact ? "Consistent snapshot" : "Operations were in progress, so the sum may be off";
    replace(shown, el("p", {}, verdict, ` ${exact}, read at ${instant(Date.now())}.`), el("dl", { class: "facts" }, row));
    return null;
  });
  const element = el(
    "section",
    { class: "card stack", "aria-labelledby": "books-title" },
    el("h2", { id: "books-title" }, "Stock balance"),
    el("p", { class: "hint" }, "stock + transfers + claims + orders = total + drift"),
    said,
    shown,
    el("div", { class: "row" }, look),
  );
  return { element, outdated: () => replace(shown) };
}

const PAYMENTS = { at_order: "on order", at_payment: "on payment" };

function challenge(wanted) {
  if (!wanted) {
    return "none";
  }
  return wanted.proof_of_work ? `proof of work, ${wanted.proof_of_work.bits} bits` : "a captcha";
}

function facts(sale) {
  const held = sale.payment.hold;
  const { reservation, draw, group, price } = sale;
  return el(
    "dl",
    { class: "facts" },
    fact("Id", el("code", {}, sale.id)),
    fact("Starts", time(sale.starts_at_ms)),
    fact("Ends", time(sale.ends_at_ms)),
    sale.sku && fact("SKU", sale.sku),
    price && fact("Price per unit", money(price.unit_amount, price.currency)),
    fact("Units", count(sale.total)),
    fact("Limit per customer", count(sale.user_cap)),
    fact("Shown in the shop’s list", sale.listed ? "yes" : "no"),
    fact("Stock reserved", held ? `on order, held ${length(held.pay_within_ms)} for payment` : PAYMENTS[sale.payment]),
    fact("Reservations", reservation ? `${time(reservation.from_ms)} to ${time(reservation.until_ms)}` : "none"),
    draw && fact("Draw", `${count(draw.winners)} winners`),
    fact("Order token", sale.token ? "required" : "not required"),
    fact("Challenge", challenge(sale.challenge)),
    fact("Group", group ? `${group.id}, ${count(group.user_cap)} units per customer` : "none"),
    fact("Shards", count(sale.shard_count)),
    fact("Warmed", time(sale.warmed_at_ms)),
  );
}

/** The settings, and what can be done with them. */
function settings(desk, found) {
  const [known, said] = [el("div", {}), el("div", {})];
  let sale = found;
  const list = button("", { id: "list-sale" }, said, async () => {
    const set = async (listed) => update({ ...sale, ...(await api.change(sale.id, { listed })) });
    await set(!sale.listed);
    const text = sale.listed ? "The shop’s list shows this sale." : "The shop’s list no longer shows this sale.";
    return [text, () => set(!sale.listed)];
  });
  const update = (now) => {
    sale = now;
    refresh(known, facts(now));
    list.textContent = now.listed ? "Remove from the shop’s list" : "Show in the shop’s list";
  };
  update(found);
  const mayChange = desk.may("sales:write") && !found.archived_at_ms;
  const element = el("section", { class: "card", "aria-label": "Settings" }, known, said,
    desk.may("sales:write") && el("div", { class: "row" }, mayChange && list, el("a", { class: "button", href: `#/sales/new/${found.id}`, id: "copy-sale" }, "Copy this sale")));
  return { element, update };
}

export async function sale(desk, id, tab) {
  const found = await api.sale(id);
  const said = el("div", { id: "said" });
  const mayChange = desk.may("sales:write") && !found.archived_at_ms;
  const [head, read, more, degraded] = [control(desk, found, said), books(found), settings(desk, found), fallbacks(desk, found)];
  const stocked = await stock(desk, found, read.outdated);
  const now = live(desk, found, (sale, unpaid) => {
    head.update(sale, unpaid);
    for (const part of [more, degraded, stocked]) {
      part.update(sale);
    }
  });
  const activity = desk.may("access:read") && trailOf(desk, `/sales/${found.id}`);
  return [
    found.title,
    el("p", { class: "row" }, el("a", { class: "back", href: "#/sales" }, "Sales"), el("a", { id: "orders-of", href: `#/orders?sale=${found.id}` }, "View orders")),
    head.element,
    ...tabs((id) => (id ? `${place(found)}/${id}` : place(found)), [
      ["live", "Live", now],
      ["money", "Money", moneyOf(desk, found)],
      ["stock", "Stock and end", [stocked.element, mayChange && blocked(found)]],
      ["settings", "Settings", [more.element, degraded.element]],
      ["balance", "Balance", read.element],
      ["activity", "Activity", activity],
    ], tab),
  ];
}
