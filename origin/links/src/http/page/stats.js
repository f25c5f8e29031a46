// A link's statistics.

import { breakdown, timeline } from "../../ui/charts.js";
import { complaint, el, field, replace, save, select, tile } from "../../ui/dom.js";
import { DAY_MS, HERE, count, money } from "../../ui/format.js";
import { api } from "./api.js";
import { crosstabFilter } from "./crosstab.js";
import { isZone, midnight, names, word } from "./format.js";

/** The ranges: days up to today, and the unit of the chart. Whole days, because the origin stores breakdowns by day. */
export const RANGES = {
  "1d": { text: "Today", days: 1, by: "hour" },
  "2d": { text: "Since yesterday", days: 2, by: "hour" },
  "7d": { text: "Last 7 days", days: 7, by: "day" },
  "30d": { text: "Last 30 days", days: 30, by: "day" },
  "90d": { text: "Last 90 days", days: 90, by: "day" },
};

const PARTS = {
  devices: "Devices",
  systems: "Systems",
  browsers: "Browsers",
  referrers: "Referrers",
  regions: "Regions",
  operators: "Network operators",
  languages: "Languages",
};

/** The origin stores combinations for this number of days. */
const CROSSTAB_DAYS = 31;

/** The members of the API for a range in a time zone. */
export function range(chosen, tz) {
  if (!isZone(tz)) {
    throw new Error("Unknown time zone. Example: Europe/Berlin.");
  }
  const { days, by } = RANGES[chosen];
  // Noon to noon is always the next day, also across clock changes.
  const noon = midnight(tz, Date.now()) + DAY_MS / 2;
  return { from_ms: midnight(tz, noon - (days - 1) * DAY_MS), to_ms: midnight(tz, noon + DAY_MS), by, tz };
}

/** The control for the time zone, with all zones of the browser. */
export function zones() {
  const all = Intl.supportedValuesOf?.("timeZone") ?? [];
  const names = [...new Set([HERE, "UTC", ...all])];
  const list = el("datalist", { id: "zones" }, names.map((value) => el("option", { value })));
  const control = el("input", { name: "zone", list: "zones", value: HERE, autocomplete: "off", spellcheck: "false" });
  return { control, list };
}

export function statsCard(link) {
  const chosen = select(Object.entries(RANGES).map(([key, { text }]) => [key, text]), "7d", { name: "range" });
  const zone = zones();
  const body = el("div", { id: "stats", "aria-busy": "true" });
  const wantedRange = () => range(chosen.value, zone.control.value);
  let turn = 0;
  const load = async () => {
    turn += 1;
    const mine = turn;
    // An earlier request may be answered later.
    const show = (...children) => mine === turn && replace(body, ...children);
    body.setAttribute("aria-busy", "true");
    try {
      const wanted = wantedRange();
      const [stats, orders] = await Promise.all([api.stats(link, wanted), link.conversion ? api.conversions(link, wanted) : null]);
      const filter = RANGES[chosen.value].days <= CROSSTAB_DAYS && crosstabFilter(link, wantedRange);
      const times = names(wanted.by, wanted.tz);
      show(tiles(stats), orders && sold(orders), timeline(stats.series, wanted.by, times), filter && filter.element, parts(stats, filter && filter.choose));
    } catch (error) {
      show(complaint(error));
    }
    body.setAttribute("aria-busy", String(mine !== turn));
  };
  const download = async () => {
    try {
      save(await api.csv(link, wantedRange()), `${link.domain}-${link.code.replaceAll("/", "-")}.csv`);
    } catch (error) {
      replace(body, complaint(error));
    }
  };
  chosen.addEventListener("change", load);
  zone.control.addEventListener("change", load);
  load();
  return el(
    "section",
    { class: "card" },
    el(
      "div",
      { class: "row apart" },
      el("h2", {}, "Statistics"),
      el(
        "div",
        { class: "row" },
        el("div", { class: "labelless" }, field("Range", chosen)),
        el("div", { class: "labelless" }, field("Time zone", zone.control), zone.list),
        el("button", { type: "button", id: "reload", onclick: load }, "Refresh"),
        el("button", { type: "button", onclick: download }, "CSV"),
      ),
    ),
    body,
  );
}

export function tiles(stats) {
  const one = (name, value) => tile(name, count(value), { id: `total-${name.toLowerCase()}` });
  return el("dl", { class: "tiles" }, one("Clicks", stats.clicks), one("Visitors", stats.visitors), one("Addresses", stats.addresses));
}

/** Orders that followed clicks. */
function sold(orders) {
  const revenue = Object.entries(orders.revenue).map(([currency, amount]) => money(amount, currency)).join(", ") || "–";
  return el(
    "dl",
    { class: "tiles" },
    tile("Orders", count(orders.orders), { id: "total-orders" }),
    tile("Paid", count(orders.paid_orders), { id: "total-paid" }),
    tile("Revenue", revenue, { id: "total-revenue" }),
  );
}

/** Breakdowns that the combined filters have, too: a click on a value filters by it. */
const FILTERS = { devices: "device", referrers: "referrer" };

/** Breakdowns that need a data source of the origin. */
const SOURCED = ["regions", "operators"];

function parts(stats, choose) {
  const one = ([part, title]) => {
    const values = stats[part] ?? {};
    const keys = Object.keys(values);
    if (SOURCED.includes(part) && keys.length > 0 && keys.every((key) => key === "unknown")) {
      return el("section", { class: "breakdown" }, el("h3", {}, title), el("p", { class: "hint" }, "Not set up: the gateways have no data source for it."));
    }
    const filter = FILTERS[part];
    return breakdown(title, values, (value) => word(part, value), { choose: filter && choose ? (value) => choose(filter, value) : null });
  };
  const hint = "Breakdowns are by UTC day. A visitor on two days counts twice, because visitors are not tracked across days.";
  return [el("div", { class: "breakdowns" }, Object.entries(PARTS).map(one)), el("p", { class: "hint" }, hint)];
}
