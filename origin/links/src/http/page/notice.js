// Error messages, visible and audible.

import { complaint, replace } from "../../ui/dom.js";

export { complaint };

/** A listener that disables `button` while `work` runs. On failure, `said` shows the error, and the button works again. */
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
