// Elements, for all views. Texts from users and servers are set as text, never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. `on…` members of `props` are listeners; true sets an attribute, false omits it. */
export function el(name, props = {}, ...children) {
  return fill(document.createElement(name), props, children);
}

/** An SVG element. */
export function svg(name, props = {}, ...children) {
  return fill(document.createElementNS(SVG, name), props, children);
}

const shown = (children) => children.flat(3).filter((child) => child !== null && child !== undefined && child !== false);

function fill(element, props, children) {
  for (const [key, value] of Object.entries(props)) {
    if (key.startsWith("on")) {
      element.addEventListener(key.slice(2), value);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(key, value === true ? "" : value);
    }
  }
  element.append(...shown(children));
  return element;
}

/** Replaces the contents of `parent` by `children`. */
export function replace(parent, ...children) {
  parent.replaceChildren(...shown(children));
}

/**
 * Like `replace`, but keeps the existing elements and changes only what differs, so that live data never takes the
 * focus away. Listeners of kept elements stay, so they must depend only on what `data-key` names.
 */
export function refresh(parent, ...children) {
  const wanted = shown(children).map((child) => (typeof child === "string" ? document.createTextNode(child) : child));
  const keyed = new Map([...parent.children].filter((child) => child.dataset?.key).map((child) => [child.dataset.key, child]));
  wanted.forEach((child, at) => {
    const there = parent.childNodes[at];
    const same = child.dataset?.key ? keyed.get(child.dataset.key) : there;
    if (!same || same.nodeName !== child.nodeName || (same.dataset?.key ?? "") !== (child.dataset?.key ?? "")) {
      parent.insertBefore(child, there ?? null);
      return;
    }
    if (same !== there) {
      parent.insertBefore(same, there ?? null);
    }
    patch(same, child);
  });
  while (parent.childNodes.length > wanted.length) {
    parent.lastChild.remove();
  }
}

/** Attributes that the person sets, not the data. */
const OWN = new Set(["open", "value"]);

function patch(element, wanted) {
  if (element.nodeType === Node.TEXT_NODE) {
    if (element.data !== wanted.data) {
      element.data = wanted.data;
    }
    return;
  }
  if (element.isEqualNode(wanted)) {
    return;
  }
  for (const { name } of [...element.attributes]) {
    if (!wanted.hasAttribute(name) && !OWN.has(name)) {
      element.removeAttribute(name);
    }
  }
  for (const { name, value } of wanted.attributes) {
    if (element.getAttribute(name) !== value && !OWN.has(name)) {
      element.setAttribute(name, value);
    }
  }
  refresh(element, ...wanted.childNodes);
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

/** A checkbox with its label. */
export const choice = (control, label) => el("label", { class: "choice" }, control, label);

/** A group of fields under a heading. */
export const section = (title, hint, ...children) =>
  el("fieldset", { class: "part" }, el("legend", {}, title), hint && el("p", { class: "hint" }, hint), el("div", { class: "grid" }, children));

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
    for (let fold = control.closest("details"); fold; fold = fold.parentElement.closest("details")) {
      fold.open = true;
    }
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

/** Marks the wrong ones of `faults`, pairs of control and error. Focuses the first one and throws if there is one. */
export function check(faults) {
  faults.forEach(([control, fault]) => mark(control, fault));
  const wrong = faults.filter(([, fault]) => fault);
  if (wrong.length > 0) {
    wrong[0][0].focus();
    throw new Error(wrong.length === 1 ? "Please fix one field." : `Please fix ${wrong.length} fields.`);
  }
}

/** A select whose `options` are pairs of value and text. */
export function select(options, chosen, props = {}) {
  const option = ([value, text]) => el("option", { value, selected: String(value) === String(chosen) }, text);
  return el("select", props, options.map(option));
}

/**
 * A table: headings, and rows of cells. The cell at `named` names the row. On phones, each cell is below its heading. A
 * heading that starts with `#` is of a column of numbers, and one with `~` is only read aloud. `keys` are the rows'
 * names for `refresh`.
 */
export function table(id, heads, rows, keys = [], named = 0) {
  const texts = heads.map((text) => text.replace(/^[#~]/, ""));
  const kind = (at) => (heads[at].startsWith("#") ? "number" : null);
  const cell = (content, at) =>
    at === named
      ? el("th", { scope: "row", role: "rowheader" }, content)
      : el("td", { role: "cell", class: kind(at), "data-head": texts[at] }, content);
  const row = (cells, at) => el("tr", { role: "row", "data-key": keys[at] }, cells.map(cell));
  const shownHead = (text, at) => (heads[at].startsWith("~") ? el("span", { class: "unseen" }, text) : text);
  const head = (text, at) => el("th", { scope: "col", role: "columnheader", class: kind(at) }, shownHead(text, at));
  return el(
    "table",
    { id, class: "list", role: "table" },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, texts.map(head))),
    el("tbody", { role: "rowgroup" }, rows.map(row)),
  );
}

/** What a list shows without entries: a sentence, and what to do next. */
export const empty = (id, text, ...next) => el("div", { class: "empty", id }, el("p", {}, text), next.length > 0 && el("p", { class: "row" }, next));

/** A pair for `dl.facts`. */
export const fact = (name, value, props = {}) => el("div", {}, el("dt", {}, name), el("dd", props, value));

/** A tile with a large number. */
export const tile = (name, value, props = {}, small = null, kind = "") =>
  el("div", { class: `tile ${kind}` }, el("dt", {}, name), el("dd", props, value), small && el("dd", { class: "hint" }, small));

/** A bar that is filled to `part` of `whole`. */
export function meter(part, whole, label) {
  const width = whole > 0 ? Math.max(0, Math.min(100, (100 * part) / whole)) : 0;
  return svg(
    "svg",
    { class: "meter", role: "img", "aria-label": label, preserveAspectRatio: "none", viewBox: "0 0 100 6" },
    svg("rect", { class: "track", width: 100, height: 6 }),
    svg("rect", { class: "full", width, height: 6 }),
  );
}

/** A coloured label: `good` is selling, `info` ready, `warn` needs a look, `bad` a fault, none over. */
export const state = (word, tone = "") => el("span", { class: `state ${tone}` }, word);

export const complaint = (error) => el("p", { class: "notice bad", role: "alert" }, error.message);
export const good = (text) => el("p", { class: "notice good", role: "status" }, text);

/** Announces `text` to screen readers. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Milliseconds for which a result is shown: longer for longer texts. */
const shownFor = (text) => Math.max(6_000, 90 * text.length);

/** Shows the result of an action at the bottom of the window, with an optional button that undoes it. */
export function toast(text, undo = null) {
  const close = () => one.remove();
  const one = el("div", { class: "toast" }, el("span", {}, text));
  if (undo) {
    one.append(el("button", { type: "button", class: "small", onclick: () => { close(); undo(); } }, "Undo"));
  }
  one.append(el("button", { type: "button", class: "quiet small", "aria-label": "Dismiss", onclick: close }, "×"));
  const places = document.getElementById("toasts");
  places.append(one);
  while (places.children.length > 3) {
    places.firstChild.remove();
  }
  const fade = () => (one.matches(":focus-within") ? setTimeout(fade, 1_000) : close());
  setTimeout(fade, shownFor(text));
}

/**
 * A listener that marks `button` as busy while `work` runs. A toast shows the returned text, or a pair of text and the
 * function that undoes the action, and `said` the error. The
 * button is not disabled meanwhile, because it would lose the focus, and keyboard users would start again at the top.
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
      const result = await work();
      replace(said);
      if (result) {
        const [text, undo] = [result].flat();
        toast(text, undo && undoing(said, undo));
      }
    } catch (error) {
      replace(said, complaint(error));
      said.scrollIntoView({ block: "nearest" });
    }
    button.removeAttribute("aria-disabled");
    isBusy = false;
  };
}

/** Undoes an action: a toast says so, and `said` shows an error. */
function undoing(said, undo) {
  return async () => {
    try {
      await undo();
      toast("Undone.");
    } catch (error) {
      replace(said, complaint(error));
      said.scrollIntoView({ block: "nearest" });
    }
  };
}

/** A button that runs `work`. */
export function button(text, props, said, work) {
  const one = el("button", { type: "button", ...props }, text);
  one.addEventListener("click", working(one, said, work));
  return one;
}

/**
 * A dialog that confirms an action with a large effect. `keep` is the text of the button that changes nothing, and says
 * what stays. `typed` is a text to type first, for the worst actions. Resolves to whether the user confirmed.
 */
export function ask(title, text, deed, keep, typed = null) {
  const before = document.activeElement;
  return new Promise((answer) => {
    const dialog = el("dialog", { "aria-labelledby": "ask-title" });
    const close = (value) => () => dialog.close(value);
    const yes = el("button", { type: "button", class: "danger", id: "ask-yes", disabled: Boolean(typed), onclick: close("yes") }, deed);
    const control = el("input", { name: "ask-typed", autocomplete: "off", spellcheck: "false" });
    control.addEventListener("input", () => {
      yes.disabled = control.value.trim() !== typed;
    });
    dialog.append(
      el("h2", { id: "ask-title" }, title),
      el("p", {}, text),
      ...(typed ? [field(`Type “${typed}” to confirm`, control)] : []),
      el("div", { class: "row end" }, el("button", { type: "button", class: "quiet", autofocus: true, onclick: close("") }, keep), yes),
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

/** Radio buttons that look like one control. `chosen` is called with a new value, and returns whether it applies. */
export function segments(name, label, options, chosen, isFixed = false) {
  let now = null;
  const inputs = options.map(([value]) => el("input", { type: "radio", name, value, disabled: isFixed }));
  const set = (value) => {
    now = value;
    inputs.forEach((input) => { input.checked = input.value === value; });
  };
  for (const input of inputs) {
    input.addEventListener("change", async () => {
      const before = now;
      set((await chosen(input.value)) ? input.value : before);
      inputs.find((one) => one.checked)?.focus();
    });
  }
  const element = el("fieldset", { class: "segments" }, el("legend", {}, label),
    el("div", {}, options.map(([, text], at) => el("label", {}, inputs[at], el("span", {}, text)))));
  return { element, set };
}

/**
 * Tabs over `panels`: lists of id, title and elements. The address of a tab is `place` of its id, or of nothing
 * for the first. The elements of a tab get the event `opened` when it is shown.
 */
export function tabs(place, panels, current) {
  const present = panels.filter(([, , panel]) => panel);
  const buttons = present.map(([id, title]) =>
    el("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}` }, title));
  const bodies = present.map(([id, , panel]) => el("div", { role: "tabpanel", id: `panel-${id}`, "aria-labelledby": `tab-${id}` }, panel));
  const show = (at, isChosen) => {
    buttons.forEach((one, n) => {
      one.setAttribute("aria-selected", String(n === at));
      one.tabIndex = n === at ? 0 : -1;
      bodies[n].hidden = n !== at;
    });
    if (isChosen) {
      history.replaceState(null, "", place(at === 0 ? "" : present[at][0]));
      buttons[at].focus();
    }
    for (const child of bodies[at].children) {
      child.dispatchEvent(new Event("opened"));
    }
  };
  buttons.forEach((one, at) => {
    one.addEventListener("click", () => show(at, true));
    one.addEventListener("keydown", ({ key }) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (step) {
        show((at + step + buttons.length) % buttons.length, true);
      }
    });
  });
  show(Math.max(0, present.findIndex(([id]) => id === current)), false);
  return [el("div", { class: "tabs", role: "tablist" }, buttons), bodies];
}

/**
 * Controls that follow the server until somebody changes them. `of` has a control by member. `update` takes the
 * server's values, and `said` reports a field that also changed on the server.
 */
export function follow(of, said, saidOf = (name) => name) {
  const read = (control) => (control.type === "checkbox" ? control.checked : control.value);
  const write = (control, value) => (control.type === "checkbox" ? (control.checked = value) : (control.value = value));
  let base = null;
  const isTouched = (name) => base !== null && read(of[name]) !== base[name];
  const update = (values, isOwn = false) => {
    const clashes = [];
    for (const [name, value] of Object.entries(values)) {
      if (isOwn || !isTouched(name)) {
        write(of[name], value);
      } else if (value !== base[name]) {
        clashes.push(saidOf(name));
      }
    }
    if (isOwn) {
      replace(said);
    } else if (clashes.length > 0) {
      replace(said, el("p", { class: "notice warn", role: "status" }, `Changed elsewhere: ${clashes.join(", ")}. Your values are not saved yet.`));
    }
    base = Object.fromEntries(Object.keys(of).map((name) => [name, values[name] ?? base?.[name]]));
  };
  return { update, changed: () => Object.keys(of).filter(isTouched) };
}

/** A button that copies `text`. */
export function copier(text, source = null) {
  const one = el("button", { type: "button", class: "quiet small", "data-copy": true }, "Copy");
  const done = (word) => {
    one.textContent = word;
    announce(word);
    setTimeout(() => { one.textContent = "Copy"; }, 2000);
  };
  one.addEventListener("click", async () => {
    try {
      // Available only on pages over HTTPS or from localhost.
      await navigator.clipboard.writeText(text);
      done("Copied");
    } catch {
      if (source) {
        getSelection().selectAllChildren(source());
      }
      done("Press Ctrl+C");
    }
  });
  return one;
}

/** Downloads a file. The blob stays available for a minute. */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A link to another site, if the address is safe for browsers; otherwise its text. */
export function outward(url, props = {}) {
  const isWeb = /^https?:\/\//i.test(url);
  return isWeb ? el("a", { href: url, rel: "noopener noreferrer", target: "_blank", ...props }, url) : el("span", props, url);
}
