// Shows the view of the address after `#`, if the user is signed in.

import { audit } from "./audit.js";
import { announce, complaint, el, field, replace } from "./dom.js";
import { health } from "./health.js";
import { keys } from "./keys.js";
import { limits } from "./limits.js";
import { newSale } from "./new-sale.js";
import { orders } from "./orders.js";
import { rooms } from "./rooms.js";
import { sale } from "./sale.js";
import { sales } from "./sales.js";
import { session } from "./session.js";
import { tenants } from "./tenants.js";
import { users } from "./users.js";

const [content, signOut, views, name] = ["content", "sign-out", "views", "who"].map((id) => document.getElementById(id));

/** The views of the console and the other pages: text, address, scope, and true if only platform keys may use it. */
const VIEWS = [
  ["Sales", "#/sales", "sales:read"],
  ["Orders", "#/orders", "sales:read"],
  ["Users", "#/users", "sales:read", true],
  ["Rooms", "#/rooms", "rooms:read"],
  ["Limits", "#/limits", "limits:read"],
  ["Links", "links/ui", "links:read"],
  ["Events", "events/page", "events:read"],
  ["Fitment", "fitment/ui", "fitment:read"],
  ["Keys", "#/keys", "access:read"],
  ["Tenants", "#/tenants", "access:read", true],
  ["Audit", "#/audit", "access:read"],
];

/**
 * Views by address. Each returns its title and its elements. `desk.onLeave` registers a function to call when the view
 * closes.
 */
const ROUTES = [
  [/^#\/sales$/, sales],
  [/^#\/sales\/new$/, newSale],
  [/^#\/sales\/id\/([a-z0-9-]+)$/, sale],
  [/^#\/orders(?:\?(.*))?$/, orders],
  [/^#\/users$/, users],
  [/^#\/rooms$/, rooms],
  [/^#\/limits$/, limits],
  [/^#\/keys$/, keys],
  [/^#\/tenants$/, tenants],
  [/^#\/audit$/, audit],
];

let who = null;
let leave = [];

function left() {
  for (const end of leave) {
    end();
  }
  leave = [];
}

function signIn(why) {
  health.hide();
  left();
  who = null;
  signOut.hidden = views.hidden = name.hidden = true;
  document.title = "Sign in · Weir console";
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
      replace(said, complaint(error.code === "wrong_key" ? new Error("Invalid key.") : error));
      button.disabled = false;
      shown.select();
    }
  };
  replace(
    content,
    el(
      "form",
      { class: "card sign-in", onsubmit: enter },
      el("h1", {}, "Sign in"),
      said,
      // For password managers, which store a key with a user name.
      el("input", { type: "text", autocomplete: "username", value: "weir", hidden: true }),
      field("Key", shown, "An API key of this origin, or the value of WEIR_ADMIN_TOKEN."),
      el("div", { class: "row" }, button),
    ),
  );
  shown.focus();
}

const may = (scope) => who.scopes.includes(scope);

/** The context of a view. */
function desk() {
  return { may, who, onLeave: (end) => leave.push(end), refresh: show };
}

/** Shows links to the views that the user may open, and marks the current one. */
function bar() {
  const [here] = location.hash.split("?");
  const link = ([text, place]) => {
    const isHere = here === place || here.startsWith(`${place}/`);
    return el("a", { href: place, "aria-current": isHere ? "page" : null }, text);
  };
  replace(views, VIEWS.filter(([, , scope, isPlatforms]) => may(scope) && !(isPlatforms && who.tenant)).map(link));
  const whose = [who.tenant, who.role].filter(Boolean).join(", ");
  name.textContent = whose ? `${who.name} (${whose})` : who.name;
  signOut.hidden = views.hidden = name.hidden = false;
}

async function viewOf(hash) {
  for (const [pattern, view] of ROUTES) {
    const found = hash.match(pattern);
    if (found) {
      return view(desk(), ...found.slice(1));
    }
  }
  return ["Not found", el("p", {}, "This page does not exist. ", el("a", { href: "#/sales" }, "Sales"))];
}

/** Shows the view of the address. */
async function show() {
  if (!location.hash || location.hash === "#/") {
    const first = VIEWS.find(([, place, scope]) => place.startsWith("#") && may(scope));
    history.replaceState(null, "", first ? first[1] : "#/none");
  }
  const asked = location.hash;
  left();
  bar();
  health.watch();
  try {
    const [title, ...view] = await viewOf(asked);
    // The user may have opened another view meanwhile.
    if (asked === location.hash) {
      replace(content, el("h1", {}, title), view);
      document.title = `${title} · Weir console`;
      announce(title);
    }
  } catch (error) {
    failed(error);
  }
}

function failed(error) {
  if (error.status === 401) {
    signIn(new Error("Your session has ended. Please sign in again."));
    return;
  }
  replace(content, complaint(error), el("button", { type: "button", onclick: show }, "Try again"));
}

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

try {
  who = await session.who();
  if (who) {
    await show();
  } else {
    signIn();
  }
} catch (error) {
  failed(error);
}
