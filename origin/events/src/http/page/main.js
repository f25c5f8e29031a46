// The page of events: groups and collectors, refreshed every few seconds, and dead letters.

import { session } from "../../ui/session.js";
import { api, Problem } from "./api.js";
import { deadLetters } from "./dead.js";
import { bad, el, field } from "./dom.js";
import { groupCard, pullCard } from "./groups.js";

const EVERY_MS = 3_000;

const content = document.getElementById("content");
const signOut = document.getElementById("sign-out");
const announcer = document.getElementById("announcer");
let timer = null;

function signIn(why) {
  clearTimeout(timer);
  signOut.hidden = true;
  const shown = el("input", { type: "password", autocomplete: "current-password", required: true, name: "token" });
  const said = el("div", {}, why ? bad(why) : null);
  const submit = el("button", { class: "primary", type: "submit" }, "Sign in");
  const enter = async (event) => {
    event.preventDefault();
    submit.disabled = true;
    try {
      await session.open(shown.value.trim());
      await show();
    } catch (error) {
      said.replaceChildren(bad(error.status === 401 ? "Invalid key." : error.message));
      submit.disabled = false;
      shown.select();
    }
  };
  content.replaceChildren(
    el(
      "form",
      { class: "card sign-in", onsubmit: enter },
      el("h1", {}, "Sign in"),
      said,
      // For password managers, which store a key with a user name.
      el("input", { type: "text", autocomplete: "username", value: "admin", hidden: true }),
      field("Key", shown),
      el("p", { class: "hint" }, "An API key of this origin, or the value of WEIR_ADMIN_TOKEN."),
      el("div", { class: "row" }, submit),
    ),
  );
  shown.focus();
}

/** Shows everything, and refreshes it while the page is open. */
async function show() {
  signOut.hidden = false;
  const [said, groups, pulls] = [el("div", {}), el("ul", { class: "cards", id: "groups" }), el("ul", { class: "cards", id: "pulls" })];
  const letters = deadLetters();
  const cards = new Map();
  const look = async () => {
    for (const group of await api.groups()) {
      if (!cards.has(group.name)) {
        const made = groupCard(group.name, letters.showOf);
        cards.set(group.name, made);
        groups.append(made.card);
      }
      cards.get(group.name).update(group);
    }
    const all = await api.pulls();
    pulls.replaceChildren(...(all.length > 0 ? all.map(pullCard) : [el("li", { class: "hint" }, "No collectors.")]));
  };
  const again = async () => {
    try {
      if (!document.hidden) {
        await look();
      }
      said.replaceChildren();
    } catch (error) {
      if (failed(error)) {
        return;
      }
      said.replaceChildren(bad(error.message));
    }
    timer = setTimeout(again, EVERY_MS);
  };
  await look();
  content.replaceChildren(
    el("h1", {}, "Events"),
    said,
    el("section", { "aria-labelledby": "groups-title" }, el("h2", { id: "groups-title" }, "Consumer groups"), groups),
    el("section", { "aria-labelledby": "pulls-title" }, el("h2", { id: "pulls-title" }, "Collectors"), pulls),
    letters.section,
  );
  announcer.textContent = "Events";
  await letters.show();
  timer = setTimeout(again, EVERY_MS);
}

/** Returns whether the session has ended. If so, shows the sign-in form. */
function failed(error) {
  const isUnknown = error instanceof Problem && error.status === 401;
  if (isUnknown) {
    signIn("Your session has ended. Please sign in again.");
  }
  return isUnknown;
}

signOut.addEventListener("click", async () => {
  await session.close().catch(() => null);
  signIn();
});

const tell = (error) => failed(error) || content.replaceChildren(bad(error.message));
try {
  if (await session.who()) {
    show().catch(tell);
  } else {
    signIn();
  }
} catch (error) {
  tell(error);
}
