// The origin's admin routes, within the session of the console.

import { FROM_PAGE } from "../../ui/session.js";

/** A refusal, with the origin's message. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** The error message of an answer: from a problem, or from the verdicts of events. */
function reason(status, body) {
  const verdict = (body.verdicts ?? []).find((one) => one.verdict === "rejected");
  return verdict ? `Refused again: ${verdict.message ?? verdict.reason}` : (body.detail ?? `The origin answered ${status}.`);
}

/** Relative to the page. */
async function json(method, path, body) {
  const options = { method, headers: { ...FROM_PAGE }, cache: "no-store" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(`../${path}`, options);
  } catch {
    throw new Problem(0, "The origin does not respond.");
  }
  const told = answer.status === 204 ? null : await answer.json().catch(() => ({}));
  if (!answer.ok) {
    throw new Problem(answer.status, reason(answer.status, told ?? {}));
  }
  return told;
}

const of = (name, rest) => `groups/${encodeURIComponent(name)}/${rest}`;
const letter = (id, rest = "") => `events/dead-letters/${encodeURIComponent(id)}${rest}`;

export const api = {
  groups: async () => (await json("GET", "groups")).groups,
  pulls: async () => (await json("GET", "events/pulls")).pulls,
  pause: (name) => json("POST", of(name, "pause")),
  resume: (name) => json("POST", of(name, "resume")),
  retryNow: (name) => json("POST", of(name, "retries/now")),
  seek: (name, target) => json("POST", of(name, "seek"), target),
  letters: (query) => json("GET", `events/dead-letters?${new URLSearchParams(query)}`),
  mend: (id, event) => json("PUT", letter(id), { event }),
  resend: (id) => json("POST", letter(id, "/resend")),
  resendMany: (which) => json("POST", "events/dead-letters/resend", which),
  remove: (id) => json("DELETE", letter(id)),
};
