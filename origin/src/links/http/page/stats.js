// A link's statistics.

import { api } from "./api.js";
import { breakdown, timeline } from "./charts.js";
import { el, field, replace, select } from "./dom.js";
import { count, DAY_MS } from "./format.js";
import { complaint } from "./notice.js";
import { save } from "./qr.js";

/** What can be looked at: days of UTC up to today, and by what. Whole days, by which the origin keeps the parts. */
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

function query(chosen) {
  const { days, by } = RANGES[chosen];
  const until = (Math.floor(Date.now() / DAY_MS) + 1) * DAY_MS;
  return { from_ms: until - days * DAY_MS, to_ms: until, by };
}

export function statsCard(link) {
  const range = select(Object.entries(RANGES).map(([key, { text }]) => [key, text]), "1d", { name: "range" });
  const body = el("div", { id: "stats", "aria-busy": "true" });
  const load = async () => {
    body.setAttribute("aria-busy", "true");
    const asked = query(range.value);
    try {
      const stats = await api.stats(link, asked);
      replace(body, tiles(stats), timeline(stats.series, asked.by), parts(stats));
    } catch (error) {
      replace(body, complaint(error));
    }
    body.setAttribute("aria-busy", "false");
  };
  const download = async () => {
    try {
      save(await api.csv(link, query(range.value)), `${link.domain}-${link.code}.csv`);
    } catch (error) {
      replace(body, complaint(error));
    }
  };
  range.addEventListener("change", load);
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

function parts(stats) {
  const shown = Object.entries(PARTS).map(([part, title]) => breakdown(title, part, stats[part] ?? {}));
  const hint = "Hours and days are in UTC. A visitor on two days counts twice: nobody is tracked from one day to the next.";
  return [el("div", { class: "breakdowns" }, shown), el("p", { class: "hint" }, hint)];
}
