// The audit trail: who changed what, the latest first.

import { api } from "./api.js";
import { complaint, el, field, replace, state, table } from "./dom.js";
import { instant } from "./format.js";

const PAGE = 50;
const HEADS = ["When", "Who", "What", "From", "Outcome"];

/** The outcome as a label. */
function verdict(entry) {
  if (entry.status === null) {
    return state("Not known", false);
  }
  return state(String(entry.status), entry.status < 400);
}

function row(entry) {
  const what = [el("code", {}, `${entry.method} ${entry.path}`), entry.made && el("span", { class: "hint" }, ` created ${entry.made}`)];
  return [
    instant(entry.at_ms),
    el("span", { title: entry.actor }, entry.actor_name, el("span", { class: "hint" }, entry.session ? " in the console" : "")),
    el("span", {}, what),
    entry.source || "–",
    verdict(entry),
  ];
}

export async function audit() {
  const actor = el("input", { type: "search", name: "actor", autocomplete: "off", spellcheck: "false" });
  const [said, shown] = [el("div", {}), el("div", {})];
  const more = el("button", { type: "button", class: "quiet", id: "more" }, "More");
  let entries = [];
  let after = null;
  const load = async (isFirst) => {
    const page = await api.trail({ actor: actor.value.trim(), after: isFirst ? null : after, limit: PAGE });
    entries = isFirst ? page.entries : entries.concat(page.entries);
    after = page.next;
    more.hidden = !after;
    replace(said);
    replace(shown, entries.length > 0 ? table("trail", HEADS, entries.map(row)) : el("p", { class: "hint" }, "No entries."));
  };
  const tell = (error) => replace(said, complaint(error));
  more.addEventListener("click", () => load(false).catch(tell));
  actor.addEventListener("change", () => load(true).catch(tell));
  await load(true);
  return [
    "Audit trail",
    el(
      "section",
      { class: "card", "aria-label": "Entries" },
      field("Only this key's", actor, "A key id, or admin-token."),
      said,
      shown,
      el("div", { class: "row" }, more),
    ),
  ];
}
