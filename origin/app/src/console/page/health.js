// What keeps the origin from its work, above every view: `/readyz` says it, which needs no key.

import { complaint, replace } from "./dom.js";
import { send } from "./session.js";

const PROBE = new URL("../readyz", import.meta.url);

/** How often the origin is asked, in milliseconds. */
const INTERVAL_MS = 15_000;

const place = document.getElementById("health");
let timer = null;
let shown = "";

/** What is wrong; empty if nothing is. */
async function trouble() {
  try {
    const { redis } = await (await send(PROBE)).json();
    return redis ? `Redis has refused commands in the last minute (${redis}). The origin's log says what to do.` : "";
  } catch (error) {
    return error.message;
  }
}

async function look() {
  const text = await trouble();
  // An alert that is written again is read out again.
  if (text !== shown && timer) {
    shown = text;
    replace(place, text ? complaint(new Error(text)) : null);
  }
}

export const health = {
  /** Looks now, and from now on. */
  watch() {
    timer ??= setInterval(look, INTERVAL_MS);
    look();
  },
  /** Shows nothing any more. */
  hide() {
    clearInterval(timer);
    timer = null;
    shown = "";
    replace(place);
  },
};
