// The audit trail in sentences: who did what to which object, the latest first.

import { api } from "./api.js";
import { complaint, el, empty, field, replace, select, state, table } from "./dom.js";
import { exactly, instant, length, relative, time } from "./format.js";

const PAGE = 50;
const HEADS = ["When", "What", "From", "Result"];

/** Pages to read for one press of More, if the filters leave nothing of them. */
const PAGES_MAX = 10;

/**
 * Sentences by method and route: a verb, and what stands before the object's name. `{…}` are the parts of the path; the
 * first is the object.
 */
const VERBS = {
  "POST /sales": ["created", "a sale"],
  "PATCH /sales/{id}": ["changed the settings of", "sale"],
  "POST /sales/{id}/warm": ["warmed", "sale"],
  "POST /sales/{id}/rebuild": ["loaded cold shards of", "sale"],
  "POST /sales/{id}/close": ["closed", "sale"],
  "PUT /sales/{id}/switch": ["switched", "sale"],
  "POST /sales/{id}/stock": ["changed the stock of", "sale"],
  "PUT /sales/{id}/blocked/{user}": ["blocked a user in", "sale"],
  "DELETE /sales/{id}/blocked/{user}": ["unblocked a user in", "sale"],
  "POST /sales/{id}/lost-orders": ["decided on lost orders of", "sale"],
  "PUT /switch": ["switched", "all sales"],
  "POST /order-batches": ["cancelled or refunded", "several orders"],
  "POST /orders/{id}/cancel": ["cancelled", "order"],
  "POST /orders/{id}/refund": ["refunded", "order"],
  "POST /payments/{id}/refunded": ["marked as refunded:", "payment"],
  "PUT /user-list/{user}": ["set the status of", "user"],
  "DELETE /user-list/{user}": ["removed from the list:", "user"],
  "PUT /rooms/{room}": ["changed", "waiting room"],
  "DELETE /rooms/{room}": ["reset to the configuration:", "waiting room"],
  "POST /links": ["created", "a link"],
  "PATCH /links/{code}": ["changed", "link"],
  "DELETE /links/{code}": ["deleted", "link"],
  "POST /link-imports": ["imported", "links"],
  "POST /link-reports": ["shared", "a link report"],
  "DELETE /link-reports/{id}": ["revoked", "link report"],
  "PUT /link-utm-templates/{name}": ["saved", "UTM template"],
  "DELETE /link-utm-templates/{name}": ["deleted", "UTM template"],
  "PUT /link-domains": ["replaced", "all link domains"],
  "PUT /link-domains/{id}": ["saved", "link domain"],
  "DELETE /link-domains/{id}": ["deleted", "link domain"],
  "POST /access/keys": ["created", "a key"],
  "DELETE /access/keys/{id}": ["revoked", "key"],
  "POST /access/session": ["signed in", ""],
  "DELETE /access/session": ["signed out", ""],
  "PUT /tenants/{id}": ["saved", "tenant"],
  "DELETE /tenants/{id}": ["removed", "tenant"],
  "PUT /events/types/{name}": ["saved", "event type"],
  "DELETE /events/types/{name}": ["deleted", "event type"],
  "PUT /events/segments/{name}": ["saved", "segment"],
  "DELETE /events/segments/{name}": ["deleted", "segment"],
  "POST /events/segments/{name}/evaluate": ["evaluated", "segment"],
  "POST /groups/{group}/pause": ["paused", "consumer group"],
  "POST /groups/{group}/resume": ["resumed", "consumer group"],
  "POST /groups/{group}/seek": ["moved", "consumer group"],
  "POST /groups/{group}/retries/now": ["retried now:", "consumer group"],
  "PUT /events/dead-letters/{id}": ["edited", "dead letter"],
  "POST /events/dead-letters/{id}/resend": ["sent again:", "dead letter"],
  "DELETE /events/dead-letters/{id}": ["discarded", "dead letter"],
  "POST /events/dead-letters/resend": ["sent again:", "dead letters"],
  "POST /fitment/imports": ["imported", "fitment"],
  "DELETE /fitment/imports/{id}": ["cancelled", "fitment import"],
};

/** What the methods do to objects without a sentence of their own. */
const PLAIN = { POST: "added to", PUT: "saved", PATCH: "changed", DELETE: "deleted" };

/** Where the console shows an object, by the start of its path. */
const PLACES = [
  [/^\/sales\/([a-z0-9-]+)/, (id) => `#/sales/id/${id}`],
  [/^\/orders\/([^/]+)/, (id) => `#/orders/${id}`],
  [/^\/user-list\/([^/]+)/, (user) => `#/users?user=${user}`],
  [/^\/rooms\//, () => "#/rooms"],
  [/^\/links\/([^/?]+)\?domain=([a-z0-9-]+)/, (code, domain) => `#/links/l/${domain}/${decodeURIComponent(code)}`],
  [/^\/link-domains\/([a-z0-9-]+)/, (id) => `#/domains/${id}`],
];

const ACTIONS = [["", "Any"], ["POST", "Created or done"], ["PUT", "Saved"], ["PATCH", "Changed"], ["DELETE", "Deleted"]];

/** The name of the object in a path: what the first `{…}` of its route matches. */
function objectOf(entry) {
  const at = entry.route.split("/").findIndex((part) => part.startsWith("{"));
  return at < 0 ? null : decodeURIComponent(entry.path.split("/")[at] ?? "");
}

function placed(path, text) {
  for (const [pattern, of] of PLACES) {
    const found = path.match(pattern);
    if (found) {
      return el("a", { href: of(...found.slice(1)) }, text);
    }
  }
  return el("strong", {}, text);
}

/** An entry as a sentence. */
export function sentence(entry) {
  const [verb, kind] = VERBS[`${entry.method} ${entry.route}`] ?? [PLAIN[entry.method] ?? entry.method, entry.route.split("/")[1]];
  const object = entry.created?.split("?")[0].split("/").at(-1) ?? objectOf(entry);
  const path = entry.created ?? entry.path;
  const who = el("strong", { title: entry.actor }, entry.actor_name);
  const raw = el("details", {}, el("summary", { class: "hint" }, "Request"), el("code", {}, `${entry.method} ${entry.path}`), entry.session && el("span", { class: "hint" }, " in the console"));
  return el("div", {}, who, ` ${verb} ${kind} `, object && placed(path, object), detailOf(entry), raw);
}

/** A value of a changed member: times and durations in words. */
function valueOf(name, text) {
  if (!name.endsWith("_ms") || !/^\d+$/.test(text)) {
    return text;
  }
  const isTime = /(_at|from|until)_ms$/.test(name);
  return isTime ? (text === "0" ? "none" : time(Number(text))) : length(Number(text));
}

/** What was set, from and to. */
function detailOf(entry) {
  const parts = entry.detail?.split(", ").map((part) => {
    const [, name, before, after] = /^([\w.]+): (.*) to (.*)$/.exec(part) ?? [];
    return name ? `${name.replace(/_ms$/, "").replace(/[._]/g, " ")}: ${valueOf(name, before)} → ${valueOf(name, after)}` : part;
  });
  return parts && el("p", { class: "hint" }, parts.join(", "));
}

/** The result as a label. */
function result(entry) {
  if (entry.status === null) {
    return state("Not known", "warn");
  }
  const isDone = entry.status < 400;
  return el("span", { title: String(entry.status) }, state(isDone ? "Done" : `Refused (${entry.status})`, isDone ? "good" : "bad"));
}

const row = (entry) => [
  el("span", { class: "nowrap", title: exactly(entry.at_ms) }, instant(entry.at_ms), el("br"), el("span", { class: "hint" }, relative(entry.at_ms))),
  sentence(entry),
  el("code", {}, entry.source || "–"),
  result(entry),
];

/** The entries whose path starts with `path`, loaded when they are shown. */
export function trailOf(desk, path) {
  const shown = el("div", {}, el("p", { class: "hint" }, "Loading …"));
  const card = el("section", { class: "card", "aria-label": "Activity" }, shown);
  const load = async () => {
    try {
      const { entries } = await api.trail({ limit: 200 });
      const found = entries.filter((entry) => entry.path === path || entry.path.startsWith(`${path}/`) || entry.created === path);
      const hint = el("p", { class: "hint" }, "From the latest 200 changes. ", el("a", { href: `#/audit?object=${path.split("/").at(-1)}` }, "Search all changes"));
      replace(shown, found.length > 0 ? table("activity", HEADS, found.map(row)) : empty("no-activity", "No recent changes."), hint);
    } catch (error) {
      replace(shown, complaint(error));
    }
  };
  card.addEventListener("opened", load);
  return card;
}

export async function audit(desk, search) {
  const given = new URLSearchParams(search ?? "");
  const text = (name, type = "search") => el("input", { type, name, value: given.get(name) ?? "", autocomplete: "off", spellcheck: "false" });
  const of = { actor: text("actor"), object: text("object"), day: text("day", "date"), method: select(ACTIONS, given.get("method") ?? "", { name: "method" }) };
  const [said, shown] = [el("div", {}), el("div", {})];
  const more = el("button", { type: "button", class: "quiet", id: "more" }, "More");
  let entries = [];
  let after = null;
  const isWanted = (entry) => {
    const object = of.object.value.trim().toLowerCase();
    return (!of.method.value || entry.method === of.method.value)
      && (!of.day.value || instant(entry.at_ms).startsWith(of.day.value))
      && (!object || `${entry.path} ${entry.created ?? ""}`.toLowerCase().includes(object));
  };
  const load = async (isFirst) => {
    const found = isFirst ? [] : entries;
    const before = found.length;
    let cursor = isFirst ? null : after;
    for (let pages = 0; pages < PAGES_MAX && found.length - before < PAGE; pages += 1) {
      const page = await api.trail({ actor: of.actor.value.trim(), after: cursor, limit: PAGE });
      found.push(...page.entries.filter(isWanted));
      cursor = page.next;
      if (!cursor) {
        break;
      }
    }
    [entries, after] = [found, cursor];
    more.hidden = !after;
    replace(said);
    replace(shown, entries.length > 0 ? table("trail", HEADS, entries.map(row)) : empty("no-entries", after ? "No match so far. Press More to search further back." : "No entries match."));
  };
  const tell = (error) => replace(said, complaint(error));
  more.addEventListener("click", () => load(false).catch(tell));
  for (const control of Object.values(of)) {
    control.addEventListener("change", () => load(true).catch(tell));
  }
  await load(true);
  return [
    "Audit trail",
    el(
      "section",
      { class: "card", "aria-label": "Entries" },
      el("div", { class: "grid" },
        field("Filter by key", of.actor, "A key id, or admin-token."), field("Object", of.object, "Part of its name, such as a sale’s id."),
        field("Action", of.method), field("Day", of.day)),
      said,
      shown,
      el("div", { class: "row" }, more),
    ),
  ];
}
