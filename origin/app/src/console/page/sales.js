// The list of sales, the switch for all of them, and due refunds.

import { api } from "./api.js";
import { ask, complaint, el, field, replace, select, state, table, working } from "./dom.js";
import { count, time } from "./format.js";

export const STATES = { open: "Open", shadow: "Shadow", drain: "Drain", closed: "Closed" };

export const place = (sale) => `#/sales/id/${sale.id}`;

/** A sale's status, from its switch, its period and whether it is warm: a label, and whether it is good. */
export function saleStatus(sale, now = Date.now()) {
  if (sale.archived_at_ms) {
    return ["Archived", false];
  }
  if (sale.effective_state !== "open") {
    return [STATES[sale.effective_state] ?? sale.effective_state, false];
  }
  if (now >= sale.ends_at_ms) {
    return ["Over", false];
  }
  if (!sale.warmed_at_ms) {
    return ["Not warm", false];
  }
  return now < sale.starts_at_ms ? ["Ready", true] : ["On sale", true];
}

function row(sale) {
  return [
    el("a", { href: place(sale) }, sale.title),
    el("code", {}, sale.id),
    time(sale.starts_at_ms),
    time(sale.ends_at_ms),
    `${count(sale.remaining)} of ${count(sale.total)}`,
    state(...saleStatus(sale)),
  ];
}

export async function sales(desk) {
  // Only platform keys may use the switch for all sales.
  const isTenants = Boolean(desk.who.tenant);
  const [all, global] = await Promise.all([api.sales(), isTenants ? null : api.globalSwitch()]);
  const heads = ["Sale", "Id", "Starts", "Ends", "Remaining", "State"];
  const list = all.length > 0 ? table("sales", heads, all.map(row)) : el("p", { class: "hint", id: "none" }, "No sales yet.");
  const make = desk.may("sales:write") && el("a", { class: "button primary", href: "#/sales/new" }, "New sale");
  return [
    "Sales",
    el("section", { class: "card", "aria-label": "All sales" }, el("div", { class: "row end" }, make), list),
    global && globalSwitch(desk, global.state),
    await refunds(),
  ];
}

/** The switch for all sales, for emergencies. */
function globalSwitch(desk, now) {
  const said = el("div", {});
  const chosen = select(Object.entries(STATES), now, { name: "global", disabled: !desk.may("sales:write") });
  const button = el("button", { type: "submit", disabled: !desk.may("sales:write") }, "Switch all");
  const change = working(button, said, async () => {
    const word = STATES[chosen.value];
    if (!(await ask("Switch all sales?", `All sales switch to at least: ${word}.`, "Switch all"))) {
      return null;
    }
    await api.setGlobalSwitch(chosen.value);
    return `All sales are at least: ${word}.`;
  });
  return el(
    "form",
    { class: "card", id: "global", onsubmit: change },
    el("h2", {}, "All sales"),
    said,
    el("div", { class: "together" }, field("Switch", chosen, "A sale uses the stricter of this and its own switch."), button),
  );
}

/** Payments that are due for refund. */
async function refunds() {
  const card = el("section", { class: "card", id: "refunds", "aria-labelledby": "refunds-title" });
  const title = el("h2", { id: "refunds-title" }, "Refunds due");
  try {
    const due = await api.refundsDue();
    const rows = due.map((payment) => [el("code", {}, payment.payment ?? payment.id), el("code", {}, payment.order), payment.reason ?? ""]);
    replace(card, title, due.length > 0 ? table("due", ["Payment", "Order", "Reason"], rows) : el("p", { class: "hint" }, "None."));
  } catch (error) {
    replace(card, title, complaint(error));
  }
  return card;
}
