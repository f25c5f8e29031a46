// The stock and the end of a running sale: add or withdraw units, move the end, and list the changes so far.

import { api } from "./api.js";
import { ask, complaint, el, fact, field, mark, replace, state, table, working } from "./dom.js";
import { atMinute, count, instant, minute, time } from "./format.js";

const UNITS_MAX = 1_000_000_000;

/** Creates an idempotency key for a change. Also works on pages without HTTPS. */
function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `console-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

const signed = (units) => (units > 0 ? `+${count(units)}` : count(units));

function sum(stock) {
  return el(
    "dl",
    { class: "facts", id: "stock-sum" },
    fact("Initial", count(stock.initial)),
    fact("Added", count(stock.topped_up)),
    fact("Withdrawn", count(stock.withdrawn)),
    fact("Now", count(stock.total)),
  );
}

function changes(stock) {
  if (stock.changes.length === 0) {
    return null;
  }
  const row = (change) => [
    instant(change.asked_at_ms),
    signed(change.wanted),
    change.units === null ? "–" : signed(change.units),
    state(change.state === "done" ? "Done" : "In progress", change.state === "done"),
  ];
  return el("details", {}, el("summary", {}, "Changes"), table("stock-changes", ["Requested", "Requested units", "Changed units", "State"], stock.changes.map(row)));
}

/** The text for the result of a change of stock. */
function outcome(change) {
  if (change.state !== "done") {
    return "The change is saved and continues in the background. Send it again to see its progress.";
  }
  const isLess = change.units !== change.wanted;
  return isLess ? `${signed(change.units)} of ${signed(change.wanted)} units: the others are held or ordered.` : `${signed(change.units)} units.`;
}

/**
 * The form for units. It keeps the idempotency key until the change is done or the number changes. It calls `changed`
 * after each change.
 */
function units(sale, said, changed) {
  const control = el("input", { name: "units", inputmode: "numeric", autocomplete: "off" });
  const submit = el("button", { type: "submit" }, "Change the stock");
  let wanted = null;
  const change = working(submit, said, async () => {
    const value = Number(control.value);
    const isRight = /^[+-]?\d+$/.test(control.value.trim()) && value !== 0 && Math.abs(value) <= UNITS_MAX;
    mark(control, isRight ? null : "Must be an integer other than 0.");
    if (!isRight) {
      control.focus();
      return null;
    }
    if (value < 0 && !(await ask(`Withdraw ${count(-value)} units?`, "Only units in stock are withdrawn, not held or ordered ones.", "Withdraw"))) {
      return null;
    }
    wanted = wanted?.units === value ? wanted : { units: value, key: newKey() };
    const done = await api.changeStock(sale.id, wanted.key, value);
    if (done.state === "done") {
      wanted = null;
      control.value = "";
    }
    await changed();
    return outcome(done);
  });
  return el("form", { id: "change-stock", novalidate: true, onsubmit: change },
    el("div", { class: "together" }, field("Units", control, "500 adds, -50 withdraws."), submit));
}

/** The form for the sale's end. */
function end(sale, said) {
  const control = el("input", { type: "datetime-local", name: "ends", value: minute(sale.ends_at_ms) });
  const submit = el("button", { type: "submit" }, "Change the end");
  const move = working(submit, said, async () => {
    const ends_at_ms = atMinute(control.value);
    mark(control, Number.isNaN(ends_at_ms) ? "Must be a time." : null);
    if (Number.isNaN(ends_at_ms)) {
      control.focus();
      return null;
    }
    const isNow = ends_at_ms <= Date.now();
    if (isNow && !(await ask(`End “${sale.title}” now?`, "No one can buy any more. Buyers with a claim can still finish.", "End now"))) {
      return null;
    }
    const changed = await api.change(sale.id, { ends_at_ms });
    return `It ends ${time(changed.ends_at_ms)}.`;
  });
  return el("form", { id: "move-end", novalidate: true, onsubmit: move },
    el("div", { class: "together" }, field("Ends (UTC)", control, "A time in the past ends the sale now."), submit));
}

/** The card of a sale's stock and end. It calls `changed` after each change of stock. */
export async function stock(desk, sale, changed) {
  const [said, shown] = [el("div", { id: "stock-said" }), el("div", {})];
  const show = async () => {
    const now = await api.stock(sale.id);
    replace(shown, sum(now), changes(now));
  };
  await show().catch((error) => replace(shown, complaint(error)));
  const isOpen = desk.may("sales:write") && !sale.archived_at_ms;
  return el(
    "section",
    { class: "card", "aria-labelledby": "stock-title" },
    el("h2", { id: "stock-title" }, "Stock and end"),
    said,
    shown,
    isOpen && sale.warmed_at_ms && units(sale, said, () => {
      changed();
      return show();
    }),
    isOpen && end(sale, said),
  );
}
