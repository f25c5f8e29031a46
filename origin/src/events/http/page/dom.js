// Elements. Text from people and servers only ever becomes text: nothing here parses HTML.

/** An element: `on…` members of `props` are listeners, true and false set or leave out an attribute. */
export function el(name, props = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (key.startsWith("on")) {
      element.addEventListener(key.slice(2), value);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(key, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

let fields = 0;

/** A labelled control. */
export function field(label, control) {
  fields += 1;
  control.id = `field-${fields}`;
  return el("div", { class: "field" }, el("label", { for: control.id }, label), control);
}

export const bad = (text) => el("p", { class: "notice bad", role: "alert" }, text);
export const good = (text) => el("p", { class: "notice good", role: "status" }, text);

/** A button that waits while `work` is done; `said` tells what came of it, or why nothing did. */
export function button(text, props, said, work) {
  const one = el("button", { type: "button", ...props }, text);
  one.addEventListener("click", async () => {
    one.disabled = true;
    try {
      const told = await work();
      said.replaceChildren(...(told ? [good(told)] : []));
    } catch (error) {
      said.replaceChildren(bad(error.message));
    }
    one.disabled = false;
  });
  return one;
}

/** The same, pressed twice: the first time it asks. */
export function asking(text, question, props, said, work) {
  let isAsked = false;
  const one = button(text, props, said, async () => {
    if (!isAsked) {
      isAsked = true;
      one.textContent = question;
      return null;
    }
    isAsked = false;
    one.textContent = text;
    return work();
  });
  return one;
}

/** An instant in UTC, to the second. */
export const instant = (ms) => (ms === null || ms === undefined ? "never" : `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`);

/** How long something is, in one unit. */
export function age(ms) {
  if (ms === null || ms === undefined) {
    return "none";
  }
  const units = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1_000]];
  const [name, unit] = units.find(([, size]) => ms >= size) ?? ["ms", 1];
  return `${Math.floor(ms / unit)} ${name}`;
}

export const count = (number) => number.toLocaleString("en");
