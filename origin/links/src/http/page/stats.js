// A link's statistics.

import { api } from "./api.js";
import { breakdown, timeline } from "./charts.js";
import { crosstabFilter } from "./crosstab.js";
import { el, field, replace, select } from "./dom.js";
import { count, DAY_MS, isZone, midnight } from "./format.js";
import { complaint } from "./notice.js";
import { save } from "./qr.js";

/** The ranges: days up to today, and the unit of the chart. Whole days, because the origin stores breakdowns by day. */
const RANGES = {
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

/** The time zone of the browser. */
const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

function query(chosen, tz) {
  const { days, by } = RANGES[chosen];
  // Noon to noon is always the next day, also across clock changes.
  const noon = midnight(tz, Date.now()) + DAY_MS / 2;
  return { from_ms: midnight(tz, noon - (days - 1) * DAY_MS), to_ms: midnight(tz, noon + DAY_MS), by, tz };
}

/** The control for the time zone, with all zones of the browser. */
function zones() {
  const all = Intl.supportedValuesOf?.("timeZone") ?? [];
  const names = [...new Set([HERE, "UTC", ...all])];
  const list = el("datalist", { id: "zones" }, names.map((value) => el("option", { value })));
  const control = el("input", { name: "zone", list: "zones", value: HERE, autocomplete: "off", spellcheck: "false" });
  return { control, list };
}

export function statsCard(link) {
  const range = select(Object.entries(RANGES).map(([key, { text }]) => [key, text]), "1d", { name: "range" });
  const zone = zones();
  const body = el("div", { id: "stats", "aria-busy": "true" });
  const asked = () => query(range.value, zone.control.value);
  let turn = 0;
  const load = async () => {
    turn += 1;
    const mine = turn;
    // An earlier request may be answered later.
    const show = (...children) => mine === turn && replace(body, ...children);
    body.setAttribute("aria-busy", "true");
    try {
      if (!isZone(zone.control.value)) {
        throw new Error("Unknown time zone. Example: Europe/Berlin.");
      }
      const wanted = asked();
      const [stats, orders] = await Promise.all([api.stats(link, wanted), link.conversion ? api.conversions(link, wanted) : null]);
      const filter = RANGES[range.value].days <= CROSSTAB_DAYS && crosstabFilter(link, asked);
      show(tiles(stats), orders && sold(orders), timeline(stats.series, wanted.by, wanted.tz), filter, parts(stats));
    } catch (error) {
      show(complaint(error));
    }
    body.setAttribute("aria-busy", String(mine !== turn));
  };
  const download = async () => {
    try {
      save(await api.csv(link, asked()), `${link.domain}-${link.code.replaceAll("/", "-")}.csv`);
    } catch (error) {
      replace(body, complaint(error));
    }
  };
  range.addEventListener("change", load);
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
        el("div", { class: "labelless" }, field("Range", range)),
        el("div", { class: "labelless" }, field("Time zone", zone.control), zone.list),
        el("button", { type: "button", id: "reload", onclick: load }, "Refresh"),
        el("button", { type: "button", onclick: download }, "CSV"),
      ),
    ),
    body,
  );
}

function tiles(stats) {
  const tile = (name, value) => el("div", { class: "tile" }, el("dt", {}, name), el("dd", { id: `total-${name.toLowerCase()}` }, count(value)));
  return el("dl", { class: "tiles" }, tile("Clicks", stats.clicks), tile("Visitors", stats.visitors), tile("Addresses", stats.addresses));
}

/** Orders that followed clicks. */
function sold(orders) {
  const money = ([currency, amount]) => {
    const format = new Intl.NumberFormat("en", { style: "currency", currency });
    return format.format(amount / 10 ** format.resolvedOptions().maximumFractionDigits);
  };
  const revenue = Object.entries(orders.revenue).map(money).join(", ") || "–";
  const tile = (name, id, value) => el("div", { class: "tile" }, el("dt", {}, name), el("dd", { id }, value));
  return el(
    "dl",
    { class: "tiles" },
    tile("Orders", "total-orders", count(orders.orders)),
    tile("Paid", "total-paid", count(orders.paid_orders)),
    tile("Revenue", "total-revenue", revenue),
  );
}

function parts(stats) {
  const shown = Object.entries(PARTS).map(([part, title]) => breakdown(title, part, stats[part] ?? {}));
  const hint = "Breakdowns are by UTC day. A visitor on two days counts twice, because visitors are not tracked across days.";
  return [el("div", { class: "breakdowns" }, shown), el("p", { class: "hint" }, hint)];
}
