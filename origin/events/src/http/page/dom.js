// Elements: the console's, and those of this page.

import { button, complaint } from "../../ui/dom.js";

export { button, el, field } from "../../ui/dom.js";

export const bad = (text) => complaint({ message: text });

/** A button that needs two clicks: the first one shows a question. */
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

/** A duration in one unit. */
export function age(ms) {
  if (ms === null || ms === undefined) {
    return "none";
  }
  const units = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1_000]];
  const [name, unit] = units.find(([, size]) => ms >= size) ?? ["ms", 1];
  return `${Math.floor(ms / unit)} ${name}`;
}

export const count = (number) => number.toLocaleString("en");
