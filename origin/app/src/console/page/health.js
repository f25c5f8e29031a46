// Shows the problems that `/readyz` reports, above every view. `/readyz` needs no key.

import { complaint, replace } from "./dom.js";
import { send } from "./session.js";

const PROBE = "readyz";

/** Interval of the requests, in milliseconds. */
const INTERVAL_MS = 15_000;

const place = document.getElementById("health");
let timer = null;
let shown = "";

/** The current problem; empty if there is none. */
async function trouble() {
  try {
    const { redis } = await (await send(PROBE)).json();
    return redis ? `Redis refused commands in the last minute (${redis}). See the origin's log for what to do.` : "";
  } catch (error) {
    return error.message;
  }
}

async function look() {
  const text = await trouble();
  // Screen readers repeat an alert that is written again.
  if (text !== shown && timer) {
    shown = text;
    replace(place, text ? complaint(new Error(text)) : null);
  }
}

export const health = {
  /** Checks now, and then at every interval. */
  watch() {
    timer ??= setInterval(look, INTERVAL_MS);
    look();
  },
  /** Stops the checks, and removes the message. */
  hide() {
    clearInterval(timer);
    timer = null;
    shown = "";
    replace(place);
  },
};
