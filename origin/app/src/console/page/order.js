// One order: its data, its payments, the webhook deliveries, and its actions.

import { api } from "./api.js";
import { ask, button, complaint, copier, el, empty, fact, field, good, replace, state, table, working } from "./dom.js";
import { count, instant, money } from "./format.js";

const TONES = { paid: "good", unpaid: "warn" };

export const statusBadge = (order) => state(order.status, TONES[order.status]);

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

/** The actions on orders: what they do, what the other button keeps, and the question before. */
export const ACTIONS = {
  cancel: { deed: "Cancel", keep: "Keep", question: "The units return to stock. You cannot undo this." },
  refund: {
    deed: "Refund",
    keep: "Keep",
    question: "The units return to stock, and payments become due for refund. Weir does not transfer money. You cannot undo this.",
  },
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
    fact("Customer", el("a", { href: `#/users?user=${encodeURIComponent(order.user)}` }, order.user)),
    fact("Units", count(order.quantity)),
    order.sku && fact("SKU", order.sku),
    order.price && fact("Price", cost(order)),
    fact("Created", when(order.created_at_ms)),
    fact("Pay by", when(order.pay_by_ms)),
    fact("Paid", when(order.paid_at_ms)),
    fact("Ended", when(order.ended_at_ms)),
  );
}

/** The order's data from the buyer. */
function payload(order) {
  const isThere = order.payload !== null && order.payload !== undefined;
  return isThere && el("div", {}, el("h3", {}, "Order data"), el("pre", { id: "payload" }, JSON.stringify(order.payload, null, 2)));
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
    { class: "stack" },
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
    return "Marked as refunded.";
  });
  return el("form", { class: "give-back", onsubmit: note }, said,
    el("div", { class: "together" }, field(`Reference of the refund of ${payment.payment}`, reference, "Reference of your bank or provider. Optional."), submit));
}

/** A button that cancels or refunds the order, depending on its status. */
function action(desk, order, said, change) {
  const what = order.status === "paid" ? "refund" : "cancel";
  const { deed, question } = ACTIONS[what];
  const isOver = order.status === "cancelled" || order.status === "expired";
  if (isOver || !desk.may("sales:write")) {
    return null;
  }
  return button(`${deed} order`, { class: "danger", id: what }, said, async () => {
    if (!(await ask(`${deed} order ${order.order}?`, question, `${deed} order`, "Keep order"))) {
      return null;
    }
    const [{ verdict }] = await api.runOrderBatch(what, [order.order]);
    const isDone = verdict === "done" || verdict === "done_before";
    await change(isDone ? good(`${deed}: ${VERDICTS[verdict]}.`) : complaint(new Error(`The order is ${VERDICTS[verdict] ?? verdict}.`)));
    return null;
  });
}

/** The changes sent to receivers. */
function deliveries(order, said) {
  const shown = el("div", { id: "deliveries" });
  const look = button("Webhook deliveries", { id: "look-deliveries" }, said, async () => {
    const changes = await api.orderChanges(order.order);
    const rows = changes.map((change) => [String(change.sequence), change.type, instant(change.at_ms), change.cause ?? "–"]);
    replace(shown, rows.length > 0 ? table("changes", ["No.", "Change", "When", "Cause"], rows) : empty("no-changes", "No changes on record."));
    return null;
  });
  return [shown, look];
}

/** The card of an order. `change` shows it again, with the result of an action. */
function card(desk, order, result, change) {
  const said = el("div", { id: "order-said" }, result);
  const [changes, look] = deliveries(order, said);
  return el(
    "section",
    { class: "card", id: "order", "aria-labelledby": "order-title" },
    el("div", { class: "row apart" },
      el("div", { class: "row" }, el("h2", { id: "order-title", tabindex: "-1" }, order.order), copier(order.order)), statusBadge(order)),
    said,
    facts(order),
    payload(order),
    payments(desk, order, change),
    changes,
    el("div", { class: "row" }, look, action(desk, order, said, change)),
  );
}

export async function oneOrder(desk, id) {
  const shown = el("div", {});
  const show = async (result = null) => {
    replace(shown, card(desk, await api.order(id), result, show));
    // The button that was pressed is gone, and the result is next to the title.
    if (result) {
      shown.querySelector("h2").focus();
    }
  };
  const first = await api.order(id);
  replace(shown, card(desk, first, null, show));
  return ["Order", el("p", {}, el("a", { class: "back", href: `#/orders?sale=${first.sale}` }, "Orders of this sale")), shown];
}
