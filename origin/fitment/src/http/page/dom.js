// Elements: the console's, and those of this page.

import { el } from "../../ui/dom.js";

export { el };

/** A labelled text field. */
export function field(label, name, props = {}) {
  const input = el("input", { id: name, name, autocomplete: "off", spellcheck: "false", ...props });
  return el("div", { class: "field" }, el("label", { for: name }, label), input);
}

/** A table, or a sentence if it has no rows. */
export function table(heads, rows, otherwise) {
  if (rows.length === 0) {
    return el("p", { class: "soft" }, otherwise);
  }
  const head = el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text)));
  const cells = (row) => el("tr", {}, row.map((cell) => el("td", {}, cell)));
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, rows.map(cells))));
}

/** A form that calls `submitted` with the values of its fields. */
export function form(button, submitted, ...fields) {
  const send = (event) => {
    event.preventDefault();
    submitted(Object.fromEntries(new FormData(event.target)));
  };
  return el("form", { onsubmit: send }, ...fields, el("button", { type: "submit" }, button));
}
