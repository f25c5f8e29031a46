// The list of sales, and the switch for all of them.

import { api } from "./api.js";
import { ask, el, empty, field, meter, replace, segments, select, state, table, working } from "./dom.js";
import { count, exactly, relative, time } from "./format.js";

export const STATES = { open: "Open", shadow: "Shadow", drain: "Drain", closed: "Closed" };

export const place = (sale) => `#/sales/id/${sale.id}`;

/**
 * A sale's status, from its switch, its period and whether it is warm: a label and its tone. `unpaid` is the number of
 * unpaid orders, if it is known.
 */
export function saleStatus(sale, unpaid = 0, now = Date.now()) {
  if (sale.archived_at_ms) {
    return ["Archived"];
  }
  if (sale.paused_at_ms) {
    return ["Paused: orders lost", "bad"];
  }
  if (sale.effective_state !== "open") {
    return [STATES[sale.effective_state] ?? sale.effective_state, sale.effective_state === "closed" ? "" : "warn"];
  }
  if (now >= sale.ends_at_ms) {
    return ["Over"];
  }
  if (!sale.warmed_at_ms) {
    return ["Not warm", now < sale.starts_at_ms ? "warn" : "bad"];
  }
  if (now < sale.starts_at_ms) {
    return ["Ready", "info"];
  }
  return sale.remaining === 0 ? [unpaid > 0 ? `Nothing left (${count(unpaid)} unpaid)` : "Nothing left", "warn"] : ["On sale", "good"];
}

/** Whether a sale runs, comes or is over. */
export function stage(sale, now = Date.now()) {
  if (sale.archived_at_ms || now >= sale.ends_at_ms) {
    return "over";
  }
  return now < sale.starts_at_ms ? "upcoming" : "live";
}

const STAGES = [["all", "All"], ["live", "Live"], ["upcoming", "Upcoming"], ["over", "Over"]];

/** Live sales first, then the next ones, then the latest ended ones. */
export function sorted(all) {
  const rank = { live: 0, upcoming: 1, over: 2 };
  const within = (sale) => ({ live: sale.ends_at_ms, upcoming: sale.starts_at_ms, over: -sale.ends_at_ms })[stage(sale)];
  return [...all].sort((one, other) => rank[stage(one)] - rank[stage(other)] || within(one) - within(other));
}

/** When a sale starts or ends, in words. */
export function when(sale, now = Date.now()) {
  const [ms, word] = now < sale.starts_at_ms ? [sale.starts_at_ms, "starts"] : [sale.ends_at_ms, now < sale.ends_at_ms ? "ends" : "ended"];
  return el("span", { title: exactly(ms) }, `${word} ${relative(ms, now)}`);
}

/** Sold units as a bar. */
export function sold(sale) {
  const units = sale.total - sale.remaining;
  const text = `${count(units)} of ${count(sale.total)}`;
  return el("span", {}, text, meter(units, sale.total, `Sold ${text}`));
}

function row(sale) {
  return [
    el("span", {}, el("a", { href: place(sale) }, sale.title), el("br"), el("code", { class: "hint" }, sale.id)),
    el("span", {}, time(sale.starts_at_ms), " to ", time(sale.ends_at_ms), el("br"), el("span", { class: "hint" }, when(sale))),
    sold(sale),
    state(...saleStatus(sale)),
  ];
}

export async function sales(desk) {
  // Only platform keys may use the switch for all sales.
  const isTenants = Boolean(desk.who.tenant);
  const [all, global] = await Promise.all([api.sales(), isTenants ? null : api.globalSwitch()]);
  const list = el("div", {});
  const text = el("input", { type: "search", name: "q", placeholder: "Title or id", autocomplete: "off" });
  let wanted = "all";
  const make = () => desk.may("sales:write") && el("a", { class: "button primary", href: "#/sales/new" }, "New sale");
  const show = () => {
    const word = text.value.trim().toLowerCase();
    const found = sorted(all).filter((sale) => (wanted === "all" || stage(sale) === wanted) && `${sale.title} ${sale.id}`.toLowerCase().includes(word));
    if (all.length === 0) {
      replace(list, empty("none", "No sales yet. A sale offers a number of units in a period.", make()));
    } else {
      replace(list, found.length > 0 ? table("sales", ["Sale", "Period", "Sold", "State"], found.map(row)) : empty("none", "No sales match."));
    }
  };
  const stages = segments("stage", "Show", STAGES, async (value) => {
    wanted = value;
    show();
    return true;
  });
  stages.set(wanted);
  text.addEventListener("input", show);
  show();
  return [
    "Sales",
    el("section", { class: "card", "aria-label": "All sales" },
      all.length > 0 && el("div", { class: "row apart low" }, stages.element, el("div", { class: "row low" }, field("Search", text), make())), list),
    global && globalSwitch(desk, global.state),
  ];
}

/** What each switch of all sales does, for its question. */
const EFFECTS = {
  open: "Each sale follows its own setting again: sales that this switch had closed may sell at once.",
  shadow: "Every sale lets everyone pass. Decisions are only recorded: nothing protects your shop.",
  drain: "No sale takes new buyers. Buyers who already hold a unit can finish.",
  closed: "This closes every sale on the platform. Existing orders are kept.",
};

/** The switch for all sales, for emergencies. */
function globalSwitch(desk, now) {
  const said = el("div", {});
  const isFixed = !desk.may("sales:write");
  const chosen = select(Object.entries(STATES), now, { name: "global", disabled: isFixed });
  const button = el("button", { type: "submit", class: "danger", disabled: isFixed }, "Switch all sales");
  const change = working(button, said, async () => {
    const [to, word] = [chosen.value, STATES[chosen.value]];
    if (!(await ask(`Switch all sales to ${word}?`, EFFECTS[to], `Switch all to ${word}`, `Keep ${STATES[now]}`, to === "open" ? null : "all sales"))) {
      return null;
    }
    await api.setGlobalSwitch(to);
    now = to;
    return to === "closed" ? "All sales are now closed." : `All sales are now at least: ${word}.`;
  });
  return el(
    "details",
    { class: "card", id: "global", open: now !== "open" },
    el("summary", {}, el("h2", {}, "Emergency switch"), " ", now !== "open" && state(STATES[now], "warn")),
    el("form", { onsubmit: change }, said,
      el("div", { class: "together" }, field("All sales", chosen, "Overrides any sale whose own setting is less strict."), button)),
  );
}
