// Gateways as they report themselves: versions, filters, rules, rooms and routes, and what differs between them.

import { api } from "./api.js";
import { complaint, el, empty, refresh, replace, state, table } from "./dom.js";
import { count, plural, relative } from "./format.js";

/** Gateways report every 45 seconds. */
const PERIOD_MS = 10_000;

/** Gateways whose latest report is older may be gone. */
const LATE_MS = 75_000;

const KINDS = { rule: "Rule", room: "Room", route: "Route", version: "Version", configuration: "Configuration" };
const kindOf = (kind) => KINDS[kind] ?? kind;

/** The gateways of a variant in words. */
const namesOf = ({ count: all, gateways }) => `${gateways.join(", ")}${all > gateways.length ? ` and ${count(all - gateways.length)} more` : ""}`;

/** A difference in one line, for the overview. */
export function differenceOf({ filter, kind, name, variants }) {
  const of = variants.map((variant) => `${variant.value || "missing"} on ${namesOf(variant)}`);
  const what = kind === "configuration" ? "the configuration differs" : `${kindOf(kind).toLowerCase()}${name ? ` “${name}”` : ""}: ${of.join("; ")}`;
  return `${filter}: ${what}.`;
}

function differences(found) {
  if (found.length === 0) {
    return el("p", { class: "notice good", id: "no-differences" }, "All gateways run the same versions, rules, rooms and routes.");
  }
  const rows = found.map(({ filter, kind, name, variants }) => [
    el("span", {}, kindOf(kind), name && [" ", el("code", {}, name)]),
    filter,
    el("ul", { class: "plain" }, variants.map((one) => el("li", {}, el("strong", {}, one.value || "Missing"), ` on ${namesOf(one)}`))),
  ]);
  return table("differences", ["What differs", "Filter", "Variants"], rows, found.map(({ filter, kind, name }) => `${filter} ${kind} ${name}`));
}

/** The distinct values of all filters of a gateway. */
const distinct = (values) => [...new Set(values)].join(", ");

function itemsOf(gateway) {
  const rows = gateway.filters.flatMap(({ filter, items }) => items.map((item) => [el("code", {}, item.name), kindOf(item.kind), filter, item.text || "–"]));
  const left = gateway.filters.reduce((sum, one) => sum + one.left_out, 0);
  return [
    rows.length > 0 ? table(`items-${gateway.name}`, ["Name", "Kind", "Filter", "Settings"], rows) : el("p", { class: "hint" }, "No rules, rooms or routes."),
    left > 0 && el("p", { class: "hint" }, `${plural(left, "more item")} did not fit into the report.`),
  ];
}

function gatewayRow(gateway, now) {
  const latest = Math.max(...gateway.filters.map((one) => one.at_ms));
  const of = (kind) => count(gateway.filters.flatMap((one) => one.items).filter((item) => item.kind === kind).length);
  return [
    gateway.name,
    distinct(gateway.filters.map((one) => one.version)),
    gateway.filters.map((one) => one.filter).join(", "),
    of("rule"),
    of("room"),
    now - latest > LATE_MS ? state(`Silent, ${relative(latest, now)}`, "warn") : relative(latest, now),
  ];
}

export async function gateways(desk) {
  const [said, drift, list, more] = [el("div", {}), el("div", {}), el("div", {}), el("div", { class: "stack" })];
  const look = async () => {
    try {
      const found = await api.gateways();
      const now = Date.now();
      const names = found.gateways.map((one) => one.name);
      refresh(drift, names.length > 0 && differences(found.differences));
      refresh(list, names.length > 0
        ? table("gateways", ["Gateway", "Version", "Filters", "#Rules", "#Rooms", "Reported"], found.gateways.map((one) => gatewayRow(one, now)), names)
        : empty("no-gateways", "No gateway has reported in the last two minutes. A gateway reports from its first request on."));
      refresh(more, found.gateways.map((one) => el("details", { class: "card", "data-key": one.name }, el("summary", {}, `Running on ${one.name}`), itemsOf(one))));
      replace(said);
    } catch (error) {
      replace(said, complaint(error));
    }
  };
  await look();
  const timer = setInterval(() => document.hidden || look(), PERIOD_MS);
  desk.onLeave(() => clearInterval(timer));
  return ["Gateways", said, el("section", { class: "card", "aria-label": "Gateways" }, list),
    el("section", { class: "card", "aria-labelledby": "drift-title" }, el("h2", { id: "drift-title" }, "Differences"), drift), more];
}
