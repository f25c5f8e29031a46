// The origin's admin routes of events.

import { json } from "../../ui/session.js";

const of = (name, rest) => `groups/${encodeURIComponent(name)}/${rest}`;
const letter = (id, rest = "") => `events/dead-letters/${encodeURIComponent(id)}${rest}`;

export const api = {
  groups: async () => (await json("GET", "groups")).groups,
  pulls: async () => (await json("GET", "events/pulls")).pulls,
  types: async () => (await json("GET", "events/types")).types,
  pause: (name) => json("POST", of(name, "pause")),
  resume: (name) => json("POST", of(name, "resume")),
  retryNow: (name) => json("POST", of(name, "retries/now")),
  seek: (name, target) => json("POST", of(name, "seek"), {}, target),
  letters: (query) => json("GET", "events/dead-letters", query),
  edit: (id, event) => json("PUT", letter(id), {}, { event }),
  resend: (id) => json("POST", letter(id, "/resend")),
  resendMany: (which) => json("POST", "events/dead-letters/resend", {}, which),
  remove: (id) => json("DELETE", letter(id)),
};
