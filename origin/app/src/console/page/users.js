// Users who are blocked in every sale, or exempt from risk checks.

import { api } from "./api.js";
import { ask, button, el, field, mark, replace, select, state, table, working } from "./dom.js";
import { instant } from "./format.js";

const PAGE = 100;
const HEADS = ["User", "Status", "Reason", "By", "Since", "Action"];
const STATUSES = [["blocked", "Blocked: cannot buy"], ["allowed", "Allowed: exempt from risk checks"]];
const SHOWN = [["blocked", "Blocked"], ["allowed", "Allowed"]];
const TEXT_MAX = 200;

const badge = (status) => state(status, status !== "blocked");

function row(desk, one, said, list) {
  const remove = async () => {
    if (!(await ask(`Remove ${one.user} from the list?`, "The user loses this status.", "Remove"))) {
      return null;
    }
    await api.clearUser(one.user, { operator: desk.who.name });
    await list();
    return `${one.user} is removed from the list.`;
  };
  const act = desk.may("sales:write") ? button("Remove", { class: "danger small", "aria-label": `Remove ${one.user}` }, said, remove) : "";
  return [one.user, badge(one.status), one.reason ?? "–", one.operator ?? "–", one.at_ms ? instant(one.at_ms) : "–", act];
}

/** The list, page by page. */
function listed(desk) {
  const said = el("div", { id: "said" });
  const shown = el("div", { id: "listed" });
  const status = select(SHOWN, "blocked", { name: "shown" });
  let users = [];
  const load = async (isFirst) => {
    const after = isFirst ? null : users.at(-1)?.user;
    const page = await api.users({ status: status.value, limit: PAGE, after });
    users = isFirst ? page : users.concat(page);
    more.hidden = page.length < PAGE;
    const rows = users.map((one) => row(desk, one, said, () => load(true)));
    replace(shown, rows.length > 0 ? table("users", HEADS, rows) : el("p", { class: "hint", id: "nobody" }, "None."));
    return null;
  };
  const more = button("More", { class: "quiet", id: "more" }, said, () => load(false));
  const reload = working(status, said, () => load(true));
  status.addEventListener("change", reload);
  const card = el("section", { class: "card", "aria-label": "The list" }, field("Show", status), said, shown, el("div", { class: "row" }, more));
  return { card, load: () => load(true), show: (value) => { status.value = value; } };
}

/** The form that shows a user's status and earlier changes. */
function looker() {
  const user = el("input", { type: "search", name: "looked", autocomplete: "off", spellcheck: "false" });
  const [said, shown] = [el("div", {}), el("div", { id: "looked" })];
  const submit = el("button", { type: "submit" }, "Look up");
  const look = working(submit, said, async () => {
    replace(shown);
    const found = await api.user(user.value.trim());
    const rows = found.log.map((one) => [one.at_ms ? instant(one.at_ms) : "–", badge(one.status), one.reason ?? "–", one.operator ?? "–"]);
    const log = rows.length > 0 ? table("log", ["Since", "Status", "Reason", "By"], rows) : null;
    replace(shown, el("p", {}, `${found.user}: `, badge(found.status)), log);
    return null;
  });
  return el("form", { class: "card", id: "look", role: "search", onsubmit: look },
    el("h2", {}, "Look up a user"), said, el("div", { class: "together" }, field("User", user), submit), shown);
}

const length = (text) => [...text.trim()].length;

/** The form that adds a user to the list. */
function setter(desk, list) {
  const user = el("input", { name: "user", autocomplete: "off", spellcheck: "false" });
  const status = select(STATUSES, "blocked", { name: "status" });
  const reason = el("input", { name: "reason", autocomplete: "off" });
  const said = el("div", { id: "set-said" });
  const submit = el("button", { type: "submit", class: "primary" }, "Add to the list");
  const set = working(submit, said, async () => {
    const isReason = length(reason.value) >= 1 && length(reason.value) <= TEXT_MAX;
    const faults = [
      [user, user.value.trim() ? null : "Must be a valid user id."],
      [reason, isReason ? null : `Must be 1 to ${TEXT_MAX} characters.`],
    ];
    faults.forEach(([control, fault]) => mark(control, fault));
    const first = faults.find(([, fault]) => fault);
    if (first) {
      first[0].focus();
      throw new Error("Some fields are invalid.");
    }
    const name = user.value.trim();
    const now = await api.setUser(name, { status: status.value, reason: reason.value.trim(), operator: desk.who.name });
    list.show(now.status);
    await list.load();
    user.value = reason.value = "";
    return `${name} is ${now.status}.`;
  });
  return el(
    "form",
    { class: "card", id: "set-user", novalidate: true, onsubmit: set },
    el("h2", {}, "Add a user to the list"),
    said,
    el("div", { class: "grid" }, field("User", user), field("Status", status), field("Reason", reason, "Visible to other operators.")),
    el("div", { class: "row" }, submit),
  );
}

export async function users(desk) {
  const list = listed(desk);
  await list.load();
  return ["Users", list.card, looker(), desk.may("sales:write") && setter(desk, list)];
}
