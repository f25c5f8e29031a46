// The origin's admin routes of events.

import { address, json } from "../../ui/session.js";

const of = (name, rest) => `groups/${encodeURIComponent(name)}/${rest}`;
const customer = (id, rest) => `customers/${encodeURIComponent(id)}/${rest}`;
const segment = (name, rest = "") => `events/segments/${encodeURIComponent(name)}${rest}`;
const letter = (id, rest = "") => `events/dead-letters/${encodeURIComponent(id)}${rest}`;

export const api = {
  groups: async () => (await json("GET", "groups")).groups,
  pulls: async () => (await json("GET", "events/pulls")).pulls,
  types: async () => (await json("GET", "events/types")).types,
  trends: (query) => json("GET", "events/trends", query),
  funnel: (query) => json("GET", "events/funnels", query),
  profile: (id) => json("GET", customer(id, "profile")),
  eventsOf: (id, query) => json("GET", customer(id, "events"), query),
  segments: async () => (await json("GET", "events/segments")).segments,
  saveSegment: (name, spec) => json("PUT", segment(name), {}, spec),
  evaluate: (name) => json("POST", segment(name, "/evaluate")),
  removeSegment: (name) => json("DELETE", segment(name)),
  members: (name, query) => json("GET", segment(name, "/members"), query),
  membersAsTable: (name) => address(segment(name, "/members.csv")),
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
