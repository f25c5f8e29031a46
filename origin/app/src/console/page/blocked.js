// Users who may not buy in one sale.

import { api } from "./api.js";
import { ask, el, field, mark, working } from "./dom.js";

/** The form that blocks a user in a sale, or lets the user buy again. */
export function blocked(sale) {
  const user = el("input", { name: "blocked", autocomplete: "off", spellcheck: "false" });
  const said = el("div", { id: "blocked-said" });
  const does = (work) => async () => {
    const name = user.value.trim();
    mark(user, name ? null : "Must be a valid user id.");
    if (!name) {
      user.focus();
      return null;
    }
    return work(name);
  };
  const block = el("button", { type: "submit", class: "danger" }, "Block");
  const unblock = el("button", { type: "button", id: "unblock" }, "Unblock");
  const stop = does(async (name) => {
    if (!(await ask(`Block ${name} in “${sale.title}”?`, "The user cannot buy in this sale. Existing orders are kept.", "Block user", "Keep unblocked"))) {
      return null;
    }
    await api.block(sale.id, name);
    return [`${name} cannot buy here.`, () => api.unblock(sale.id, name)];
  });
  const allow = does(async (name) => {
    await api.unblock(sale.id, name);
    return [`${name} can buy here.`, () => api.block(sale.id, name)];
  });
  unblock.addEventListener("click", working(unblock, said, allow));
  return el(
    "form",
    { class: "card", id: "block", novalidate: true, onsubmit: working(block, said, stop) },
    el("h2", {}, "Block a user in this sale"),
    said,
    field("User", user, "To block in all sales, use Customers."),
    el("div", { class: "row" }, block, unblock),
  );
}
