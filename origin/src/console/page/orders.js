// Orders: looked for, and cancelled or refunded, one or many.

import { api } from "./api.js";
import { ask, button, complaint, el, field, replace, select, table, working } from "./dom.js";
import { count, instant } from "./format.js";
import { card, standing } from "./order.js";

const PAGE = 50;
const HEADS = ["Order", "Sale", "User", "Units", "State", "Made", "Chosen"];
const STATES = [["", "Any"], ["unpaid", "Unpaid"], ["paid", "Paid"], ["cancelled", "Cancelled"], ["expired", "Expired"]];
const SORTS = [["newest", "The last first"], ["oldest", "The first first"]];

/** What the origin says of each order, in words. */
const VERDICTS = {
  done: "done",
  done_before: "done before",
  order_paid: "paid, so to be refunded",
  order_not_paid: "not paid, so to be cancelled",
  order_expired: "expired",
  unknown_order: "unknown",
  try_again: "to be tried again",
};

/** What came of it, for many: `2 done, 1 expired`. */
function summary(verdicts) {
  const sums = new Map();
  for (const { verdict } of verdicts) {
    sums.set(verdict, (sums.get(verdict) ?? 0) + 1);
  }
  return [...sums].map(([verdict, sum]) => `${count(sum)} ${VERDICTS[verdict] ?? verdict}`).join(", ");
}

/** The controls of the search, as the address wants them. */
function controls(wanted) {
  const text = (name) => el("input", { type: "search", name, autocomplete: "off", spellcheck: "false", value: wanted.get(name) ?? "" });
  return {
    sale: text("sale"),
    user: text("user"),
    status: select(STATES, wanted.get("status") ?? "", { name: "status" }),
    sort: select(SORTS, wanted.get("sort") ?? "newest", { name: "sort" }),
  };
}

/** What the controls say, without those that say nothing. */
function queryOf(of) {
  const all = Object.entries(of).map(([name, control]) => [name, control.value.trim()]);
  return Object.fromEntries(all.filter(([, value]) => value !== ""));
}

/** The orders that are found, page by page, with those that are chosen. */
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

  /** A button that does something with all that are chosen. */
  action(text, what) {
    return button(`${text} the chosen`, { class: "danger", id: `${what}-chosen` }, this.said, async () => {
      const orders = [...this.chosen];
      if (orders.length === 0) {
        throw new Error("No order is chosen.");
      }
      const of = orders.length === 1 ? "this order" : `${count(orders.length)} orders`;
      if (!(await ask(`${text} ${of}?`, "Their units go back to stock. It cannot be undone.", text))) {
        return null;
      }
      const verdicts = await api.act(what, orders);
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
    replace(this.list, rows.length > 0 ? table("orders", HEADS, rows) : el("p", { class: "hint", id: "no-orders" }, "No order is so."));
    this.actions.hidden = rows.length === 0;
  }

  row(order) {
    const choose = el("input", { type: "checkbox", "aria-label": `Choose ${order.order}`, checked: this.chosen.has(order.order) });
    choose.addEventListener("change", () => (choose.checked ? this.chosen.add(order.order) : this.chosen.delete(order.order)));
    const look = () => this.look(order.order);
    const name = el("button", { type: "button", class: "link", "data-order": order.order, onclick: look }, order.order);
    return [name, el("code", {}, order.sale), order.user, count(order.quantity), standing(order), instant(order.created_at_ms), choose];
  }

  /** Shows one, below the list. */
  async look(id) {
    const change = async () => {
      await this.look(id);
      await this.load(true);
    };
    try {
      replace(this.one, card(this.desk, await api.order(id), change));
      const shown = this.one.querySelector("h2");
      shown.focus();
      shown.scrollIntoView({ block: "nearest" });
    } catch (error) {
      replace(this.one, complaint(error));
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
    if (!query.sale && !query.user) {
      throw new Error("Name a sale or a user.");
    }
    await found.search(query);
    csv.href = api.ordersAsTable(query);
    csv.hidden = false;
    return query;
  };
  const submitted = async () => {
    // To go back to, and to share.
    history.replaceState(null, "", `#/orders?${new URLSearchParams(await look())}`);
  };
  const form = el(
    "form",
    { class: "card", id: "search", role: "search", onsubmit: working(submit, said, submitted) },
    said,
    el("div", { class: "grid" }, field("Sale", of.sale, "Its id."), field("User", of.user), field("State", of.status), field("Order", of.sort)),
    el("div", { class: "row" }, submit, csv),
  );
  found.more.hidden = found.actions.hidden = true;
  const list = el("section", { class: "card", "aria-label": "Orders found" }, found.said, found.list, el("div", { class: "row apart" }, found.more, found.actions));
  if (wanted.get("sale") || wanted.get("user")) {
    await look();
  }
  return ["Orders", form, list, found.one];
}
