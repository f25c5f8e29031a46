// Dead letters: show, correct, send again, delete.

import { api } from "./api.js";
import { asking, bad, button, el, field, instant } from "./dom.js";

const PAGE = 20;

function letterCard(letter, reload) {
  const said = el("div", {});
  const sent = letter.sent;
  const text = el("textarea", { rows: "6", spellcheck: "false" });
  text.value = sent ? pretty(sent.event) : JSON.stringify(letter.event ?? letter.record ?? null, null, 2);
  text.readOnly = !sent;
  const again = button("Send again", { class: "primary resend" }, said, async () => {
    await api.resend(letter.id);
    await reload();
    return null;
  });
  const mend = async () => {
    let event;
    try {
      event = JSON.parse(text.value);
    } catch (error) {
      throw new Error(`Invalid JSON: ${error.message}`);
    }
    await api.mend(letter.id, event);
    return "Saved. It is validated when you send it again.";
  };
  const remove = async () => {
    await api.remove(letter.id);
    await reload();
    return null;
  };
  return el(
    "li",
    { class: "card letter" },
    el(
      "div",
      { class: "row apart" },
      el("h3", {}, letter.message),
      el("span", { class: "state off" }, letter.reason),
    ),
    el("p", { class: "hint" }, `${letter.group} · ${instant(letter.dead_at_ms)}${letter.edited_at_ms ? " · mended" : ""}`),
    el(
      "details",
      {},
      el("summary", {}, sent ? "Show and edit" : "Show"),
      field(sent?.is_cut ? "The event (only its beginning was stored)" : "The event", text),
      sent ? button("Save", { class: "mend" }, said, mend) : null,
    ),
    el("div", { class: "row" }, again, asking("Delete", "Confirm delete", { class: "danger" }, said, remove)),
    said,
  );
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** The section of dead letters, and a function that shows those of one group in it. */
export function deadLetters() {
  const group = el("input", { name: "group", placeholder: "all, or collect", autocomplete: "off" });
  const reason = el("input", { name: "reason", placeholder: "all", autocomplete: "off" });
  const [list, said, more] = [el("ul", { class: "stack" }), el("div", {}), el("div", { class: "row" })];
  const query = () => {
    const wanted = { group: group.value.trim(), reason: reason.value.trim() };
    return Object.fromEntries(Object.entries(wanted).filter(([, value]) => value));
  };
  const load = async (page) => {
    const told = await api.letters({ ...query(), limit: PAGE, ...(page ? { page } : {}) });
    const cards = told.dead_letters.map((letter) => letterCard(letter, () => load()));
    if (page) {
      list.append(...cards);
    } else {
      list.replaceChildren(...(cards.length > 0 ? cards : [el("li", { class: "hint" }, "None.")]));
    }
    more.replaceChildren(...(told.next_page ? [button("More", {}, said, () => load(told.next_page))] : []));
    return null;
  };
  const show = () => load().catch((error) => said.replaceChildren(bad(error.message)));
  const all = asking("Send all again", "Confirm send all", { class: "resend-all" }, said, async () => {
    const { taken, left } = await api.resendMany(query());
    await load();
    return `${taken} accepted, ${left} not accepted.`;
  });
  const submit = (event) => {
    event.preventDefault();
    show();
  };
  const section = el(
    "section",
    { id: "letters", "aria-labelledby": "letters-title" },
    el("h2", { id: "letters-title" }, "Dead letters"),
    el(
      "div",
      { class: "stack" },
      el(
        "form",
        { class: "row ends", onsubmit: submit },
        field("Group", group),
        field("Reason", reason),
        el("button", { type: "submit" }, "Show"),
        all,
      ),
      said,
      list,
      more,
    ),
  );
  const showOf = (name) => {
    // The letters of the group `store` are events that were refused on arrival.
    group.value = name;
    reason.value = "";
    section.scrollIntoView();
    return show();
  };
  return { section, show, showOf };
}
