// The rules that gateways read from Redis, and the requests that they refused.

import { api } from "./api.js";
import { complaint, el, replace, table } from "./dom.js";
import { count } from "./format.js";

/** Gateways report every two seconds. */
const PERIOD_MS = 2_000;

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
    rule.mode ?? "enforce",
  ]);
  return table("rules", ["Rule", "Key", "Limit", "Algorithm", "Mode"], rows);
}

function shown(limits) {
  if (limits.unreadable) {
    return el("p", { class: "notice bad" }, `The rules in Redis are not valid JSON. Gateways keep their previous rules: ${limits.unreadable}`);
  }
  if (!limits.document) {
    return el("p", { id: "no-rules" }, "No rules in Redis: each gateway uses the rules of its own configuration.");
  }
  const whole = el("pre", {}, JSON.stringify(limits.document, null, 2));
  return [rules(limits.document), el("details", {}, el("summary", {}, "As written"), whole)];
}

/** The gateways' reports: by rule, and by key. */
function refused({ minutes, rules, keys }) {
  const hint = el("p", { class: "hint" }, `In the last ${minutes} minutes, by gateways with `, el("code", {}, "report"), " in their configuration.");
  if (rules.length === 0) {
    return [hint, el("p", { id: "no-refusals" }, "No requests were refused.")];
  }
  const numbers = (of) => [count(of.limited), count(of.shadow_limited), count(of.denied)];
  const byRule = rules.map((of) => [of.rule, ...numbers(of)]);
  const byKey = keys.map((of) => [of.key, of.rule, count(of.limited), count(of.shadow_limited)]);
  return [
    hint,
    table("refusals", ["Rule", "Refused", "Dry run", "On the deny list"], byRule),
    byKey.length > 0 && el("h3", {}, "Most refused keys"),
    byKey.length > 0 && table("refused-keys", ["Key", "Rule", "Refused", "Dry run"], byKey),
  ];
}

/** The card of refusals, refreshed while it is visible. */
function refusals(desk) {
  const seen = el("div", {});
  const look = async () => {
    try {
      replace(seen, refused(await api.refusals()));
    } catch (error) {
      replace(seen, complaint(error));
    }
  };
  const timer = setInterval(() => document.hidden || look(), PERIOD_MS);
  desk.onLeave(() => clearInterval(timer));
  const card = el("section", { class: "card", "aria-labelledby": "refusals-title" }, el("h2", { id: "refusals-title" }, "Refused requests"), seen);
  return [card, look()];
}

export async function limits(desk) {
  const found = await api.limits();
  const [card, first] = refusals(desk);
  await first;
  return [
    "Limits",
    card,
    el(
      "section",
      { class: "card", "aria-labelledby": "rules-title" },
      el("h2", { id: "rules-title" }, "Rules in Redis"),
      el("p", { class: "hint" }, "Gateways with “reload” read them from ", el("code", {}, found.key), "."),
      shown(found),
    ),
  ];
}
