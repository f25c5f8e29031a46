// The money of a sale: revenue by status, the share that is paid, and how many buyers get from the queue to an order.

import { api } from "./api.js";
import { complaint, el, empty, fact, field, meter, refresh, replace, select, table, tile } from "./dom.js";
import { count, money, share } from "./format.js";

/** The sums read every order, so they are read once a minute. */
const PERIOD_MS = 60_000;

const STATUSES = { paid: "Paid", unpaid: "Unpaid", cancelled: "Cancelled", expired: "Expired" };

const total = (sums, member) => sums.reduce((sum, one) => sum + one[member], 0);

function tiles(sums) {
  const currencies = [...new Set(sums.map((one) => one.currency).filter(Boolean))];
  return currencies.map((currency) => {
    const of = (status) => total(sums.filter((one) => one.currency === currency && one.status === status), "amount");
    return [
      tile("Revenue", money(of("paid"), currency), { id: `revenue-${currency}` }, "of paid orders", "money"),
      tile("Not paid yet", money(of("unpaid"), currency), {}, null, "money"),
      tile("Lost", money(of("cancelled") + of("expired"), currency), {}, "cancelled or expired", "money"),
    ];
  });
}

/** A step of the way from the queue to a paid order. */
const step = (name, number, of) => [name, count(number), of > 0 ? el("span", {}, share(number, of), meter(number, of, `${share(number, of)} of the step before`)) : "–"];

function funnel(found, room) {
  const claims = found.claims_ordered + found.claims_released;
  const orders = total(found.sums, "orders");
  const paid = total(found.sums.filter((one) => one.status === "paid"), "orders");
  const entered = room?.queue?.entered;
  const rows = [
    ...(entered === undefined ? [] : [step("Entered the waiting room", entered, 0)]),
    step("Got a unit", claims, entered ?? 0),
    step("Ordered", orders, claims),
    step("Paid", paid, orders),
  ];
  return table("funnel", ["Step", "#Number", "Of the step before"], rows, rows.map(([name]) => name));
}

/** The tab. It reads when it is opened, and then every minute. */
export function moneyOf(desk, sale) {
  const [shown, said] = [el("div", {}), el("div", {})];
  const chosen = select([["", "None"]], "", { name: "room" });
  let rooms = [];
  let timer = null;
  const look = async () => {
    try {
      const [found, all] = await Promise.all([api.money(sale.id), desk.may("rooms:read") ? api.rooms().catch(() => []) : []]);
      rooms = all;
      const known = new Set([...chosen.options].map((option) => option.value));
      chosen.append(...rooms.filter(({ name }) => !known.has(name)).map(({ name }) => el("option", { value: name }, name)));
      ahead.hidden = rooms.length === 0;
      const room = rooms.find(({ name }) => name === chosen.value);
      const orders = total(found.sums, "orders");
      const paid = total(found.sums.filter((one) => one.status === "paid"), "orders");
      const rows = Object.entries(STATUSES).map(([status, text]) => {
        const of = found.sums.filter((one) => one.status === status);
        return [text, count(total(of, "orders")), count(total(of, "units")), of.filter((one) => one.currency).map((one) => money(one.amount, one.currency)).join(", ") || "–"];
      });
      refresh(shown, orders === 0 && found.claims_ordered + found.claims_released === 0
        ? empty("no-money", "No orders yet.")
        : [
          el("dl", { class: "tiles" }, tiles(found.sums)),
          el("dl", { class: "facts" }, fact("Paid orders", `${share(paid, orders)} of ${count(orders)}`, { id: "paid-ratio" }), sale.price && fact("Price per unit now", money(sale.price.unit_amount, sale.price.currency))),
          el("h3", {}, "Orders by status"),
          table("money", ["Status", "#Orders", "#Units", "#Amount"], rows, Object.keys(STATUSES)),
          el("h3", {}, "From the queue to an order"),
          funnel(found, room),
        ]);
      replace(said);
    } catch (error) {
      replace(said, complaint(error));
    }
  };
  const ahead = field("Waiting room before this sale", chosen, "Counts everyone who has entered this room, also for other sales.");
  ahead.hidden = true;
  chosen.addEventListener("change", look);
  const card = el("section", { class: "card stack", "aria-labelledby": "money-title" }, el("h2", { id: "money-title" }, "Money"), said, shown, ahead);
  card.addEventListener("opened", () => {
    look();
    timer ??= setInterval(() => document.hidden || card.parentElement?.hidden || look(), PERIOD_MS);
  });
  desk.onLeave(() => clearInterval(timer));
  return card;
}
