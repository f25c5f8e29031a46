// Elements: the console's, and a link's.

import { el } from "../../ui/dom.js";

export { announce, ask, el, field, replace, select, svg } from "../../ui/dom.js";

/** A link, if the address is safe for browsers; otherwise its text. */
export function outward(url, props = {}) {
  const isWeb = /^https?:\/\//i.test(url);
  const rel = "noopener noreferrer";
  return isWeb ? el("a", { href: url, rel, target: "_blank", ...props }, url) : el("span", props, url);
}
