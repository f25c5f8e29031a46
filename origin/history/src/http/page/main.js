// A user's recently viewed products: shows them, deletes one, clears all. Texts from servers are set as text, never
// parsed as HTML.

const PAGE = 24;

const said = document.getElementById("said");
const list = document.getElementById("items");
const more = document.getElementById("more");
const clear = document.getElementById("clear");
const ask = document.getElementById("ask");
const shop = document.getElementById("shop");

let next;
let isComplete = true;

/** No user is signed in: not an error, but the list is empty. */
class SignedOut extends Error {}

/** An element; `on…` members of `props` are listeners. */
function el(name, props = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (key.startsWith("on")) {
      element.addEventListener(key.slice(2), value);
    } else if (value !== undefined) {
      element.setAttribute(key, value);
    }
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

async function send(method, path) {
  const response = await fetch(path, { method, headers: { accept: "application/json" } }).catch(() => {
    throw new Error("The shop does not respond. Please try again.");
  });
  if (response.status === 401 || response.status === 403) {
    throw new SignedOut();
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Error(problem.detail ?? `The shop responded with an error (${response.status}). Please try again.`);
  }
  return response.status === 200 ? response.json() : undefined;
}

function say(text, isBad = false) {
  said.textContent = text;
  said.classList.toggle("bad", isBad);
}

function complain(error) {
  const isSignedOut = error instanceof SignedOut;
  shop.hidden = !isSignedOut;
  clear.hidden = isSignedOut || clear.hidden;
  say(isSignedOut ? "Sign in to see your recently viewed products." : error.message, !isSignedOut);
}

function state() {
  const isEmpty = list.children.length === 0;
  clear.hidden = isEmpty;
  more.hidden = !next;
  shop.hidden = !isEmpty;
  if (!isComplete) {
    say("Some of your history is not available right now.");
  } else {
    say(isEmpty ? "You have not viewed any products yet." : "");
  }
}

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** The picture of a product, if the address is safe for browsers; otherwise an empty frame. */
function picture(item) {
  const isSafe = item.picture && /^(https?:\/)?\/[^/\\]|^https?:\/\/./i.test(item.picture);
  return isSafe ? el("img", { src: item.picture, alt: "", loading: "lazy" }) : el("span", { class: "no-picture" });
}

function row(item) {
  const title = item.title ?? item.sku;
  const at = new Date(item.viewed_at_ms);
  const element = el(
    "li",
    { "data-sku": item.sku },
    picture(item),
    el(
      "div",
      { class: "what" },
      el("strong", {}, title),
      el("time", { datetime: at.toISOString() }, moment.format(at)),
    ),
  );
  const remove = async () => {
    button.disabled = true;
    try {
      await deleteOne(item.sku);
      element.remove();
      await refill();
    } catch (error) {
      button.disabled = false;
      complain(error);
    }
  };
  const button = el("button", { type: "button", class: "delete", "aria-label": `Delete ${title}`, onclick: remove }, "Delete");
  element.append(button);
  return element;
}

/** The SKU is in the body, because as a path it could equal another route. */
async function deleteOne(sku) {
  const body = JSON.stringify({ skus: [sku] });
  const headers = { "content-type": "application/json" };
  const response = await fetch("/history/delete", { method: "POST", headers, body }).catch(() => ({ ok: false }));
  if (!response.ok) {
    throw new Error("Could not delete it. Please try again.");
  }
}

async function load() {
  const query = new URLSearchParams({ limit: PAGE });
  if (next) {
    query.set("before", next);
  }
  const page = await send("GET", `/history?${query}`);
  list.append(...page.items.map(row));
  next = page.next;
  isComplete = page.complete;
  state();
}

/** Loads the next page if the shown part has become empty. */
async function refill() {
  if (list.children.length === 0 && next) {
    await load();
  }
  state();
}

more.addEventListener("click", () => load().catch(complain));
clear.addEventListener("click", () => ask.showModal());
ask.addEventListener("close", async () => {
  if (ask.returnValue !== "yes") {
    return;
  }
  try {
    await send("DELETE", "/history");
    list.replaceChildren();
    next = undefined;
    isComplete = true;
    state();
  } catch (error) {
    complain(error);
  }
});

load().catch(complain);
