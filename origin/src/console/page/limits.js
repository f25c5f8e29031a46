// The rules that gateways read from Redis. What they count is in the gateways' metrics, which the origin does not see.

import { api } from "./api.js";
import { el, table } from "./dom.js";

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
    return el("p", { class: "notice bad" }, `What is there is no JSON, so gateways refuse it and keep the rules that they have: ${limits.unreadable}`);
  }
  if (!limits.document) {
    return el("p", { id: "no-rules" }, "There are no rules in Redis: each gateway has those of its own configuration, which the origin does not know.");
  }
  const whole = el("pre", {}, JSON.stringify(limits.document, null, 2));
  return [rules(limits.document), el("details", {}, el("summary", {}, "As it was written"), whole)];
}

export async function limits() {
  const found = await api.limits();
  return [
    "Limits",
    el(
      "section",
      { class: "card", "aria-labelledby": "rules-title" },
      el("h2", { id: "rules-title" }, "Rules in Redis"),
      el("p", { class: "hint" }, "Gateways with “reload” read them from ", el("code", {}, found.key), "."),
      shown(found),
    ),
    el(
      "section",
      { class: "card", "aria-labelledby": "counts-title" },
      el("h2", { id: "counts-title" }, "What they refuse"),
      el("p", {}, "The origin does not know it. Gateways count it by rule, also what a rule in shadow would have refused: ",
        el("code", {}, "weir_ratelimit_limited_total"), " and ", el("code", {}, "weir_ratelimit_shadow_limited_total"),
        " at Envoy's /stats/prometheus."),
    ),
  ];
}
