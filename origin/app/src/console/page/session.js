// The session of this browser, and the requests of all views. A key becomes a cookie that scripts cannot read.

/** The origin's admin routes are next to the folder of these files, also behind a proxy that puts them into a folder. */
const ROOT = new URL("../", import.meta.url);

/** The header of every request that changes something. Pages of other sites cannot send it. */
const FROM_PAGE = { "x-weir-console": "1" };

/** A refusal, with the origin's message. */
export class Problem extends Error {
  constructor(status, code, detail, errors = []) {
    super(detail);
    this.status = status;
    this.code = code;
    /** Errors of members, each with `pointer` and `detail`. */
    this.errors = errors;
  }
}

/** The address of a route. Empty values of `query` are left out. */
export function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const url = new URL(path, ROOT);
  url.search = new URLSearchParams(given).toString();
  return url.href;
}

/** The message of a problem, or of the refused event of a batch. */
function detailOf(status, body) {
  const verdict = (body.verdicts ?? []).find((one) => one.verdict === "rejected");
  const detail = verdict ? `Rejected again: ${verdict.message ?? verdict.reason}` : (body.detail ?? `The origin answered ${status}.`);
  const text = detail.charAt(0).toUpperCase() + detail.slice(1);
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}

/** Returns the answer to a request. Throws a Problem unless it is a success. */
export async function send(path, { query, body, headers, method = "GET" } = {}) {
  const isRaw = body === undefined || typeof body === "string" || body instanceof Blob;
  const kind = isRaw ? {} : { "content-type": "application/json" };
  const options = { method, cache: "no-store", headers: { ...FROM_PAGE, ...kind, ...headers }, body: isRaw ? body : JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(address(path, query), options);
  } catch {
    throw new Problem(0, "no_answer", "The origin does not respond.");
  }
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    if (answer.status === 401 && path !== SESSION) {
      session.onEnd();
    }
    throw new Problem(answer.status, problem.error ?? "", detailOf(answer.status, problem), problem.errors);
  }
  return answer;
}

/** The JSON document of an answer; null if it has none. */
export async function json(method, path, query, body, headers) {
  const answer = await send(path, { method, query, body, headers });
  return answer.status === 204 ? null : answer.json();
}

/** A random idempotency key. Also works on pages without TLS. */
export const newKey = () => `console-${Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;

const SESSION = "access/session";

export const session = {
  /** Called when the session has ended. */
  onEnd: () => {},
  /** The signed-in user with its scopes; null if no user is signed in. */
  who: () => json("GET", SESSION),
  /** Signs in with a key, or with the admin token. */
  open: (key) => json("POST", SESSION, {}, JSON.stringify({ key })),
  /** Signs out. */
  close: () => json("DELETE", SESSION),
};
