// The session of this browser. A key becomes a cookie that scripts cannot read. All pages of this port share it.

const PLACE = new URL("../access/session", import.meta.url);

/** The header of every request that changes something. Pages of other sites cannot send it. */
export const FROM_PAGE = { "x-weir-console": "1" };

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

/** Returns the answer to a request. Throws a Problem unless it is a success. */
export async function send(address, options = {}) {
  const headers = { ...FROM_PAGE, ...options.headers };
  let answer;
  try {
    answer = await fetch(address, { cache: "no-store", ...options, headers });
  } catch {
    throw new Problem(0, "no_answer", "The origin does not respond.");
  }
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw new Problem(answer.status, problem.error ?? "", problem.detail ?? `The origin answered ${answer.status}.`, problem.errors);
  }
  return answer;
}

export const session = {
  /** The signed-in user with its scopes; null if no user is signed in. */
  who: async () => {
    const answer = await send(PLACE);
    return answer.status === 204 ? null : answer.json();
  },
  /** Signs in with a key, or with the admin token. */
  open: async (key) => (await send(PLACE, { method: "POST", body: JSON.stringify({ key }) })).json(),
  /** Signs out. */
  close: async () => {
    await send(PLACE, { method: "DELETE" });
  },
};
