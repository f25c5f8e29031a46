// The origin's admin routes. The token is kept for as long as this tab is open.

const KEPT = "weir-admin-token";

/** A refusal, with the origin's own words. */
export class Problem extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEPT),
  set: (value) => sessionStorage.setItem(KEPT, value),
  forget: () => sessionStorage.removeItem(KEPT),
};

/** Relative to the page, as are its files. */
function address(path, query = {}) {
  const wanted = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const search = new URLSearchParams(wanted).toString();
  return search ? `${path}?${search}` : path;
}

async function send(method, path, query, body, headers = {}) {
  const options = { method, headers: { ...headers, authorization: `Bearer ${token.get() ?? ""}` }, cache: "no-store" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(address(path, query), options);
  } catch {
    throw new Problem(0, "no_answer", "The origin does not answer.");
  }
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw new Problem(answer.status, problem.error ?? "", problem.detail ?? `The origin answered ${answer.status}.`);
  }
  return answer;
}

async function json(...request) {
  const answer = await send(...request);
  return answer.status === 204 ? null : answer.json();
}

const path = (link, rest = "") => `links/${encodeURIComponent(link.code)}${rest}`;
const of = (link, query = {}) => ({ domain: link.domain, ...query });

/** Random, and made in pages that came without TLS, too. */
function idempotencyKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const api = {
  list: (query) => json("GET", "links", query),
  create: (link) => json("POST", "links", {}, link, { "idempotency-key": idempotencyKey() }),
  link: (link) => json("GET", path(link), of(link)),
  edit: (link, changes) => json("PATCH", path(link), of(link), changes, { "if-match": `"${link.version}"` }),
  remove: (link) => json("DELETE", path(link), of(link)),
  history: (link) => json("GET", path(link, "/history"), of(link)),
  domains: () => json("GET", "link-domains"),
  putDomain: (domain, version) => json("PUT", `link-domains/${domain.id}`, {}, domain, { "if-match": `"${version}"` }),
  removeDomain: (domain, version) => json("DELETE", `link-domains/${domain.id}`, {}, undefined, { "if-match": `"${version}"` }),
  stats: (link, query) => json("GET", path(link, "/stats"), of(link, query)),
  csv: async (link, query) => (await send("GET", path(link, "/stats.csv"), of(link, query))).blob(),
  qr: async (link, kind, style) => (await send("GET", path(link, `/qr.${kind}`), of(link, style))).blob(),
};
