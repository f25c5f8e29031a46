// Tenants: shops that share this origin, and their limits. Only for platform keys.

import { api } from "./api.js";
import { ask, button, check, el, empty, field, markAll, replace, table, working } from "./dom.js";
import { count, time } from "./format.js";

const HEADS = ["Tenant", "Name", "Domains", "#Sales", "#Units", "Created", "Action"];
const NAME = /^(?=.{1,20}$)[a-z0-9]+(?:-[a-z0-9]+)*$/;

const MANY = 1_000_000_000_000;

/** The limits: member, label, default, minimum, maximum. */
const LIMITS = [
  ["sales", "Sales", 20, 0, MANY], ["units", "Units in sales", 1_000_000, 0, MANY], ["rooms", "Waiting rooms", 20, 0, MANY],
  ["links", "Links", 100_000, 0, MANY], ["keys", "Keys", 20, 0, MANY],
  ["requests_per_second", "Requests per second", 50, 1, 10_000], ["requests_at_once", "Concurrent requests", 16, 1, 10_000],
];

const plain = (text) => text.replaceAll(",", "").trim();

/** Returns the error of a limit; null if it is valid. */
function fault(control, min, max) {
  const text = plain(control.value);
  const isRight = /^\d+$/.test(text) && Number(text) >= min && Number(text) <= max;
  return isRight ? null : `Must be an integer from ${count(min)} to ${count(max)}.`;
}

const words = (text) => text.split(",").map((word) => word.trim()).filter(Boolean);

function row(desk, one, said, list, edit) {
  const remove = async () => {
    if (!(await ask(`Remove tenant “${one.title}”?`, "Its keys stop working. Its sales and rooms are kept and move to the platform.", "Remove tenant", "Keep tenant", one.name))) {
      return null;
    }
    await api.deleteTenant(one.name);
    await list();
    return `${one.title} is removed.`;
  };
  const limits = one.limits;
  const change = el("button", { type: "button", class: "small", "aria-label": `Change ${one.title}`, onclick: () => edit(one) }, "Change");
  const acts = desk.may("access:write")
    ? el("span", { class: "row" }, change, button("Remove", { class: "danger small", "aria-label": `Remove ${one.title}` }, said, remove))
    : "";
  return [
    one.title, el("code", {}, one.name), one.domains.join(", ") || "–", count(limits.sales), count(limits.units), time(one.created_at_ms), acts,
  ];
}

/** The form that creates or changes a tenant. */
function form(list) {
  const name = el("input", { name: "name", autocomplete: "off", spellcheck: "false" });
  const title = el("input", { name: "title", maxlength: 80, autocomplete: "off" });
  const domains = el("input", { name: "domains", autocomplete: "off", spellcheck: "false" });
  const limits = LIMITS.map(([key, , usual]) => el("input", { name: key, value: count(usual), inputmode: "numeric", autocomplete: "off" }));
  const said = el("div", { id: "set-said" });
  const submit = el("button", { type: "submit", class: "primary" }, "Save tenant");
  const set = working(submit, said, async () => {
    check([
      [name, NAME.test(name.value) ? null : "Must be 1 to 20 of a-z, 0-9 and single hyphens inside."],
      [title, title.value.trim() ? null : "Must be 1 to 80 characters."],
      ...limits.map((control, at) => [control, fault(control, LIMITS[at][3], LIMITS[at][4])]),
    ]);
    const tenant = {
      title: title.value.trim(),
      domains: words(domains.value),
      limits: Object.fromEntries(limits.map((control) => [control.name, Number(plain(control.value))])),
    };
    const now = await api.setTenant(name.value, tenant).catch((error) => {
      const of = { "/title": title, "/domains": domains };
      limits.forEach((control) => { of[`/limits/${control.name}`] = control; });
      markAll(of, error.errors ?? []);
      throw error;
    });
    await list();
    return `${now.title} is saved. Its names start with ${now.prefix}`;
  });
  const edit = (one) => {
    element.open = true;
    name.value = one.name;
    title.value = one.title;
    domains.value = one.domains.join(", ");
    limits.forEach((control) => { control.value = count(one.limits[control.name]); });
    title.focus();
  };
  const element = el(
    "details",
    { class: "card" },
    el("summary", {}, el("h2", {}, "New tenant, or change one")),
    el("form", { id: "set-tenant", novalidate: true, onsubmit: set },
      said,
      el("div", { class: "grid" },
        field("Name", name, "Prefix of its sales and rooms. Existing names are updated."),
        field("Title", title, "Display name."),
        field("Link domains", domains, "Separated by commas."),
        LIMITS.map(([, text], at) => field(text, limits[at]))),
      el("div", { class: "row" }, submit)),
  );
  return { element, edit };
}

export async function tenants(desk) {
  const [said, shown] = [el("div", { id: "said" }), el("div", {})];
  const maker = form(() => list());
  const list = async () => {
    const all = await api.tenants();
    const rows = all.map((one) => row(desk, one, said, list, maker.edit));
    maker.element.open ||= rows.length === 0;
    replace(shown, rows.length > 0 ? table("tenants", HEADS, rows) : empty("none", "No tenants yet. A tenant is a shop with its own sales, keys and limits."));
  };
  await list();
  return ["Tenants", el("section", { class: "card", "aria-label": "All tenants" }, said, shown), desk.may("access:write") && maker.element];
}
