// Customers: their status for all sales, and the lists of blocked users and of those exempt from risk checks.

import { api } from "./api.js";
import { ask, button, check, el, empty, field, replace, select, state, table, working } from "./dom.js";
import { instant } from "./format.js";

const PAGE = 100;
const HEADS = ["User", "Status", "Reason", "By", "Since", "Action"];
const STATUSES = [["blocked", "Blocked: cannot buy"], ["allowed", "Allowed: exempt from risk checks"]];
const SHOWN = [["blocked", "Blocked"], ["allowed", "Allowed"]];
const TEXT_MAX = 200;

const badge = (status) => state(status, { blocked: "bad", allowed: "info" }[status]);
const pageOf = (user) => `#/users?user=${encodeURIComponent(user)}`;

/** A button that takes a user off the list. */
function remover(desk, user, said, done) {
  return button("Remove", { class: "danger small", "aria-label": `Remove ${user}` }, said, async () => {
    if (!(await ask(`Remove ${user} from the list?`, "The normal rules apply again.", "Remove from list", "Keep on list"))) {
      return null;
    }
    const before = await api.user(user);
    await api.clearUser(user, { operator: desk.who.name });
    await done();
    return [`${user} is removed from the list.`, async () => {
      await api.setUser(user, { status: before.status, reason: before.reason, operator: desk.who.name });
      await done();
    }];
  });
}

function row(desk, one, said, list) {
  const act = desk.may("sales:write") ? remover(desk, one.user, said, list) : "";
  return [el("a", { href: pageOf(one.user) }, one.user), badge(one.status), one.reason ?? "–", one.operator ?? "–", one.at_ms ? instant(one.at_ms) : "–", act];
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
    replace(shown, rows.length > 0 ? table("users", HEADS, rows) : empty("nobody", `No ${status.value} users.`));
    return null;
  };
  const more = button("More", { class: "quiet", id: "more" }, said, () => load(false));
  const reload = working(status, said, () => load(true));
  status.addEventListener("change", reload);
  const card = el("section", { class: "card", "aria-label": "The list" }, el("h2", {}, "Listed users"), field("Show", status), said, shown, el("div", { class: "row" }, more));
  return { card, load: () => load(true), show: (value) => { status.value = value; } };
}

/** The form that opens the page of a customer. */
function looker(user) {
  const control = el("input", { type: "search", name: "looked", value: user ?? "", autocomplete: "off", spellcheck: "false" });
  const submitted = (event) => {
    event.preventDefault();
    if (control.value.trim()) {
      location.hash = pageOf(control.value.trim());
    }
  };
  return el("form", { class: "card", id: "look", role: "search", onsubmit: submitted },
    el("div", { class: "together" }, field("Find a customer", control, "A user’s id."), el("button", { type: "submit", class: "primary" }, "Show")));
}

/** The status of one user and its changes so far. */
async function status(desk, user) {
  const found = await api.user(user);
  const rows = found.log.map((one) => [one.at_ms ? instant(one.at_ms) : "–", badge(one.status), one.reason ?? "–", one.operator ?? "–"]);
  return el("section", { class: "card", id: "looked", "aria-label": "Status" },
    el("div", { class: "row apart" }, el("p", {}, `${found.user}: `, badge(found.status)), el("div", { class: "row" },
      desk.may("events:read") && el("a", { class: "button", href: `#/events/customers?customer=${encodeURIComponent(user)}` }, "View events"),
      el("a", { class: "button", href: `#/orders?user=${encodeURIComponent(user)}` }, "View orders"))),
    rows.length > 0 ? table("log", ["Since", "Status", "Reason", "By"], rows) : el("p", { class: "hint" }, "No changes on record."));
}

const length = (text) => [...text.trim()].length;

/** The form that adds a user to the list. */
function setter(desk, given, done) {
  const user = el("input", { name: "user", value: given ?? "", autocomplete: "off", spellcheck: "false" });
  const status = select(STATUSES, "blocked", { name: "status" });
  const reason = el("input", { name: "reason", autocomplete: "off" });
  const said = el("div", { id: "set-said" });
  const submit = el("button", { type: "submit" }, "Save status");
  const set = working(submit, said, async () => {
    const isReason = length(reason.value) >= 1 && length(reason.value) <= TEXT_MAX;
    check([
      [user, user.value.trim() ? null : "Must be a valid user id."],
      [reason, isReason ? null : `Must be 1 to ${TEXT_MAX} characters.`],
    ]);
    const name = user.value.trim();
    const [title, text, deed] = status.value === "blocked"
      ? [`Block ${name} in all sales?`, "The user cannot buy anywhere. Existing orders are kept.", "Block user"]
      : [`Exempt ${name} from risk checks?`, "Risk checks let this user pass in all sales.", "Allow user"];
    if (!(await ask(title, text, deed, "Keep as is"))) {
      return null;
    }
    const now = await api.setUser(name, { status: status.value, reason: reason.value.trim(), operator: desk.who.name });
    await done(now.status);
    user.value = given ?? "";
    reason.value = "";
    return `${name} is ${now.status}.`;
  });
  return el(
    "form",
    { class: "card", id: "set-user", novalidate: true, onsubmit: set },
    el("h2", {}, "Block or allow a user"),
    said,
    el("div", { class: "grid" }, field("User", user), field("Status", status), field("Reason", reason, "Visible to other operators.")),
    el("div", { class: "row" }, submit),
  );
}

export async function users(desk, user) {
  const mayChange = desk.may("sales:write");
  if (user) {
    const shown = el("div", {}, await status(desk, user));
    const again = async () => replace(shown, await status(desk, user));
    return ["Customer", el("p", {}, el("a", { class: "back", href: "#/users" }, "Customers")), looker(user), shown, mayChange && setter(desk, user, again)];
  }
  const list = listed(desk);
  await list.load();
  const done = async (now) => {
    list.show(now);
    await list.load();
  };
  return ["Customers", looker(), list.card, mayChange && setter(desk, null, done)];
}
