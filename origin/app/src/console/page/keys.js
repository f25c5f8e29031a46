// Access keys and their scopes.

import { api } from "./api.js";
import { ask, button, copier, el, empty, field, replace, select, state, table, working } from "./dom.js";
import { atMinute, clock, time } from "./format.js";

const ROLES = [
  ["viewer", "Viewer: can read"],
  ["operator", "Operator: can read and change"],
  ["admin", "Admin: full access including keys"],
  ["", "Custom"],
];
const AREAS = ["sales", "rooms", "limits", "links", "events", "history", "fitment", "access"];

const words = (text) => text.split(",").map((word) => word.trim()).filter(Boolean);

function may(key) {
  const about = [...key.domains.map((domain) => `domain ${domain}`), ...key.tags.map((tag) => `tag ${tag}`)];
  return [key.role ?? key.scopes.join(", "), about.length > 0 ? ` (${about.join(", ")})` : ""].join("");
}

function row(desk, key, said) {
  const word = key.revoked_at_ms ? state("Revoked") : key.good ? state("Active", "good") : state("Expired");
  const revoke = async () => {
    if (await ask(`Revoke “${key.name}”?`, "The key stops working, and its sessions end.", "Revoke key", "Keep key")) {
      await api.revokeKey(key.id);
      await desk.refresh();
      return `“${key.name}” is revoked.`;
    }
    return null;
  };
  const act = key.good && desk.may("access:write") ? button("Revoke", { class: "danger small", "aria-label": `Revoke ${key.name}` }, said, revoke) : "";
  return [key.name, el("code", {}, key.id), may(key), time(key.created_at_ms), time(key.expires_at_ms), word, act];
}

/** Shows the new key, which is available only now. */
function shownOnce(made) {
  const shown = el("input", { readonly: true, value: made.key, name: "made", spellcheck: "false" });
  shown.addEventListener("focus", () => shown.select());
  return el("div", { class: "notice good", id: "made" },
    el("div", { class: "together" }, field(`The key “${made.name}”`, shown, "Copy it now. You won’t see it again."), copier(made.key)));
}

/** A table of areas with a box for reading and one for changing. */
function scopesTable() {
  const box = (area, level) => el("input", { type: "checkbox", name: "scope", value: `${area}:${level}`, "aria-label": `${area}: ${level}` });
  const all = AREAS.map((area) => [area, box(area, "read"), box(area, "write")]);
  const element = el("fieldset", {}, el("legend", {}, "Scopes"), table("scopes", ["Area", "Read", "Change"], all));
  return { element, chosen: () => all.flat().filter((one) => one.checked).map((one) => one.value) };
}

function maker(list) {
  const name = el("input", { name: "name", maxlength: 80, autocomplete: "off" });
  const role = select(ROLES, "viewer", { name: "role" });
  const ends = el("input", { type: "datetime-local", name: "ends" });
  const domains = el("input", { name: "domains", autocomplete: "off" });
  const tags = el("input", { name: "tags", autocomplete: "off" });
  const scopes = scopesTable();
  const show = () => {
    scopes.element.hidden = role.value !== "";
  };
  role.addEventListener("change", show);
  show();
  const said = el("div", {});
  const submit = el("button", { type: "submit", class: "primary" }, "Create key");
  const make = working(submit, said, async () => {
    const made = await api.makeKey({
      name: name.value,
      ...(role.value ? { role: role.value } : { scopes: scopes.chosen() }),
      domains: words(domains.value),
      tags: words(tags.value),
      expires_at_ms: ends.value ? atMinute(ends.value) : null,
    });
    await list(made);
    name.value = "";
    document.getElementById("made").scrollIntoView({ block: "nearest" });
    return null;
  });
  return el(
    "form",
    { class: "card", id: "make-key", onsubmit: make },
    el("h2", {}, "New key"),
    said,
    el("div", { class: "grid" }, field("Name", name, "A person or a program."), field("Role", role), field(`Expires (${clock.name()})`, ends, "Empty: never.")),
    scopes.element,
    el("details", {}, el("summary", {}, "Only some links"), el("div", { class: "grid" },
      field("Domains", domains, "Separated by commas. Empty: all."), field("Tags", tags, "Separated by commas: links with one of these. Empty: all."))),
    el("div", { class: "row" }, submit),
  );
}

export async function keys(desk) {
  const said = el("div", {});
  const shown = el("div", { class: "stack" });
  const list = async (made = null) => {
    const all = await api.keys();
    const heads = ["Name", "Id", "May", "Created", "Expires", "State", "Action"];
    const rows = all.map((key) => row(desk, key, said));
    replace(shown, made && shownOnce(made), rows.length > 0 ? table("keys", heads, rows) : empty("no-keys", "No keys yet, except the admin token."));
  };
  await list();
  const card = el("section", { class: "card", "aria-label": "All keys" }, said, shown);
  return ["Keys", card, desk.may("access:write") && maker(list)];
}
