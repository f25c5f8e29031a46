// Dead letters, grouped by reason: view, edit, send again, discard, one or all of a reason.

import { ask, button, complaint, el, empty, field, replace, state } from "../../ui/dom.js";
import { count, instant, plural } from "../../ui/format.js";
import { api } from "./api.js";

/** Letters of one page; more are loaded on request. */
const PAGE = 100;

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function letterRow(desk, letter, reload) {
  const said = el("div", {});
  const sent = letter.sent;
  const text = el("textarea", { rows: "6", spellcheck: "false" });
  text.value = sent ? pretty(sent.event) : JSON.stringify(letter.event ?? letter.record ?? null, null, 2);
  const mayChange = desk.may("events:write");
  text.readOnly = !sent || !mayChange;
  const again = button("Send again", { class: "small resend" }, said, async () => {
    await api.resend(letter.id);
    await reload();
    return "Sent again.";
  });
  const edit = async () => {
    let event;
    try {
      event = JSON.parse(text.value);
    } catch (error) {
      throw new Error(`Invalid JSON: ${error.message}`);
    }
    await api.edit(letter.id, event);
    return "Saved. It is validated when you send it again.";
  };
  const remove = async () => {
    if (!(await ask("Discard this event?", "It is deleted and cannot be sent again.", "Discard event", "Keep event"))) {
      return null;
    }
    await api.remove(letter.id);
    await reload();
    return "Discarded.";
  };
  return el(
    "li",
    { class: "letter" },
    el("div", { class: "row apart" },
      el("div", {}, el("strong", {}, letter.message), el("p", { class: "hint" }, `${letter.group} · ${instant(letter.dead_at_ms)}${letter.edited_at_ms ? " · edited" : ""}`)),
      mayChange && el("div", { class: "row" }, again, button("Discard", { class: "danger small" }, said, remove))),
    el("details", {}, el("summary", {}, sent && mayChange ? "View and edit" : "View"),
      field(sent?.is_cut ? "The event (only its beginning was stored)" : "The event", text),
      sent && mayChange && el("p", {}, button("Save", { class: "save" }, said, edit))),
    said,
  );
}

/** The letters of one reason, with an action for all of them. */
function reasonGroup(desk, reason, letters, { hasMore, isOpen, said, reload, group }) {
  const many = hasMore ? `at least ${count(letters.length)}` : count(letters.length);
  const all = desk.may("events:write") && button("Send all again", { class: "small resend-all" }, said, async () => {
    const given = group ? { group, reason } : { reason };
    if (!(await ask(`Send all with the reason “${reason}” again?`, `These are ${many}. Each is validated or handled again.`, "Send all again", "Keep them here"))) {
      return null;
    }
    const { accepted, remaining } = await api.resendMany(given);
    await reload();
    return `${count(accepted)} accepted, ${count(remaining)} not accepted.`;
  });
  const rows = letters.map((one) => letterRow(desk, one, reload));
  return el("details", { class: "card", open: isOpen }, el("summary", {}, state(reason, "bad"), ` ${many}`),
    el("div", { class: "row" }, all), el("ul", { class: "rows" }, rows));
}

/** The letters by reason, the most frequent first. */
function byReason(letters) {
  const found = new Map();
  for (const letter of letters) {
    found.set(letter.reason, [...(found.get(letter.reason) ?? []), letter]);
  }
  return [...found].sort(([, one], [, other]) => other.length - one.length);
}

/** The section of dead letters. */
export function deadLetters(desk, given) {
  const control = (name, hint) => el("input", { name, value: given.get(name) ?? "", placeholder: hint, autocomplete: "off", spellcheck: "false" });
  const of = { group: control("group", "all, or collect"), reason: control("reason", "all") };
  const [list, said, more] = [el("div", { class: "stack" }), el("div", {}), el("div", { class: "row" })];
  let letters = [];
  const query = () => Object.fromEntries(Object.entries(of).map(([name, { value }]) => [name, value.trim()]).filter(([, value]) => value));
  const load = async (page = null) => {
    const found = await api.letters({ ...query(), limit: PAGE, page });
    letters = page ? letters.concat(found.dead_letters) : found.dead_letters;
    const groups = byReason(letters);
    const shown = groups.map(([reason, some], at) =>
      reasonGroup(desk, reason, some, { hasMore: Boolean(found.next_page), isOpen: at === 0, said, reload: () => load(), group: query().group }));
    replace(list, shown.length > 0 ? shown : empty("no-letters", "No dead letters: every event was handled."));
    replace(more, found.next_page && [button("More", {}, said, () => load(found.next_page)), el("span", { class: "hint" }, `${plural(letters.length, "dead letter")} loaded`)]);
    return null;
  };
  const show = () => load().catch((error) => replace(said, complaint(error)));
  const submit = (event) => {
    event.preventDefault();
    show();
  };
  const form = el("form", { class: "card row low", onsubmit: submit }, field("Group", of.group), field("Reason", of.reason), el("button", { type: "submit" }, "Show"));
  const section = el("section", { id: "letters", class: "stack", "aria-label": "Dead letters" }, form, said, list, more);
  section.addEventListener("opened", show);
  return section;
}
