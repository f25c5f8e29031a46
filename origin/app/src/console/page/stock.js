// The stock and the end of a running sale: add or withdraw units, move the end, and list the changes so far.

import { api } from "./api.js";
import { ask, complaint, el, fact, field, follow, mark, replace, state, table, working } from "./dom.js";
import { atMinute, clock, count, instant, minute, plural, time } from "./format.js";
import { newKey } from "./session.js";

const UNITS_MAX = 1_000_000_000;

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
    signed(change.requested),
    change.units === null ? "–" : signed(change.units),
    state(change.state === "done" ? "Done" : "In progress", change.state === "done" ? "good" : "warn"),
  ];
  return el("details", {}, el("summary", {}, "Changes"), table("stock-changes", ["Requested", "#Requested units", "#Changed units", "State"], stock.changes.map(row)));
}

/** The text for the result of a change of stock. */
function outcome(change) {
  if (change.state !== "done") {
    return "The change is saved and continues in the background. Send it again to see its progress.";
  }
  const isLess = change.units !== change.requested;
  return isLess ? `${signed(change.units)} of ${signed(change.requested)} units: the others are held or ordered.` : `${signed(change.units)} units.`;
}

/**
 * The form for units. It keeps the idempotency key until the change is done or the number changes. It calls `changed`
 * after each change.
 */
function units(sale, said, changed) {
  const control = el("input", { name: "units", inputmode: "numeric", autocomplete: "off" });
  const submit = el("button", { type: "submit" }, "Change stock");
  let wanted = null;
  const change = working(submit, said, async () => {
    const value = Number(control.value);
    const isRight = /^[+-]?\d+$/.test(control.value.trim()) && value !== 0 && Math.abs(value) <= UNITS_MAX;
    mark(control, isRight ? null : "Must be an integer other than 0.");
    if (!isRight) {
      control.focus();
      return null;
    }
    const units = plural(-value, "unit");
    if (value < 0 && !(await ask(`Withdraw ${units} from “${sale.title}”?`, "Only units in stock are withdrawn, not held or ordered ones.", `Withdraw ${units}`, "Keep the stock"))) {
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
    el("div", { class: "together" }, field("Units", control, "Enter 500 to add, −50 to remove."), submit));
}

/** The form for the sale's end. `update` follows the sale. */
function end(sale, said) {
  const control = el("input", { type: "datetime-local", name: "ends", value: minute(sale.ends_at_ms) });
  const submit = el("button", { type: "submit" }, "Change end time");
  const note = el("div", {});
  const followed = follow({ ends: control }, note, () => "the end");
  const update = (now, isOwn = false) => {
    sale = now;
    followed.update({ ends: minute(now.ends_at_ms) }, isOwn);
  };
  update(sale);
  const move = working(submit, said, async () => {
    const ends_at_ms = atMinute(control.value);
    mark(control, Number.isNaN(ends_at_ms) ? "Must be a time." : null);
    if (Number.isNaN(ends_at_ms)) {
      control.focus();
      return null;
    }
    const isNow = ends_at_ms <= Date.now();
    const [title, text, deed] = isNow
      ? [`End “${sale.title}” now?`, "Buying stops at once. Buyers who already hold a unit can finish.", "End sale now"]
      : [`Change the end of “${sale.title}”?`, `It ends ${time(ends_at_ms)} instead of ${time(sale.ends_at_ms)}.`, "Change end time"];
    if (!(await ask(title, text, deed, `Keep ${time(sale.ends_at_ms)}`))) {
      return null;
    }
    const changed = await api.change(sale.id, { ends_at_ms });
    update(changed, true);
    return `It ends ${time(changed.ends_at_ms)}.`;
  });
  const element = el("form", { id: "move-end", novalidate: true, onsubmit: move }, note,
    el("div", { class: "together" }, field(`Ends (${clock.name()})`, control, "A time in the past ends the sale now."), submit));
  return { element, update };
}

/** The card of a sale's stock and end, and a function that follows the sale. It calls `changed` after each change of stock. */
export async function stock(desk, sale, changed) {
  const [said, shown] = [el("div", { id: "stock-said" }), el("div", {})];
  const show = async () => {
    const now = await api.stock(sale.id);
    replace(shown, sum(now), changes(now));
  };
  await show().catch((error) => replace(shown, complaint(error)));
  const isOpen = desk.may("sales:write") && !sale.archived_at_ms;
  const ending = isOpen && end(sale, said);
  const unitsForm = isOpen && units(sale, said, () => {
    changed();
    return show();
  });
  const update = (now) => {
    if (ending) {
      ending.update(now);
    }
    if (unitsForm) {
      unitsForm.hidden = !now.warmed_at_ms;
    }
  };
  update(sale);
  const element = el(
    "section",
    { class: "card", "aria-labelledby": "stock-title" },
    el("h2", { id: "stock-title" }, "Stock and end"),
    shown,
    said,
    unitsForm,
    ending && ending.element,
  );
  return { element, update };
}
