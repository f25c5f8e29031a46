// Elements, for all pages of this port. Texts from users and servers are set as text, never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. `on…` members of `props` are listeners; true sets an attribute, false omits it. */
export function el(name, props = {}, ...children) {
  return fill(document.createElement(name), props, children);
}

/** An SVG element. */
export function svg(name, props = {}, ...children) {
  return fill(document.createElementNS(SVG, name), props, children);
}

function fill(element, props, children) {
  for (const [key, value] of Object.entries(props)) {
    if (key.startsWith("on")) {
      element.addEventListener(key.slice(2), value);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(key, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Replaces the contents of `parent` by `children`. */
export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat().filter(Boolean));
}

let fields = 0;

/** A labelled control, with an optional hint below it. */
export function field(label, control, hint = null) {
  fields += 1;
  control.id = `field-${fields}`;
  const parts = [el("label", { for: control.id }, label), control];
  if (hint) {
    const id = `hint-${fields}`;
    control.setAttribute("aria-describedby", id);
    parts.push(el("p", { class: "hint", id }, hint));
  }
  return el("div", { class: "field" }, parts);
}

/** Shows an error at a control of `field`; null removes it. */
export function mark(control, complaint) {
  const id = `${control.id}-wrong`;
  let wrong = document.getElementById(id);
  if (complaint && !wrong) {
    wrong = el("p", { class: "wrong", id });
    control.parentElement.append(wrong);
    const others = control.getAttribute("aria-describedby") ?? "";
    control.setAttribute("aria-describedby", `${id} ${others}`.trim());
  }
  if (wrong) {
    wrong.textContent = complaint ?? "";
  }
  if (complaint) {
    control.setAttribute("aria-invalid", "true");
  } else {
    control.removeAttribute("aria-invalid");
  }
}

/** Shows the origin's errors at the controls, by the pointers of their members. Focuses the first one. */
export function markAll(controls, errors) {
  const known = Object.entries(controls).filter(([, control]) => control.id.startsWith("field-"));
  const marked = known.filter(([pointer, control]) => {
    const error = errors.find((one) => one.pointer === pointer || one.pointer.startsWith(`${pointer}/`));
    mark(control, error?.detail ?? null);
    return error;
  });
  marked[0]?.[1].focus();
}

/** A select whose `options` are pairs of value and text. */
export function select(options, chosen, props = {}) {
  const option = ([value, text]) => el("option", { value, selected: String(value) === String(chosen) }, text);
  return el("select", props, options.map(option));
}

/** A table: headings, and rows of cells. The first cell names the row. On phones, each cell is below its heading. */
export function table(id, heads, rows) {
  const cell = (content, at) =>
    at === 0
      ? el("th", { scope: "row", role: "rowheader" }, content)
      : el("td", { role: "cell", "data-head": heads[at] }, content);
  const row = (cells) => el("tr", { role: "row" }, cells.map(cell));
  const head = (text) => el("th", { scope: "col", role: "columnheader" }, text);
  return el(
    "table",
    { id, class: "list", role: "table" },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, heads.map(head))),
    el("tbody", { role: "rowgroup" }, rows.map(row)),
  );
}

/** A pair for `dl.facts`. */
export const fact = (name, value, props = {}) => el("div", {}, el("dt", {}, name), el("dd", props, value));

/** A coloured label. */
export const state = (word, isGood) => el("span", { class: `state ${isGood ? "on" : "off"}` }, word);

export const complaint = (error) => el("p", { class: "notice bad", role: "alert" }, error.message);
export const good = (text) => el("p", { class: "notice good", role: "status" }, text);

/**
 * A listener that marks `button` as busy while `work` runs. `said` shows the result or the error. The button is not
 * disabled meanwhile, because it would lose the focus, and keyboard users would start again at the top.
 */
export function working(button, said, work) {
  let isBusy = false;
  return async (event) => {
    event.preventDefault();
    if (isBusy) {
      return;
    }
    isBusy = true;
    button.setAttribute("aria-disabled", "true");
    try {
      const told = await work();
      replace(said, told ? good(told) : null);
    } catch (error) {
      replace(said, complaint(error));
      said.scrollIntoView({ block: "nearest" });
    }
    button.removeAttribute("aria-disabled");
    isBusy = false;
  };
}

/** A button that runs `work`. */
export function button(text, props, said, work) {
  const one = el("button", { type: "button", ...props }, text);
  one.addEventListener("click", working(one, said, work));
  return one;
}

/** Announces `text` to screen readers. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** A dialog that confirms an action with a large effect. Resolves to whether the user confirmed. */
export function ask(title, text, doIt) {
  const before = document.activeElement;
  return new Promise((answer) => {
    const dialog = el("dialog", { "aria-labelledby": "ask-title" });
    const close = (value) => () => dialog.close(value);
    dialog.append(
      el("h2", { id: "ask-title" }, title),
      el("p", {}, text),
      el(
        "div",
        { class: "row end" },
        el("button", { type: "button", class: "quiet", autofocus: true, onclick: close("") }, "Cancel"),
        el("button", { type: "button", class: "danger", id: "ask-yes", onclick: close("yes") }, doIt),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      before?.focus();
      answer(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
