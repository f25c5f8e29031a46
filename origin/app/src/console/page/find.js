// Search over everything with a name: views, sales, orders, customers, rooms, gateways, keys, links. Ctrl+K opens it.

import { api } from "./api.js";
import { el, field, refresh } from "./dom.js";

/** How long to wait for the next letter. */
const PAUSE_MS = 200;

/** Results of one kind. */
const SHOWN = 6;

const has = (text, wanted) => text.toLowerCase().includes(wanted.toLowerCase());

/** Results by kind: functions of the text, each with the scope that it needs. They return address and text. */
const KINDS = [
  ["Sale", "sales:read", async (text) => (await kept("sales", api.sales)).filter((sale) => has(sale.title, text) || has(sale.id, text)).map((sale) => [`#/sales/id/${sale.id}`, `${sale.title} (${sale.id})`])],
  ["Order", "sales:read", async (text) => (text.length < 8 ? [] : [await api.order(text)].map((order) => [`#/orders/${encodeURIComponent(order.order)}`, `${order.order} of ${order.user}`]))],
  ["Orders of", "sales:read", async (text) => [[`#/orders?user=${encodeURIComponent(text)}`, `customer ${text}`]]],
  ["Events of", "events:read", async (text) => [[`#/events/customers?customer=${encodeURIComponent(text)}`, `customer ${text}`]]],
  ["Room", "rooms:read", async (text) => (await kept("rooms", api.rooms)).filter(({ name }) => has(name, text)).map(({ name }) => [`#/rooms?room=${name}`, name])],
  ["Gateway", "limits:read", async (text) => (await kept("gateways", api.gateways)).gateways.filter(({ name }) => has(name, text)).map(({ name }) => ["#/gateways", name])],
  ["Key", "access:read", async (text) => (await kept("keys", api.keys)).filter(({ id, name }) => has(name, text) || has(id, text)).map(({ id, name }) => [`#/audit?actor=${id}`, `what ${name} (${id}) changed`])],
  ["Link", "links:read", async (text) => (await api.links({ q: text, limit: SHOWN })).links.map((link) => [`#/links/l/${link.domain}/${link.code}`, link.url])],
];

const known = new Map();

/** A list, kept for a minute. */
function kept(name, read) {
  if (!(Date.now() - known.get(name)?.at < 60_000)) {
    known.set(name, { at: Date.now(), list: read() });
  }
  return known.get(name).list;
}

/** The function that opens the search. `context` returns the groups of views and what the user may do. */
export function finder(context) {
  return () => {
    if (document.getElementById("find")) {
      return;
    }
    const { groups, may } = context();
    const before = document.activeElement;
    const list = el("ul", { "aria-label": "Results" });
    const control = el("input", { type: "search", autocomplete: "off", spellcheck: "false", name: "find" });
    const dialog = el("dialog", { id: "find", "aria-label": "Search" }, field("Search by name or id", control), list);
    const row = (kind) => ([place, text]) => el("li", {}, el("a", { href: place, onclick: () => dialog.close() }, el("span", {}, text), el("span", { class: "hint" }, kind)));
    let turn = 0;
    const look = async () => {
      turn += 1;
      const mine = turn;
      const text = control.value.trim();
      const views = groups.flatMap(([, views]) => views).filter(([title]) => has(title, text)).map(([title, place]) => [place, title]);
      const rows = views.slice(0, text ? SHOWN : 20).map(row("View"));
      refresh(list, rows);
      if (!text) {
        return;
      }
      await new Promise((done) => setTimeout(done, PAUSE_MS));
      if (mine !== turn) {
        return;
      }
      const found = await Promise.all(KINDS.filter(([, scope]) => may(scope)).map(async ([kind, , search]) =>
        (await search(text).catch(() => [])).slice(0, SHOWN).map(row(kind))));
      if (mine === turn) {
        list.replaceChildren(...found.flat(), ...rows);
      }
    };
    control.addEventListener("input", look);
    dialog.addEventListener("keydown", (event) => {
      const all = [...list.querySelectorAll("a")];
      const at = all.indexOf(document.activeElement);
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        (all[at + step] ?? control).focus();
      } else if (event.key === "Enter" && at < 0) {
        all[0]?.click();
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (document.activeElement === document.body) {
        before?.focus();
      }
    });
    document.body.append(dialog);
    dialog.showModal();
    look();
  };
}
