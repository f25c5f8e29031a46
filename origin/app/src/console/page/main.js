// The shell of the console: signs in, shows the rail of views and the view of the address after `#`. Views are modules
// that load when they are first opened.

import { announce, complaint, el, field, replace, svg } from "./dom.js";
import { finder } from "./find.js";
import { clock } from "./format.js";
import { health } from "./health.js";
import { session } from "./session.js";
import { traffic } from "./traffic.js";

const [content, signOut, rail, name, tenant, menu, findOpen, clockButton] =
  ["content", "sign-out", "views", "who", "tenant", "menu", "find-open", "clock"].map((id) => document.getElementById(id));

/** The rail: groups of views, each with text, address, icon, scope, and true if only platform keys may use it. */
const RAIL = [
  [null, [["Overview", "#/overview", "M3 11l7-7 7 7M5 9v8h10V9"]]],
  ["Sell", [
    ["Sales", "#/sales", "M4 7h12l-1 10H5zM7 7a3 3 0 016 0", "sales:read"],
    ["Orders", "#/orders", "M5 3h10v14l-2-1.5L10 17l-3-1.5L5 17zM8 7h4M8 10h4", "sales:read"],
    ["Customers", "#/users", "M10 10a3 3 0 100-6 3 3 0 000 6zM4 17c0-3 3-5 6-5s6 2 6 5", "sales:read", true],
  ]],
  ["Protect", [
    ["Waiting rooms", "#/rooms", "M10 3a7 7 0 100 14 7 7 0 000-14zM10 6v4l3 2", "rooms:read"],
    ["Rate limits", "#/limits", "M4 14a6.5 6.5 0 1112 0M10 13l3-5", "limits:read"],
    ["Gateways", "#/gateways", "M3 5h14v4H3zM3 11h14v4H3zM6 7h1M6 13h1", "limits:read", true],
  ]],
  ["Grow", [
    ["Links", "#/links", "M8 12l4-4M9 6l2-2a3 3 0 014 4l-2 2M11 14l-2 2a3 3 0 01-4-4l2-2", "links:read"],
    ["Events", "#/events", "M3 11h3l2-6 4 11 2-5h3", "events:read"],
  ]],
  ["Catalogue", [["Fitment", "#/fitment", "M3 13v-2l2-5h10l2 5v2zM6 15.5a1.5 1.5 0 100-3 1.5 1.5 0 000 3zM14 15.5a1.5 1.5 0 100-3 1.5 1.5 0 000 3z", "fitment:read"]]],
  ["Settings", [
    ["Keys", "#/keys", "M7 13a3 3 0 110-6 3 3 0 010 6zM10 10h7v3M14 10v2", "access:read"],
    ["Tenants", "#/tenants", "M4 17V4h7v13M11 8h5v9M6 7h3M6 10h3M6 13h3", "access:read", true],
    ["Domains", "#/domains", "M10 3a7 7 0 100 14 7 7 0 000-14zM3 10h14M10 3c-4 4-4 10 0 14 4-4 4-10 0-14", "links:read"],
    ["Audit", "#/audit", "M5 3h7l3 3v11H5zM8 9h4M8 12h4", "access:read"],
  ]],
];

const LINKS = () => import("../links/ui/main.js");
const FITMENT = () => import("../fitment/ui/main.js");

/**
 * Views by address: their module, and the function in it. The function returns the title and the elements.
 * `desk.onLeave` registers a function to call when the view closes.
 */
const ROUTES = [
  [/^#\/overview$/, () => import("./overview.js"), "overview"],
  [/^#\/sales$/, () => import("./sales.js"), "sales"],
  [/^#\/sales\/new(?:\/([a-z0-9-]+))?$/, () => import("./new-sale.js"), "newSale"],
  [/^#\/sales\/id\/([a-z0-9-]+)(?:\/(\w+))?$/, () => import("./sale.js"), "sale"],
  [/^#\/orders(?:\?(.*))?$/, () => import("./orders.js"), "orders"],
  [/^#\/orders\/([^?]+)$/, () => import("./order.js"), "oneOrder"],
  [/^#\/users(?:\?user=(.*))?$/, () => import("./users.js"), "users"],
  [/^#\/rooms(?:\?room=(.*))?$/, () => import("./rooms.js"), "rooms"],
  [/^#\/limits$/, () => import("./limits.js"), "limits"],
  [/^#\/gateways$/, () => import("./gateways.js"), "gateways"],
  [/^#\/links$/, LINKS, "home"],
  [/^#\/links\/l\/([a-z0-9-]+)\/([^?]+)(?:\?(\w+))?$/, LINKS, "detail"],
  [/^#\/links\/import$/, LINKS, "importer"],
  [/^#\/links\/stats(?:\?(.*))?$/, LINKS, "dashboard"],
  [/^#\/links\/templates$/, LINKS, "templates"],
  [/^#\/domains(?:\/([a-z0-9-]+))?$/, LINKS, "domains"],
  [/^#\/events(?:\/(\w[\w-]*))?(?:\?(.*))?$/, () => import("../events/page/main.js"), "events"],
  [/^#\/fitment(?:\/(\w+)(?:\/(.+))?)?$/, FITMENT, "fitment"],
  [/^#\/keys$/, () => import("./keys.js"), "keys"],
  [/^#\/tenants$/, () => import("./tenants.js"), "tenants"],
  [/^#\/audit(?:\?(.*))?$/, () => import("./audit.js"), "audit"],
];

/** The address here of a view that had a page of its own, which leads here with its name in the query. */
const MOVED = {
  links: (rest) => (rest.startsWith("domains") ? `#/${rest}` : `#/links/${rest}`),
  events: () => "#/events",
  fitment: (rest) => `#/fitment/${rest}`,
};

/** After this time, a view that still loads shows that. */
const PATIENCE_MS = 150;

let who = null;
let leave = [];

function left() {
  for (const end of leave) {
    end();
  }
  leave = [];
}

function hideAll() {
  for (const element of [signOut, rail, name, tenant, menu, findOpen, clockButton]) {
    element.hidden = true;
  }
}

function signIn(why) {
  health.hide();
  traffic.stop();
  left();
  who = null;
  hideAll();
  document.title = "Sign in · Weir console";
  content.removeAttribute("aria-busy");
  const shown = el("input", { type: "password", autocomplete: "current-password", required: true, name: "key" });
  const said = el("div", {}, why ? complaint(why) : null);
  const button = el("button", { class: "primary", type: "submit" }, "Sign in");
  const enter = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      who = await session.open(shown.value.trim());
      await show();
    } catch (error) {
      replace(said, complaint(error.code === "wrong_key" ? new Error("This key isn’t valid.") : error));
      button.disabled = false;
      shown.select();
    }
  };
  replace(
    content,
    el(
      "form",
      { class: "card sign-in", onsubmit: enter },
      el("h1", {}, "Sign in to Weir"),
      said,
      // For password managers, which store a key with a user name.
      el("input", { type: "text", autocomplete: "username", value: "weir", hidden: true }),
      field("Access key", shown, "An access key, or the admin token (WEIR_ADMIN_TOKEN)."),
      el("div", { class: "row" }, button),
    ),
  );
  shown.focus();
}

const may = (scope) => !scope || who.scopes.includes(scope);

/** The context of a view. */
function desk() {
  return { may, who, onLeave: (end) => leave.push(end), refresh: show };
}

/** The views that the user may open, in groups. */
const groups = () =>
  RAIL.map(([title, views]) => [title, views.filter(([, , , scope, isPlatforms]) => may(scope) && !(isPlatforms && who.tenant))])
    .filter(([, views]) => views.length > 0);

const isHere = (place) => location.hash === place || /^[/?]/.test(location.hash.slice(place.length)) && location.hash.startsWith(place);

/** Shows the rail, and marks the current view. */
function bar() {
  const link = ([text, place, icon]) =>
    el("a", { href: place, "aria-current": isHere(place) ? "page" : null }, svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" }, svg("path", { d: icon })), text);
  replace(rail, groups().map(([title, views]) => [title && el("p", {}, title), views.map(link)]));
  const whose = [who.tenant, who.role].filter(Boolean).join(", ");
  name.textContent = whose ? `${who.name} (${whose})` : who.name;
  tenant.textContent = who.tenant ?? "Platform";
  clockButton.textContent = clock.isLocal ? "Local time" : "UTC";
  clockButton.setAttribute("aria-label", clock.isLocal ? "Times are local: switch to UTC" : "Times are in UTC: switch to local time");
  for (const element of [signOut, rail, name, tenant, menu, findOpen, clockButton]) {
    element.hidden = false;
  }
  openMenu(false);
}

function openMenu(isOpen) {
  rail.classList.toggle("open", isOpen);
  menu.setAttribute("aria-expanded", String(isOpen));
}

/** Loads the module of a view. */
async function viewOf(hash) {
  for (const [pattern, load, member] of ROUTES) {
    const found = hash.match(pattern);
    if (found) {
      const views = await load().catch(() => {
        throw new Error("This origin does not have this view, or does not respond.");
      });
      return views[member](desk(), ...found.slice(1).map((text) => text && decodeURIComponent(text)));
    }
  }
  return ["Not found", el("p", {}, "This page does not exist. ", el("a", { href: "#/overview" }, "Overview"))];
}

/** Shows that a view loads. */
function loading() {
  const here = groups().flatMap(([, views]) => views).find(([, place]) => isHere(place));
  replace(content, el("h1", {}, here?.[0] ?? "Loading …"), el("div", { class: "card skeleton", "aria-hidden": "true" }, Array.from({ length: 5 }, () => el("span"))));
  announce("Loading");
}

/** Shows the view of the address. */
async function show() {
  if (!location.hash || location.hash === "#/") {
    history.replaceState(null, "", "#/overview");
  }
  const wanted = location.hash;
  left();
  bar();
  health.watch();
  if (!who.tenant) {
    traffic.watch();
  }
  content.setAttribute("aria-busy", "true");
  const timer = setTimeout(loading, PATIENCE_MS);
  try {
    const [title, ...view] = await viewOf(wanted);
    // The user may have opened another view meanwhile.
    if (wanted === location.hash && who) {
      replace(content, el("h1", {}, title), view);
      document.title = `${title} · Weir console`;
      announce(title);
    }
  } catch (error) {
    if (wanted === location.hash && who) {
      failed(error);
    }
  }
  clearTimeout(timer);
  if (wanted === location.hash) {
    content.removeAttribute("aria-busy");
  }
}

function failed(error) {
  const here = groups().flatMap(([, views]) => views).find(([, place]) => isHere(place));
  const back = here && el("p", {}, el("a", { class: "back", href: here[1] }, here[0]));
  // Trying again finds nothing that is not there.
  const again = error.status !== 404 && el("button", { type: "button", onclick: show }, "Try again");
  replace(content, el("h1", {}, here?.[0] ?? "Weir"), back, complaint(error), again);
}

session.onEnd = () => who && signIn(new Error("Your session has ended. Please sign in again."));
document.getElementById("skip").addEventListener("click", () => content.focus());
menu.addEventListener("click", () => openMenu(menu.getAttribute("aria-expanded") !== "true"));
clockButton.addEventListener("click", () => {
  clock.set(!clock.isLocal);
  show();
});
const find = finder(() => ({ groups: groups(), may }));
findOpen.addEventListener("click", find);
window.addEventListener("keydown", (event) => {
  if (who && event.key === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    find();
  }
});
signOut.addEventListener("click", async () => {
  await session.close().catch(() => null);
  location.hash = "#/";
  signIn();
});
window.addEventListener("hashchange", () => {
  if (who) {
    show();
    content.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
});

const from = new URLSearchParams(location.search).get("from");
if (Object.hasOwn(MOVED, from ?? "")) {
  const rest = location.hash.replace(/^#?\/?/, "");
  history.replaceState(null, "", location.pathname + MOVED[from](rest).replace(/\/$/, ""));
}
try {
  who = await session.who();
  if (who) {
    await show();
  } else {
    signIn();
  }
} catch (error) {
  hideAll();
  replace(content, complaint(error), el("button", { type: "button", onclick: () => location.reload() }, "Try again"));
}
