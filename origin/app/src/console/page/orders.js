// Orders: search by sale, user or ID, and cancel or refund one or many.

import { api } from "./api.js";
import { ask, button, complaint, el, field, replace, select, table, working } from "./dom.js";
import { atMinute, count, instant } from "./format.js";
import { QUESTIONS, VERDICTS, card, statusBadge } from "./order.js";

const PAGE = 50;
const HEADS = ["Order", "Sale", "User", "Units", "State", "Made", "Selected"];
const STATES = [["", "Any"], ["unpaid", "Unpaid"], ["paid", "Paid"], ["cancelled", "Cancelled"], ["expired", "Expired"]];
const SORTS = [["newest", "Newest first"], ["oldest", "Oldest first"]];

/** Maximum number of orders in one batch. */
const BATCH_ORDERS_MAX = 200;

/** Summarizes the results of a batch: `2 done, 1 expired`. */
function summary(verdicts) {
  const sums = new Map();
  for (const { verdict } of verdicts) {
    sums.set(verdict, (sums.get(verdict) ?? 0) + 1);
  }
  return [...sums].map(([verdict, sum]) => `${count(sum)} ${VERDICTS[verdict] ?? verdict}`).join(", ");
}

/** The controls of the search, with the values from the address. */
function controls(wanted) {
  const moment = (name) => el("input", { type: "datetime-local", name, value: wanted.get(name) ?? "" });
  const text = (name) => el("input", { type: "search", name, autocomplete: "off", spellcheck: "false", value: wanted.get(name) ?? "" });
  return {
    sale: text("sale"),
    user: text("user"),
    status: select(STATES, wanted.get("status") ?? "", { name: "status" }),
    order: text("order"),
    from: moment("from"),
    until: moment("until"),
    sort: select(SORTS, wanted.get("sort") ?? "newest", { name: "sort" }),
  };
}

/** The values of the controls, without empty ones. */
function queryOf(of) {
  const all = Object.entries(of).map(([name, control]) => [name, control.value.trim()]);
  return Object.fromEntries(all.filter(([, value]) => value !== ""));
}

/** The query for the origin: times in milliseconds. `until_ms` is exclusive. */
function asOriginAsks({ from, until, ...query }) {
  return { ...query, from_ms: from && atMinute(from), until_ms: until && atMinute(until) };
}

/** The orders found, page by page, and the selected ones. */
class Found {
  constructor(desk) {
    this.desk = desk;
    this.chosen = new Set();
    this.orders = [];
    this.said = el("div", { id: "acted" });
    this.list = el("div", { id: "found" });
    this.one = el("div", { id: "one" });
    this.more = button("More", { class: "quiet", id: "more" }, this.said, () => this.load(false));
    this.actions = el("div", { class: "row" });
    if (desk.may("sales:write")) {
      replace(this.actions, this.action("Cancel", "cancel"), this.action("Refund", "refund"));
    }
  }

  /** A button that runs an action on all selected orders. */
  action(text, what) {
    return button(`${text} selected`, { class: "danger", id: `${what}-chosen` }, this.said, async () => {
      const orders = [...this.chosen];
      if (orders.length === 0) {
        throw new Error("No order is selected.");
      }
      const of = orders.length === 1 ? "this order" : `${count(orders.length)} orders`;
      if (!(await ask(`${text} ${of}?`, QUESTIONS[what], text))) {
        return null;
      }
      const verdicts = [];
      for (let at = 0; at < orders.length; at += BATCH_ORDERS_MAX) {
        verdicts.push(...(await api.runOrderBatch(what, orders.slice(at, at + BATCH_ORDERS_MAX))));
      }
      await this.load(true);
      return summary(verdicts);
    });
  }

  async search(query) {
    this.query = query;
    await this.load(true);
  }

  async load(isFirst) {
    const page = await api.orders({ ...this.query, limit: PAGE, after: isFirst ? null : this.after });
    this.orders = isFirst ? page.orders : this.orders.concat(page.orders);
    this.after = page.next;
    this.more.hidden = !page.next;
    if (isFirst) {
      this.chosen.clear();
    }
    this.show();
  }

  show() {
    const rows = this.orders.map((order) => this.row(order));
    replace(this.list, rows.length > 0 ? table("orders", HEADS, rows) : el("p", { class: "hint", id: "no-orders" }, "No matching orders."));
    this.actions.hidden = rows.length === 0;
  }

  row(order) {
    const choose = el("input", { type: "checkbox", "aria-label": `Select ${order.order}`, checked: this.chosen.has(order.order) });
    choose.addEventListener("change", () => (choose.checked ? this.chosen.add(order.order) : this.chosen.delete(order.order)));
    const look = () => this.look(order.order);
    const name = el("button", { type: "button", class: "link", "data-order": order.order, onclick: look }, order.order);
    return [name, el("code", {}, order.sale), order.user, count(order.quantity), statusBadge(order), instant(order.created_at_ms), choose];
  }

  /** Shows an order below the list, with the result of an action. */
  async look(id, told = null) {
    try {
      const order = await api.order(id);
      replace(this.one, card(this.desk, order, (now) => this.look(id, now)));
      replace(this.one.querySelector("#order-said"), told);
      this.put(order);
      const shown = this.one.querySelector("h2");
      shown.focus();
      shown.scrollIntoView({ block: "nearest" });
    } catch (error) {
      replace(this.one, complaint(error));
    }
  }

  /** Updates an order in the list. */
  put(order) {
    const at = this.orders.findIndex((one) => one.order === order.order);
    if (at >= 0) {
      this.orders[at] = order;
      this.show();
    }
  }
}

export async function orders(desk, search) {
  const wanted = new URLSearchParams(search ?? "");
  const of = controls(wanted);
  const found = new Found(desk);
  const said = el("div", { id: "said" });
  const submit = el("button", { type: "submit", class: "primary" }, "Search");
  const csv = el("a", { id: "csv", download: "orders.csv", hidden: true }, "As a table (CSV)");
  const look = async () => {
    const query = queryOf(of);
    if (query.order) {
      await found.look(query.order);
      return query;
    }
    if (!query.sale && !query.user) {
      throw new Error("Enter an order, a sale or a user.");
    }
    const asked = asOriginAsks(query);
    await found.search(asked);
    csv.href = api.ordersAsTable(asked);
    csv.hidden = false;
    return query;
  };
  let isShown = true;
  desk.onLeave(() => {
    isShown = false;
  });
  const submitted = async () => {
    const query = await look();
    // Makes the search available for the back button and for sharing, unless the address belongs to another view now.
    if (isShown) {
      history.replaceState(null, "", `#/orders?${new URLSearchParams(query)}`);
    }
  };
  const form = el(
    "form",
    { class: "card", id: "search", role: "search", onsubmit: working(submit, said, submitted) },
    said,
    el("div", { class: "grid" }, 
      field("Sale", of.sale, "Its id."), field("User", of.user), field("State", of.status), field("Sorted", of.sort),
      field("Created from (UTC)", of.from), field("Created before (UTC)", of.until), field("Or a single order", of.order, "Its id.")),
    el("div", { class: "row" }, submit, csv),
  );
  found.more.hidden = found.actions.hidden = true;
  const list = el("section", { class: "card", "aria-label": "Orders found" }, found.said, found.list, el("div", { class: "row apart" }, found.more, found.actions));
  if (wanted.get("sale") || wanted.get("user") || wanted.get("order")) {
    await look();
  }
  return ["Orders", form, list, found.one];
}
