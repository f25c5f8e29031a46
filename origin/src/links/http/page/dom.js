// Elements. Text from people and servers only ever becomes text: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: `on…` members of `props` are listeners, true and false set or leave out an attribute. */
export function el(name, props = {}, ...children) {
  return fill(document.createElement(name), props, children);
}

/** The same in SVG. */
export function svg(name, props = {}, ...children) {
  return fill(document.createElementNS(SVG, name), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Puts `children` in the place of what `parent` holds. */
export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat().filter(Boolean));
}

let fields = 0;

/** A labelled control, with a hint below it if there is one. */
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

/** A select whose `options` are pairs of value and text. */
export function select(options, chosen, props = {}) {
  return el(
    "select",
    props,
    options.map(([value, text]) => el("option", { value, selected: String(value) === String(chosen) }, text)),
  );
}

/** Says `text` to those who listen to the page. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** A link, if it is one that a browser may follow; else just its text. */
export function outward(url, props = {}) {
  const isWeb = /^https?:\/\//i.test(url);
  const rel = "noopener noreferrer";
  return isWeb ? el("a", { href: url, rel, target: "_blank", ...props }, url) : el("span", props, url);
}

/** A dialog that asks before something is done that cannot be undone. Resolves to the answer. */
export function ask(title, text, doIt) {
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
      answer(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
