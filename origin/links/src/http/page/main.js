// Shows the view of the address after `#`, if the user is signed in.

import { Problem, session } from "../../ui/session.js";
import { detail } from "./detail.js";
import { announce, el, field, replace } from "./dom.js";
import { domains } from "./domains.js";
import { home } from "./home.js";
import { importer } from "./import.js";
import { complaint } from "./notice.js";

const content = document.getElementById("content");
const signOut = document.getElementById("sign-out");
const views = document.getElementById("views");

function signIn(why) {
  signOut.hidden = views.hidden = true;
  document.title = "Sign in · Weir links";
  const shown = el("input", { type: "password", autocomplete: "current-password", required: true, name: "token" });
  const said = el("div", {}, why ? complaint(why) : null);
  const button = el("button", { class: "primary", type: "submit" }, "Sign in");
  const enter = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await session.open(shown.value.trim());
      show();
    } catch (error) {
      replace(said, complaint(error.status === 401 ? new Error("Invalid key.") : error));
      button.disabled = false;
      shown.select();
    }
  };
  const hint = "An API key of this origin, or the value of WEIR_ADMIN_TOKEN.";
  replace(
    content,
    el(
      "form",
      { class: "card sign-in", onsubmit: enter },
      el("h1", {}, "Sign in"),
      said,
      // For password managers, which store a key with a user name.
      el("input", { type: "text", autocomplete: "username", value: "admin", hidden: true }),
      field("Key", shown, hint),
      el("div", { class: "row" }, button),
    ),
  );
  shown.focus();
}

/** The title and the view of an address. */
async function viewOf(hash) {
  const [, domain, code] = hash.match(/^#\/l\/([a-z0-9-]+)\/([\w/-]+)$/) ?? [];
  if (code) {
    return [code, await detail({ domain, code })];
  }
  if (hash === "#/import") {
    return ["Import", await importer()];
  }
  const [isDomains, id] = hash.match(/^#\/domains(?:\/([a-z0-9-]+))?$/) ?? [];
  return isDomains ? ["Domains", await domains(id ?? null)] : ["", await home()];
}

/** Shows the view of the address. */
async function show() {
  signOut.hidden = views.hidden = false;
  const asked = location.hash;
  try {
    const [title, view] = await viewOf(asked);
    // The user may have opened another view meanwhile.
    if (asked === location.hash) {
      replace(content, view);
      document.title = title ? `${title} · Weir links` : "Weir links";
      announce(document.title);
      window.scrollTo(0, 0);
    }
  } catch (error) {
    failed(error);
  }
}

function failed(error) {
  if (error instanceof Problem && error.status === 401) {
    signIn(new Error("Your session has ended. Please sign in again."));
    return;
  }
  replace(
    content,
    complaint(error),
    el("p", {}, el("a", { href: "#/" }, "All links")),
    el("button", { type: "button", onclick: show }, "Try again"),
  );
}

signOut.addEventListener("click", async () => {
  await session.close().catch(() => null);
  location.hash = "#/";
  signIn();
});

window.addEventListener("hashchange", show);
try {
  if (await session.who()) {
    show();
  } else {
    signIn();
  }
} catch (error) {
  failed(error);
}
