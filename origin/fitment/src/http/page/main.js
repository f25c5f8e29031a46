// The page of vehicle fitment: parts that fit a vehicle, vehicles that a part fits, imports.

import { FROM_PAGE, session } from "../../ui/session.js";
import { el, field, form, table } from "./dom.js";

const REFRESH_MS = 2000;
const [content, said, views, signOut] = ["content", "said", "views", "sign-out"].map((id) => document.getElementById(id));

let shown = 0;
let isIn = false;

async function ask(method, path, query = {}) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  const options = { method, headers: FROM_PAGE, cache: "no-store" };
  const answer = await fetch(search ? `${path}?${search}` : path, options).catch(() => null);
  if (!answer) {
    throw new Error("The origin does not respond.");
  }
  if (answer.status === 401) {
    isIn = false;
    route();
    throw new Error("Your session has ended. Please sign in again.");
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    throw new Error(body.detail ?? `The origin answered ${answer.status}.`);
  }
  return body;
}

const get = (path, query) => ask("GET", path, query);

function say(text, isBad = false) {
  said.textContent = text;
  said.classList.toggle("bad", isBad);
}

/** Runs `work`, and shows the error if it fails. */
async function attempt(work) {
  say("");
  try {
    await work();
  } catch (error) {
    say(error.message, true);
  }
}

const link = (kind, name) => el("a", { href: `#/${kind}/${encodeURIComponent(name)}` }, name);
const number = (value) => Number(value).toLocaleString();

function signIn() {
  const submitted = ({ token }) =>
    attempt(async () => {
      await session.open(token);
      isIn = true;
      route();
    });
  content.replaceChildren(form("Sign in", submitted, field("Key", "token", { type: "password", required: true })));
}

function vehicles() {
  const found = el("section", { "aria-label": "Found" });
  const rows = (all) => all.map((of) => [link("vehicle", of.vehicle), of.make, of.model, of.year || "", of.engine]);
  const search = ({ vehicle, make, model }) =>
    attempt(async () => {
      if (vehicle) {
        location.hash = `#/vehicle/${vehicle}`;
        return;
      }
      const { vehicles: all } = await get("vehicles", { make, model });
      const head = ["Vehicle", "Make", "Model", "Year", "Engine"];
      found.replaceChildren(table(head, rows(all), "No matching vehicles."));
      say(all.length === 0 ? "" : `${all.length} vehicles${all.length === 50 ? ", the first of more" : ""}`);
    });
  const fields = [
    field("Vehicle id", "vehicle", { inputmode: "numeric", pattern: "[0-9]{1,7}", maxlength: 7, title: "1 to 7 digits" }),
    field("Make", "make"),
    field("Model", "model"),
  ];
  content.replaceChildren(form("Search", search, ...fields), found);
}

async function vehicle(id) {
  const of = await get(`vehicles/${encodeURIComponent(id)}`);
  const name = [of.make, of.model, of.year || "", of.engine].filter(Boolean).join(" ");
  const list = el("ul", { class: "names" });
  const more = el("button", { type: "button", hidden: true }, "More");
  let after = "";
  const load = () =>
    attempt(async () => {
      const page = await get("skus", { vehicle: id, after });
      list.append(...page.skus.map((sku) => el("li", {}, link("part", sku))));
      after = page.next ?? "";
      more.hidden = !page.next;
      if (list.children.length === 0) {
        list.replaceWith(el("p", { class: "soft" }, "No known parts."));
      }
    });
  more.addEventListener("click", load);
  content.replaceChildren(el("h2", {}, `Vehicle ${of.vehicle}`), el("p", {}, name || "No further data."), el("h3", {}, "Parts that fit"), list, more);
  await load();
}

function parts() {
  const submitted = ({ sku }) => {
    location.hash = `#/part/${encodeURIComponent(sku)}`;
  };
  content.replaceChildren(form("Show", submitted, field("SKU", "sku", { required: true, maxlength: 64 })));
}

function held(of = {}) {
  const years = [of.year_from, of.year_to].map((year) => year || "").join("–");
  return [years === "–" ? "" : years, of.engine, of.position].filter(Boolean).join(", ");
}

async function part(sku) {
  const rows = [];
  const place = el("div");
  const more = el("button", { type: "button", hidden: true }, "More");
  let after = "";
  const load = async () => {
    const of = await get(`products/${encodeURIComponent(sku)}`, { after });
    rows.push(...of.vehicles.map((one) => [link("vehicle", one.vehicle), [one.make, one.model, one.year || ""].filter(Boolean).join(" "), held(one.qualifiers)]));
    const otherwise = of.is_known ? "Fits no vehicle." : "Unknown part.";
    place.replaceChildren(table(["Vehicle", "Name", "Applies to"], rows, otherwise));
    after = of.next ?? "";
    more.hidden = !of.next;
    return of;
  };
  const of = await load();
  more.addEventListener("click", () => attempt(load));
  const about = `${of.type}, product ${of.spu}, merchant ${of.merchant}`;
  content.replaceChildren(el("h2", {}, `Part ${of.sku}`), el("p", {}, about), el("h3", {}, `Fits ${number(of.count)} vehicles`), place, more);
}

function progress(of) {
  if (of.state === "reading") {
    return el("progress", { max: of.size, value: of.position, "aria-label": "read" });
  }
  if (of.qualifiers_dropped > 0 && !of.message) {
    return `${number(of.qualifiers_dropped)} records lost qualifiers`;
  }
  return of.message || (of.ended_at_ms ? new Date(of.ended_at_ms).toLocaleString() : "");
}

function giveUp(of) {
  if (of.ended_at_ms) {
    return "";
  }
  const button = el("button", { type: "button", "aria-label": `Cancel import ${of.id}` }, "Give up");
  button.addEventListener("click", () => {
    if (confirm(`Cancel import ${of.id}? Nothing will be applied.`)) {
      attempt(async () => {
        await ask("DELETE", `imports/${of.id}`);
        route();
      });
    }
  });
  return button;
}

async function imports() {
  const turn = shown;
  while (turn === shown) {
    const [{ imports: all }, state] = await Promise.all([get("imports"), get("rebuild")]);
    if (turn !== shown) {
      return;
    }
    const errors = (of) => (of.errors > 0 ? el("a", { href: `#/errors/${of.id}` }, number(of.errors)) : "0");
    const rows = all.map((of) => [`${of.id}`, of.kind, el("span", { class: `state ${of.state}` }, of.state), number(of.records), errors(of), progress(of), giveUp(of)]);
    const redis = state.rebuilding ? `Redis is being rebuilt, up to SKU number ${number(state.rebuilt_up_to)}.` : `${number(state.waiting)} SKUs are waiting for Redis.`;
    const head = ["Import", "Of", "State", "Records", "Errors", "", ""];
    content.replaceChildren(el("p", {}, redis), table(head, rows, "Nothing has been imported yet."));
    await new Promise((done) => setTimeout(done, REFRESH_MS));
  }
}

async function errors(id) {
  const { count, errors: all } = await get(`imports/${encodeURIComponent(id)}/errors`);
  const rows = all.map((of) => [number(of.line), of.column, of.reason]);
  const title = `Import ${id}: ${number(count)} errors`;
  content.replaceChildren(el("h2", {}, title), table(["Line", "Column", "Error"], rows, "None."));
}

const VIEWS = { "": vehicles, vehicle, parts, part, imports, errors };

function route() {
  shown += 1;
  views.hidden = !isIn;
  signOut.hidden = !isIn;
  if (!isIn) {
    signIn();
    return;
  }
  const [, name = "", argument = ""] = location.hash.split("/");
  for (const a of views.children) {
    const own = a.getAttribute("href").slice(2);
    const isHere = own === name || { "": "vehicle", parts: "part", imports: "errors" }[own] === name;
    if (isHere) {
      a.setAttribute("aria-current", "page");
    } else {
      a.removeAttribute("aria-current");
    }
  }
  attempt(() => (VIEWS[name] ?? vehicles)(decodeURIComponent(argument)));
}

signOut.addEventListener("click", async () => {
  await session.close().catch(() => null);
  isIn = false;
  route();
});
addEventListener("hashchange", () => {
  route();
  content.focus();
});
attempt(async () => {
  isIn = (await session.who()) !== null;
  route();
});
