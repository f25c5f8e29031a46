// One sale: its data, live stock and orders, switch and balance check. stock.js changes its stock and end.

import { api } from "./api.js";
import { blocked } from "./blocked.js";
import { ask, button, complaint, el, fact, field, replace, select, state, table, working } from "./dom.js";
import { count, length, money, time } from "./format.js";
import { STATES, saleStatus } from "./sales.js";
import { stock } from "./stock.js";

/**
 * Actions on a sale. Each entry has `text`, `id` and `scope`. `when` returns whether the action is available,
 * `question` is an optional confirmation, and `work` runs the action and returns a message.
 */
const ACTIONS = [
  {
    text: "Warm",
    id: "warm",
    scope: "sales:write",
    when: (sale) => !sale.archived_at_ms,
    work: async (sale) => {
      const warmed = await api.warm(sale.id);
      return `Warm: loaded ${warmed.shards_filled} of ${warmed.shard_count} shards just now.`;
    },
  },
  {
    text: "Close",
    id: "close",
    scope: "sales:write",
    when: (sale) => sale.state !== "closed" && !sale.archived_at_ms,
    question: "No one can buy any more. Existing orders stay.",
    work: async (sale) => {
      await api.switchTo(sale.id, { state: "closed" });
      return "Closed.";
    },
  },
];

/** The buttons of a sale, in `row`. Existing buttons are not replaced, so that they keep the focus. */
function showActions(row, desk, sale, said) {
  const usable = ACTIONS.filter((action) => desk.may(action.scope) && action.when(sale));
  const ids = usable.map((action) => action.id).join(" ");
  if (row.dataset.ids === ids) {
    return;
  }
  row.dataset.ids = ids;
  const buttons = usable.map((action) =>
    button(action.text, { id: action.id, class: action.question ? "danger" : "" }, said, async () => {
      if (action.question && !(await ask(`${action.text} “${sale.title}”?`, action.question, action.text))) {
        return null;
      }
      return action.work(sale);
    }),
  );
  replace(row, buttons);
}

const tile = (name, id) => el("div", { class: "tile" }, el("dt", {}, name), el("dd", { id }, "–"));

/** Shows stock, orders and shards, every second. `show` is called with the sale. */
function live(desk, id, show) {
  const names = [
    ["In stock", "stock"], ["Held", "held"], ["Unpaid", "unpaid"], ["Paid", "paid"], ["Cancelled", "cancelled"], ["Expired", "expired"],
  ];
  const tiles = el("dl", { class: "tiles" }, names.map(([text, key]) => tile(text, `live-${key}`)));
  const [shards, answered] = [el("div", {}), el("div", {})];
  const said = el("p", { class: "hint", id: "live-said" }, "Connecting …");
  const card = el("section", { class: "card", "aria-labelledby": "live-title" }, el("h2", { id: "live-title" }, "Now"), tiles, said, shards, answered);
  const source = api.live(id);
  desk.onLeave(() => source.close());
  source.addEventListener("message", (event) => {
    const { sale, orders_by_state, verdicts } = JSON.parse(event.data);
    show(sale);
    const sum = (key) => sale.shards.reduce((all, shard) => all + (shard[key] ?? 0), 0);
    const numbers = { stock: sum("stock"), held: sum("held"), ...orders_by_state };
    for (const [, key] of names) {
      card.querySelector(`#live-${key}`).textContent = count(numbers[key]);
    }
    said.textContent = sale.warmed_at_ms ? (sale.balanced ? "Stock, held and ordered units add up to the total." : "Orders are in progress, or the sum is off: run the balance check.") : "Not warm: Redis has no stock of this sale.";
    replace(shards, shardList(sale));
    replace(answered, verdictList(verdicts));
  });
  source.addEventListener("problem", (event) => {
    said.textContent = JSON.parse(event.data).detail;
  });
  source.addEventListener("error", () => {
    said.textContent = "Connecting …";
  });
  return card;
}

/** The gateways' answers in the last minutes, the most frequent first. */
function verdictList({ minutes, decided, shadow }) {
  const words = [...new Set([...Object.keys(decided), ...Object.keys(shadow)])];
  const title = el("h3", {}, `Gateway decisions in the last ${minutes} minutes`);
  if (words.length === 0) {
    const wanted = el("code", {}, "report");
    return [title, el("p", { class: "hint", id: "no-verdicts" }, "None. Gateways report them with ", wanted, " in the gate's configuration.")];
  }
  const sum = (word) => (decided[word] ?? 0) + (shadow[word] ?? 0);
  words.sort((one, other) => sum(other) - sum(one));
  const rows = words.map((word) => [el("code", {}, word), count(decided[word] ?? 0), count(shadow[word] ?? 0)]);
  return [title, table("verdicts", ["Outcome", "Requests", "Dry run"], rows)];
}

function shardList(sale) {
  if (sale.shards.length < 2) {
    return null;
  }
  const rows = sale.shards.map((shard, n) => [String(n), count(shard.stock), count(shard.held), count(shard.bought)]);
  const isOpen = document.getElementById("shards")?.open ?? false;
  const list = table("shard-list", ["Shard", "Stock", "Held", "Ordered"], rows);
  return el("details", { id: "shards", open: isOpen }, el("summary", {}, "Shards"), list);
}

/** The form for the switch and for degraded modes. */
function switches(desk, sale, said) {
  const isFixed = !desk.may("sales:write");
  const chosen = select(Object.entries(STATES), sale.state, { name: "state", disabled: isFixed });
  const names = [
    ["skip_risk", "Without risk checks"], ["skip_reservation", "Without reservations"], ["static_page", "Static page"],
  ];
  const boxes = names.map(([key]) => el("input", { type: "checkbox", name: key, checked: sale.degrade[key], disabled: isFixed }));
  const submit = el("button", { type: "submit", disabled: isFixed }, "Switch");
  const change = working(submit, said, async () => {
    const degrade = Object.fromEntries(boxes.map((box) => [box.name, box.checked]));
    const now = await api.switchTo(sale.id, { state: chosen.value, degrade });
    return `Switched: ${STATES[now.state]}.`;
  });
  return el(
    "form",
    { class: "card", id: "switch", onsubmit: change },
    el("h2", {}, "Switch"),
    field("State", chosen, "Shadow is a dry run: everyone passes, and decisions are only recorded. Drain accepts no new claims, but orders for open claims."),
    el("fieldset", {}, el("legend", {}, "Degraded"), names.map(([, text], at) => el("label", { class: "choice" }, boxes[at], text))),
    el("div", { class: "row" }, submit),
  );
}

/** The balance check: each term of the sum. `outdated` removes the result. */
function books(sale) {
  const shown = el("div", { id: "books" });
  const said = el("div", {});
  const look = button("Run the balance check", { id: "read-books" }, said, async () => {
    const read = await api.audit(sale.id);
    const terms = read.terms ?? {};
    const row = ["stock", "transfers", "claims", "orders", "total", "drift"].map((key) => fact(key, count(terms[key])));
    const verdict = read.terms ? (read.balanced ? "Balanced" : "Not balanced") : "Unknown: a shard is cold";
    const exact = read.exact ? "All values are from the same moment." : "Operations were in progress, so the sum may be off.";
    replace(shown, el("p", {}, state(verdict, read.balanced === true), " ", exact), el("dl", { class: "facts" }, row));
    return null;
  });
  const element = el(
    "section",
    { class: "card", "aria-labelledby": "books-title" },
    el("h2", { id: "books-title" }, "Balance check"),
    el("p", { class: "hint" }, "stock + transfers + claims + orders = total + drift"),
    said,
    shown,
    el("div", { class: "row" }, look),
  );
  return { element, outdated: () => replace(shown) };
}

const PAYMENTS = { at_order: "when ordered", at_payment: "when paid" };

function challenge(wanted) {
  if (!wanted) {
    return "nothing";
  }
  return wanted.proof_of_work ? `proof of work, ${wanted.proof_of_work.bits} bits` : "a captcha";
}

function facts(sale) {
  const held = sale.payment.hold;
  const payment = held ? `when ordered, held ${length(held.pay_within_ms)} for payment` : PAYMENTS[sale.payment];
  return el(
    "dl",
    { class: "facts" },
    fact("Id", el("code", {}, sale.id)),
    fact("Starts", time(sale.starts_at_ms)),
    fact("Ends", time(sale.ends_at_ms)),
    sale.sku && fact("Called", sale.sku),
    sale.price && fact("Price per unit", money(sale.price.unit_amount, sale.price.currency)),
    fact("Units", count(sale.total)),
    fact("Limit per user", count(sale.user_cap)),
    fact("Shards", count(sale.shard_count)),
    fact("Units are deducted", payment),
    fact("Warmed", time(sale.warmed_at_ms)),
    fact("Order token", sale.token ? "needed" : "not needed"),
    fact("Challenge", challenge(sale.challenge)),
    fact("Group", sale.group ? `${sale.group.id}, ${count(sale.group.user_cap)} units per user` : "none"),
  );
}

export async function sale(desk, id) {
  const found = await api.sale(id);
  const said = el("div", { id: "said" });
  const [badge, row, known] = [el("span", { id: "sale-status" }), el("div", { class: "row", id: "actions" }), el("div", {})];
  const show = (now) => {
    replace(badge, state(...saleStatus(now)));
    showActions(row, desk, now, said);
    replace(known, facts(now));
  };
  show(found);
  const read = books(found);
  return [
    found.title,
    el("p", {}, el("a", { class: "back", href: "#/sales" }, "Sales")),
    el(
      "section",
      { class: "card", "aria-label": "Details" },
      el("div", { class: "row apart" }, badge, row),
      said,
      known,
      el("p", {}, el("a", { id: "orders-of", href: `#/orders?sale=${found.id}` }, "Orders")),
    ),
    live(desk, found.id, show),
    await stock(desk, found, read.outdated),
    el("div", { class: "columns" }, switches(desk, found, said), el("div", {}, read.element, desk.may("sales:write") && !found.archived_at_ms && blocked(found))),
  ];
}
