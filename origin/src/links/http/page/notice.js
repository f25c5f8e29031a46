// What went wrong, where it is seen and heard.

import { el } from "./dom.js";

export function complaint(error) {
  return el("p", { class: "notice bad", role: "alert" }, error.message);
}
