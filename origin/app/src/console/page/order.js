// One order: its data, its payments, the changes sent to receivers, and its actions.

import { api } from "./api.js";
import { ask, button, complaint, el, fact, good, field, replace, state, table, working } from "./dom.js";
import { count, instant, money } from "./format.js";

export const statusBadge = (order) =>
  order.status === "unpaid" ? el("span", { class: "state" }, order.status) : state(order.status, order.status === "paid");

/** Texts for the origin's results. */
export const VERDICTS = {
  done: "done",
  done_before: "already done",
  order_paid: "paid; refund it instead",
  order_not_paid: "not paid; cancel it instead",
  order_expired: "expired",
  unknown_order: "unknown",
  try_again: "not done; try again",
};

/** Questions before an action on orders. */
export const QUESTIONS = {
  cancel: "The units return to stock. You cannot undo this.",
  refund: "The units return to stock, and payments become due for refund. Weir does not transfer money. You cannot undo this.",
};

const when = (ms) => (ms === null || ms === undefined ? "–" : instant(ms));

/** The order's price, and the unit price if the order has several units. */
function cost(order) {
  const { amount, unit_amount, currency } = order.price;
  return order.quantity === 1 ? money(amount, currency) : `${money(amount, currency)} (${money(unit_amount, currency)} each)`;
}

function facts(order) {
  return el(
    "dl",
    { class: "facts" },
    fact("Sale", el("a", { href: `#/sales/id/${order.sale}` }, order.sale)),
    fact("User", order.user),
    fact("Units", count(order.quantity)),
    order.sku && fact("Called", order.sku),
    order.price && fact("Costs", cost(order)),
    fact("Made", when(order.created_at_ms)),
    fact("Pay by", when(order.pay_by_ms)),
    fact("Paid", when(order.paid_at_ms)),
    fact("Ended", when(order.ended_at_ms)),
  );
}

/** The buyer's data. */
function payload(order) {
  const isThere = order.payload !== null && order.payload !== undefined;
  return isThere && el("div", {}, el("h3", {}, "Buyer's data"), el("pre", { id: "payload" }, JSON.stringify(order.payload, null, 2)));
}

/** The order's payments. A payment that is due for refund has a form to mark it as refunded. */
function payments(desk, order, change) {
  if (order.payments.length === 0) {
    return null;
  }
  const row = (payment) => [el("code", {}, payment.payment), payment.state, payment.reason ?? "–", payment.reference ?? "–"];
  const due = order.payments.filter((payment) => payment.state === "refund_due" && desk.may("sales:write"));
  return el(
    "div",
    {},
    el("h3", {}, "Payments"),
    table("payments", ["Payment", "State", "Reason", "Reference"], order.payments.map(row)),
    due.map((payment) => givenBack(payment, change)),
  );
}

function givenBack(payment, change) {
  const reference = el("input", { name: "reference", autocomplete: "off", maxlength: 200 });
  const said = el("div", {});
  const submit = el("button", { type: "submit" }, "Mark as refunded");
  const note = working(submit, said, async () => {
    await api.gaveBack(payment.payment, reference.value ? { reference: reference.value } : {});
    await change();
    return null;
  });
  return el("form", { class: "give-back", onsubmit: note }, said,
    el("div", { class: "together" }, field(`Reference of the refund of ${payment.payment}`, reference, "Reference of your bank or provider. Optional."), submit));
}

/** A button that cancels or refunds the order, depending on its status. */
function action(desk, order, said, change) {
  const [text, what] = order.status === "paid" ? ["Refund", "refund"] : ["Cancel", "cancel"];
  const isOver = order.status === "cancelled" || order.status === "expired";
  if (isOver || !desk.may("sales:write")) {
    return null;
  }
  return button(`${text} this order`, { class: "danger", id: what }, said, async () => {
    if (!(await ask(`${text} ${order.order}?`, QUESTIONS[what], text))) {
      return null;
    }
    const [{ verdict }] = await api.runOrderBatch(what, [order.order]);
    const told = `The order is ${VERDICTS[verdict] ?? verdict}.`;
    const isDone = verdict === "done" || verdict === "done_before";
    await change(isDone ? good(`${text}: ${VERDICTS[verdict]}.`) : complaint(new Error(told)));
    return null;
  });
}

/** The changes sent to receivers. */
function told(order, said) {
  const shown = el("div", { id: "told" });
  const look = button("Changes sent to receivers", { id: "tell" }, said, async () => {
    const changes = await api.orderChanges(order.order);
    const rows = changes.map((change) => [String(change.sequence), change.type, instant(change.at_ms), change.cause ?? "–"]);
    replace(shown, rows.length > 0 ? table("changes", ["No.", "Change", "When", "Cause"], rows) : el("p", { class: "hint" }, "No changes on record."));
    return null;
  });
  return [shown, look];
}

/** The card of an order. `change` shows it again. */
export function card(desk, order, change) {
  const said = el("div", { id: "order-said" });
  const [changes, look] = told(order, said);
  return el(
    "section",
    { class: "card", id: "order", "aria-labelledby": "order-title" },
    el("div", { class: "row apart" }, el("h2", { id: "order-title", tabindex: "-1" }, order.order), statusBadge(order)),
    said,
    facts(order),
    payload(order),
    payments(desk, order, change),
    changes,
    el("div", { class: "row" }, look, action(desk, order, said, change)),
  );
}
