// Users who may not buy in one sale.

import { api } from "./api.js";
import { el, field, mark, working } from "./dom.js";

/** The form that blocks a user in a sale, or lets the user buy again. */
export function blocked(sale) {
  const user = el("input", { name: "blocked", autocomplete: "off", spellcheck: "false" });
  const said = el("div", { id: "blocked-said" });
  const does = (work, told) => async () => {
    const name = user.value.trim();
    mark(user, name ? null : "Must be a valid user id.");
    if (!name) {
      user.focus();
      return null;
    }
    await work(sale.id, name);
    return told(name);
  };
  const block = el("button", { type: "submit", class: "danger" }, "Block");
  const unblock = el("button", { type: "button", id: "unblock" }, "Unblock");
  unblock.addEventListener("click", working(unblock, said, does(api.unblock, (name) => `${name} can buy here.`)));
  return el(
    "form",
    { class: "card", id: "block", novalidate: true, onsubmit: working(block, said, does(api.block, (name) => `${name} cannot buy here.`)) },
    el("h2", {}, "Blocked in this sale"),
    said,
    field("User", user, "For all sales, use “Users”."),
    el("div", { class: "row" }, block, unblock),
  );
}
