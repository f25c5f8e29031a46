// Vehicle fitment: parts that fit a vehicle, vehicles that a part fits, imports.

import { ask, button, complaint, el, empty, field, refresh, replace, state, table, working } from "../../ui/dom.js";
import { count, instant, plural } from "../../ui/format.js";
import { json } from "../../ui/session.js";

const REFRESH_MS = 2_000;

const get = (path, query) => json("GET", `fitment/${path}`, query);

const place = (kind, name) => `#/fitment/${kind}/${encodeURIComponent(name)}`;
const link = (kind, name) => el("a", { href: place(kind, name) }, name);

/** The views of fitment; the first is also at the address without a name. */
const VIEWS = { vehicle: vehicles, parts, imports };
const TITLES = { vehicle: ["Vehicles", "#/fitment"], parts: ["Parts", "#/fitment/parts"], imports: ["Imports", "#/fitment/imports"] };

const menu = (current) =>
  el("nav", { class: "tabs", "aria-label": "Fitment" }, Object.entries(TITLES).map(([name, [title, href]]) =>
    el("a", { href, class: "button", "aria-current": name === current ? "page" : null }, title)));

/** A form that calls `work` with the values of its fields. */
function form(id, text, work, ...fields) {
  const said = el("div", { id: "said" });
  const submit = el("button", { type: "submit", class: "primary" }, text);
  const element = el("form", { class: "card", id, onsubmit: working(submit, said, () => work(Object.fromEntries(new FormData(element)))) },
    el("div", { class: "grid" }, fields), said, el("div", { class: "row" }, submit));
  return element;
}

const input = (name, props = {}) => el("input", { name, autocomplete: "off", spellcheck: "false", ...props });

const HEADS = ["Vehicle", "Make", "Model", "Year", "Engine"];

function vehicles() {
  const found = el("section", { class: "card", "aria-label": "Found", hidden: true });
  const search = async ({ vehicle, make, model }) => {
    if (vehicle) {
      location.hash = place("vehicle", vehicle);
      return null;
    }
    const { vehicles: all } = await get("vehicles", { make, model });
    const rows = all.map((of) => [link("vehicle", of.vehicle), of.make, of.model, String(of.year || ""), of.engine]);
    const sum = `${plural(all.length, "vehicle")}${all.length === 50 ? ", the first of more" : ""}`;
    found.hidden = false;
    replace(found, rows.length > 0 ? [el("p", { id: "sum", role: "status" }, sum), table("vehicles", HEADS, rows)] : empty("none", "No vehicles found."));
    return null;
  };
  return [
    form("search", "Search", search,
      field("Vehicle id", input("vehicle", { inputmode: "numeric", pattern: "[0-9]{1,7}", maxlength: 7, title: "1 to 7 digits" })),
      field("Make", input("make")), field("Model", input("model"))),
    found,
  ];
}

async function vehicle(id) {
  const of = await get(`vehicles/${encodeURIComponent(id)}`);
  const name = [of.make, of.model, of.year || "", of.engine].filter(Boolean).join(" ");
  const [list, said] = [el("ul", { class: "cards", id: "parts" }), el("div", {})];
  let after = "";
  const load = async () => {
    const page = await get("skus", { vehicle: id, after });
    list.append(...page.skus.map((sku) => el("li", {}, link("part", sku))));
    after = page.next ?? "";
    more.hidden = !page.next;
    if (list.children.length === 0) {
      list.append(el("li", { class: "hint" }, "No parts are known to fit."));
    }
    return null;
  };
  const more = button("More", { hidden: true }, said, load);
  await load();
  return [el("p", {}, el("a", { class: "back", href: "#/fitment" }, "Vehicles")),
    el("section", { class: "card" }, el("h2", {}, `Vehicle ${of.vehicle}`), el("p", {}, name || "No further data."), el("h3", {}, "Parts that fit"), list, said, more)];
}

function parts() {
  // The part is looked up here, so that a wrong number is said at the field and the view stays.
  const show = async ({ sku }) => {
    await get(`products/${encodeURIComponent(sku)}`);
    location.hash = place("part", sku);
    return null;
  };
  return [form("find-part", "Show", show, field("SKU", input("sku", { required: true, maxlength: 64 })))];
}

/** Conditions under which a part fits. */
function conditions(of = {}) {
  const years = [of.year_from, of.year_to].map((year) => year || "").join("–");
  return [years === "–" ? "" : years, of.engine, of.position].filter(Boolean).join(", ");
}

async function part(sku) {
  const [shown, said] = [el("div", {}), el("div", {})];
  const rows = [];
  let after = "";
  const load = async () => {
    const of = await get(`products/${encodeURIComponent(sku)}`, { after });
    rows.push(...of.vehicles.map((one) => [link("vehicle", one.vehicle), [one.make, one.model, one.year || ""].filter(Boolean).join(" "), conditions(one.qualifiers)]));
    const none = empty("none", of.is_known ? "It fits no vehicle." : "No fitment data for this part.");
    replace(shown, rows.length > 0 ? table("fits", ["Vehicle", "Name", "Conditions"], rows) : none);
    after = of.next ?? "";
    more.hidden = !of.next;
    return of;
  };
  const more = button("More", { hidden: true }, said, async () => { await load(); });
  const of = await load();
  return [el("p", {}, el("a", { class: "back", href: "#/fitment/parts" }, "Parts")),
    el("section", { class: "card" }, el("h2", {}, `Part ${of.sku}`), el("p", {}, `${of.type}, product ${of.spu}, merchant ${of.merchant}`),
      el("h3", {}, `Fits ${plural(of.count, "vehicle")}`), shown, said, more)];
}

const TONES = { done: "good", failed: "bad", reading: "info", waiting: "info" };

function progress(of) {
  if (of.state === "reading") {
    return el("progress", { max: of.size, value: of.position, "aria-label": "read" });
  }
  if (of.qualifiers_dropped > 0 && !of.message) {
    return `${plural(of.qualifiers_dropped, "record")} lost conditions`;
  }
  return of.message || (of.ended_at_ms ? instant(of.ended_at_ms) : "");
}

const HEADS_IMPORTS = ["Import", "Of", "State", "#Records", "#Errors", "Result", "Action"];

async function imports(desk) {
  const [shown, said] = [el("div", { class: "wide" }), el("div", {})];
  const cancel = (id) => button("Cancel import", { class: "danger small", "aria-label": `Cancel import ${id}`, "data-key": `cancel-${id}` }, said, async () => {
    if (!(await ask(`Cancel import ${id}?`, "Nothing of it will be applied.", "Cancel import", "Keep importing"))) {
      return null;
    }
    await json("DELETE", `fitment/imports/${id}`);
    await look();
    return `Import ${id} is cancelled.`;
  });
  const look = async () => {
    const [{ imports: all }, rebuild] = await Promise.all([get("imports"), get("rebuild")]);
    const row = (of) => [`${of.id}`, of.kind, state(of.state, TONES[of.state]), count(of.records),
      of.errors > 0 ? el("a", { href: `#/fitment/errors/${of.id}` }, count(of.errors)) : "0", progress(of),
      of.ended_at_ms || !desk.may("fitment:write") ? "" : cancel(of.id)];
    const redis = rebuild.rebuilding ? `Rebuilding Redis, up to SKU number ${count(rebuild.rebuilt_up_to)}.` : `${plural(rebuild.waiting, "SKU")} waiting for Redis.`;
    refresh(shown, el("p", { class: "hint" }, redis),
      all.length > 0 ? table("imports", HEADS_IMPORTS, all.map(row), all.map((of) => `${of.id}`)) : empty("none", "No imports yet. Send a file to /fitment/imports."));
  };
  await look();
  const again = () => document.hidden || look().then(() => replace(said)).catch((error) => replace(said, complaint(error)));
  const timer = setInterval(again, REFRESH_MS);
  desk.onLeave(() => clearInterval(timer));
  return [el("section", { class: "card", "aria-label": "Imports" }, said, shown)];
}

async function errors(id) {
  const { count: sum, errors: all } = await get(`imports/${encodeURIComponent(id)}/errors`);
  const rows = all.map((of) => [count(of.line), of.column, of.reason]);
  return [el("p", {}, el("a", { class: "back", href: "#/fitment/imports" }, "Imports")),
    el("section", { class: "card" }, el("h2", {}, `Import ${id}: ${plural(sum, "error")}`), rows.length > 0 ? table("errors", ["Line", "Column", "Error"], rows) : empty("none", "No errors."))];
}

export async function fitment(desk, name = "vehicle", argument = null) {
  if (argument) {
    const [current, view] = { vehicle: ["vehicle", vehicle], part: ["parts", part], errors: ["imports", errors] }[name] ?? ["vehicle", vehicle];
    return ["Fitment", menu(current), await view(argument)];
  }
  const current = Object.hasOwn(VIEWS, name) ? name : "vehicle";
  return ["Fitment", menu(current), await VIEWS[current](desk)];
}
