// What went wrong, where it is seen and heard.

import { complaint, replace } from "../../ui/dom.js";

export { complaint };

/** A listener that lets `button` wait while `work` is done. If that fails, `said` says why, and it can be tried again. */
export function working(button, said, work) {
  return async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await work();
    } catch (error) {
      replace(said, complaint(error));
      said.scrollIntoView({ block: "center" });
      button.disabled = false;
    }
  };
}
