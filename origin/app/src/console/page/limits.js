// Rate limits: the requests that gateways refused, by rule and key, and the rules that they read from Redis.

import { api } from "./api.js";
import { breakdown, line } from "./charts.js";
import { complaint, el, empty, refresh, replace, table } from "./dom.js";
import { count, plural } from "./format.js";

/** Gateways report every two seconds. */
const PERIOD_MS = 2_000;

/** Minutes of the sums, and of the chart, which changes more slowly and costs more. */
const [MINUTES, HOUR] = [5, 60];
const HOUR_PERIOD_MS = 20_000;

const COLOURS = ["c4", "c3", "c5", "c0", "c2", "c1"];

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function keyOf(rule) {
  const keys = rule.key ?? rule.by ?? null;
  return keys === null ? "–" : text(keys);
}

function limitOf(rule) {
  const limit = rule.limit ?? rule;
  if (limit.rate === undefined) {
    return text(limit);
  }
  return `${limit.rate} per ${limit.per ?? "1s"}${limit.burst === undefined ? "" : `, burst ${limit.burst}`}`;
}

function rules(document) {
  const all = document.rules ?? [];
  const rows = all.map((rule) => [
    rule.name ?? rule.id ?? "–",
    el("code", {}, keyOf(rule)),
    limitOf(rule),
    rule.algorithm ?? "–",
    rule.mode === "shadow" ? "Dry run (not enforced)" : "enforced",
  ]);
  return table("rules", ["Rule", "Key", "Limit", "Algorithm", "Mode"], rows);
}

function inRedis(limits) {
  if (limits.unreadable) {
    return el("p", { class: "notice bad" }, `The rules in Redis are not valid JSON. Gateways keep their previous rules: ${limits.unreadable}`);
  }
  if (!limits.document) {
    return empty("no-rules", "No rules in Redis: each gateway uses the rules of its own configuration.");
  }
  const whole = el("pre", {}, JSON.stringify(limits.document, null, 2));
  return [rules(limits.document), el("details", {}, el("summary", {}, "As JSON"), whole)];
}

/** The rules that gateways report, with the number of gateways that have each. */
function inGateways(gateways) {
  const rules = new Map();
  for (const gateway of gateways) {
    for (const { filter, items } of gateway.filters) {
      for (const item of items.filter(({ kind }) => kind === "rule")) {
        const key = `${filter} ${item.name} ${item.digest}`;
        const known = rules.get(key) ?? { filter, item, names: new Set() };
        known.names.add(gateway.name);
        rules.set(key, known);
      }
    }
  }
  if (rules.size === 0) {
    return empty("no-gateway-rules", "No gateway has reported a rule in the last two minutes.");
  }
  const rows = [...rules.values()].map(({ filter, item, names }) => [el("code", {}, item.name), item.text, filter,
    names.size === gateways.length ? "all gateways" : `${plural(names.size, "gateway")}: ${[...names].join(", ")}`]);
  return table("gateway-rules", ["Rule", "Limit", "Filter", "Where"], rows, [...rules.keys()]);
}

/** Refused requests by name. */
const sums = (all, name) => Object.fromEntries(all.map((of) => [name(of), of.limited + of.denied]));

/** The gateways' reports: by rule, and by key. */
function refused({ minutes, rules, keys }) {
  const hint = el("p", { class: "hint" }, `Last ${minutes} minutes, from gateways with `, el("code", {}, "report"), " in their configuration.");
  if (rules.length === 0) {
    return [hint, empty("no-refusals", "No requests were refused.")];
  }
  const numbers = (of) => [count(of.limited), count(of.shadow_limited), count(of.denied)];
  const names = rules.map((of) => of.rule);
  const byRule = rules.map((of) => [of.rule, ...numbers(of)]);
  const byKey = keys.map((of) => [of.key, of.rule, count(of.limited), count(of.shadow_limited)]);
  return [hint, table("refusals", ["Rule", "#Refused", "#Dry run (not enforced)", "#On the deny list"], byRule, names),
    byKey.length > 0 && breakdown("Most refused keys", sums(keys.slice(0, 6), (of) => `${of.key} (${of.rule})`), (name) => name),
    byKey.length > 0 && el("details", { "data-key": "keys" }, el("summary", {}, "All keys as a table"), table("refused-keys", ["Key", "Rule", "#Refused", "#Dry run (not enforced)"], byKey, keys.map((of) => `${of.rule} ${of.key}`)))];
}

/** Refusals of the last hour, by minute and rule. */
function hour({ by_minute: minutes }) {
  const names = [...new Set(minutes.flatMap(({ rules }) => rules.map((of) => of.rule)))];
  const sum = (rules, name) => rules.filter((of) => of.rule === name).reduce((all, of) => all + of.limited + of.denied, 0);
  const series = names.map((name, at) => ({ name, colour: COLOURS[at % COLOURS.length], points: minutes.map(({ at_ms, rules }) => [at_ms, sum(rules, name)]) }));
  return series.length > 0 ? series : [{ name: "Refused", colour: COLOURS[0], points: minutes.map(({ at_ms }) => [at_ms, 0]) }];
}

/** The chart of the last hour, and a function that reads it. */
export function hourChart() {
  const chart = line("Refused requests per minute, by rule", "bars");
  const show = async () => chart.show(hour(await api.refusals(HOUR)), "Last hour, from gateways that report.");
  return { element: chart.element, show };
}

/** The cards of refusals, refreshed while they are visible. */
function refusals(desk) {
  const [shown, said, top] = [el("div", {}), el("div", {}), el("div", {})];
  const chart = hourChart();
  const look = async () => {
    try {
      const found = await api.refusals(MINUTES);
      refresh(shown, refused(found));
      refresh(top, found.rules.length > 0 && breakdown("Refused, by rule", sums(found.rules, (of) => of.rule), (name) => name));
      replace(said);
    } catch (error) {
      replace(said, complaint(error));
    }
  };
  const draw = () => chart.show().catch((error) => replace(said, complaint(error)));
  for (const [work, ms] of [[look, PERIOD_MS], [draw, HOUR_PERIOD_MS]]) {
    const timer = setInterval(() => document.hidden || work(), ms);
    desk.onLeave(() => clearInterval(timer));
  }
  const cards = [
    el("section", { class: "card", "aria-label": "Refusals over time" }, said, chart.element),
    el("section", { class: "card", "aria-labelledby": "refusals-title" }, el("h2", { id: "refusals-title" }, "Refused requests"), top, shown),
  ];
  return [cards, Promise.all([look(), draw()])];
}

export async function limits(desk) {
  const [found, { gateways }] = await Promise.all([api.limits(), api.gateways()]);
  const [cards, first] = refusals(desk);
  await first;
  return [
    "Rate limits",
    cards,
    el("section", { class: "card", "aria-labelledby": "gateway-rules-title" }, el("h2", { id: "gateway-rules-title" }, "Rules in gateways"), inGateways(gateways)),
    el(
      "section",
      { class: "card", "aria-labelledby": "rules-title" },
      el("h2", { id: "rules-title" }, "Rules in Redis"),
      el("p", { class: "hint" }, "Gateways with “reload” read them from ", el("code", {}, found.key), "."),
      inRedis(found),
    ),
  ];
}
