// Orders: search by sale, customer or number, and cancel or refund one or many.

import { api } from "./api.js";
import { ask, button, complaint, el, empty, field, replace, select, table, working } from "./dom.js";
import { atMinute, clock, count, instant, plural } from "./format.js";
import { ACTIONS, VERDICTS, statusBadge } from "./order.js";
import { sorted } from "./sales.js";

const PAGE = 50;
const HEADS = ["~Select", "Order", "Sale", "Customer", "#Units", "State", "Created"];
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
function controls(given) {
  const moment = (name) => el("input", { type: "datetime-local", name, value: given.get(name) ?? "" });
  const text = (name, props = {}) => el("input", { type: "search", name, autocomplete: "off", spellcheck: "false", value: given.get(name) ?? "", ...props });
  return {
    sale: text("sale", { list: "sale-ids" }),
    user: text("user"),
    status: select(STATES, given.get("status") ?? "", { name: "status" }),
    order: text("order"),
    from: moment("from"),
    until: moment("until"),
    sort: select(SORTS, given.get("sort") ?? "newest", { name: "sort" }),
  };
}

/** The values of the controls, without empty ones. */
function queryOf(of) {
  const all = Object.entries(of).map(([name, control]) => [name, control.value.trim()]);
  return Object.fromEntries(all.filter(([, value]) => value !== ""));
}

/** The query for the origin: times in milliseconds. `until_ms` is exclusive. */
function originQuery({ from, until, ...query }) {
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
    this.more = button("More", { class: "quiet", id: "more", hidden: true }, this.said, () => this.load(false));
    this.sum = el("strong", { role: "status" });
    this.bar = el("div", { class: "row apart selected", hidden: true }, this.sum,
      el("div", { class: "row" }, this.action("cancel"), this.action("refund")));
  }

  /** A button that runs an action on all selected orders. */
  action(what) {
    const { deed, keep, question } = ACTIONS[what];
    return button(`${deed} selected`, { class: "danger", id: `${what}-chosen` }, this.said, async () => {
      const orders = [...this.chosen];
      if (orders.length === 0) {
        throw new Error("No order is selected.");
      }
      const of = plural(orders.length, "order");
      if (!(await ask(`${deed} ${of}?`, question, `${deed} ${of}`, `${keep} ${of}`))) {
        return null;
      }
      const verdicts = [];
      for (let at = 0; at < orders.length; at += BATCH_ORDERS_MAX) {
        verdicts.push(...(await api.runOrderBatch(what, orders.slice(at, at + BATCH_ORDERS_MAX))));
      }
      await this.load(true);
      // The buttons are hidden again, because nothing is selected.
      document.getElementById("choose-all")?.focus();
      return `${summary(verdicts)}.`;
    });
  }

  async search(query) {
    this.query = query;
    this.chosen.clear();
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
    const mayChoose = this.desk.may("sales:write");
    this.boxes = [];
    const rows = this.orders.map((order) => this.row(order, mayChoose));
    replace(this.list, rows.length > 0 ? [mayChoose && this.all(), table("orders", mayChoose ? HEADS : HEADS.slice(1), rows, [], mayChoose ? 1 : 0)] : empty("no-orders", "No orders match."));
    this.select();
  }

  /** The box that selects all orders shown. */
  all() {
    const box = el("input", { type: "checkbox", id: "choose-all" });
    box.addEventListener("change", () => {
      for (const one of this.boxes.filter((one) => one.checked !== box.checked)) {
        one.click();
      }
    });
    return el("label", { class: "choice" }, box, `Select all ${count(this.orders.length)} shown`);
  }

  select() {
    this.sum.textContent = `${count(this.chosen.size)} selected`;
    this.bar.hidden = this.chosen.size === 0;
  }

  row(order, mayChoose) {
    const choose = mayChoose && el("input", { type: "checkbox", "aria-label": `Select ${order.order}`, checked: this.chosen.has(order.order) });
    if (choose) {
      this.boxes.push(choose);
      choose.addEventListener("change", () => {
        this.chosen[choose.checked ? "add" : "delete"](order.order);
        this.select();
      });
    }
    const name = el("a", { href: `#/orders/${encodeURIComponent(order.order)}`, "data-order": order.order }, el("code", {}, order.order));
    const cells = [name, el("code", {}, order.sale), order.user, count(order.quantity), statusBadge(order), instant(order.created_at_ms)];
    return mayChoose ? [choose, ...cells] : cells;
  }
}

/** The sale to show first: one that runs, or the latest one that started. */
function firstSale(sales, now = Date.now()) {
  return sorted(sales).find((sale) => sale.starts_at_ms <= now) ?? sales[0];
}

export async function orders(desk, search) {
  const given = new URLSearchParams(search ?? "");
  const of = controls(given);
  const found = new Found(desk);
  const said = el("div", { id: "said" });
  const submit = el("button", { type: "submit", class: "primary" }, "Search");
  const csv = el("a", { id: "csv", class: "button", download: "orders.csv", hidden: true }, "Download CSV");
  const look = async () => {
    const query = queryOf(of);
    if (query.order) {
      location.hash = `#/orders/${encodeURIComponent(query.order)}`;
      return null;
    }
    if (!query.sale && !query.user) {
      throw new Error("Enter a sale, a user or an order number.");
    }
    const wanted = originQuery(query);
    await found.search(wanted);
    csv.href = api.ordersAsTable(wanted);
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
    if (query && isShown) {
      history.replaceState(null, "", `#/orders?${new URLSearchParams(query)}`);
    }
  };
  const form = el(
    "form",
    { class: "card", id: "search", role: "search", onsubmit: working(submit, said, submitted) },
    said,
    el("div", { class: "grid" },
      field("Sale", of.sale), field("Customer", of.user, "A user’s id."), field("State", of.status), field("Sorted", of.sort)),
    el("details", { open: given.has("from") || given.has("until") }, el("summary", {}, "More filters"), el("div", { class: "grid" },
      field(`Created from (${clock.name()})`, of.from), field(`Created before (${clock.name()})`, of.until), field("Order number", of.order))),
    el("div", { class: "row" }, submit, csv),
  );
  const list = el("section", { class: "card", "aria-label": "Orders found" }, found.said, found.list, el("div", { class: "row" }, found.more), found.bar);
  const sales = await api.sales().catch(() => []);
  form.append(el("datalist", { id: "sale-ids" }, sales.map((sale) => el("option", { value: sale.id }, sale.title))));
  if (!of.sale.value && !of.user.value && !of.order.value && sales.length > 0) {
    of.sale.value = firstSale(sales).id;
  }
  if (of.sale.value || of.user.value) {
    await look().catch((error) => replace(said, complaint(error)));
  } else {
    replace(found.list, empty("no-sales", "No orders yet: orders come from sales.", el("a", { href: "#/sales" }, "Sales")));
  }
  return ["Orders", form, list];
}
