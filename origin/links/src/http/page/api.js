// The origin's admin routes, within the session of the console.

import { send as ask } from "../../ui/session.js";

/** Relative to the page, which is one folder deeper. */
function address(path, query = {}) {
  const wanted = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const search = new URLSearchParams(wanted).toString();
  return `../${path}${search && `?${search}`}`;
}

function send(method, path, query, body, headers = {}) {
  const options = { method, headers: { ...headers } };
  if (body instanceof Blob || typeof body === "string") {
    options.body = body;
  } else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  return ask(address(path, query), options);
}

async function json(...request) {
  const answer = await send(...request);
  return answer.status === 204 ? null : answer.json();
}

const path = (link, rest = "") => `links/${encodeURIComponent(link.code)}${rest}`;
const of = (link, query = {}) => ({ domain: link.domain, ...query });

/** A random key. Also works on pages without TLS. */
function idempotencyKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const api = {
  list: (query) => json("GET", "links", query),
  // Without a key if there is a password: the stored answer would reveal the protected target.
  create: (link) => json("POST", "links", {}, link, link.password ? {} : { "idempotency-key": idempotencyKey() }),
  link: (link) => json("GET", path(link), of(link)),
  edit: (link, changes) => json("PATCH", path(link), of(link), changes, { "if-match": `"${link.version}"` }),
  remove: (link) => json("DELETE", path(link), of(link)),
  history: (link) => json("GET", path(link, "/history"), of(link)),
  domains: () => json("GET", "link-domains"),
  putDomain: (domain, version) => json("PUT", `link-domains/${domain.id}`, {}, domain, { "if-match": `"${version}"` }),
  removeDomain: (domain, version) => json("DELETE", `link-domains/${domain.id}`, {}, undefined, { "if-match": `"${version}"` }),
  stats: (link, query) => json("GET", path(link, "/stats"), of(link, query)),
  csv: async (link, query) => (await send("GET", path(link, "/stats.csv"), of(link, query))).blob(),
  crosstab: (link, query) => json("GET", path(link, "/crosstab"), of(link, query)),
  conversions: (link, query) => json("GET", path(link, "/conversions"), of(link, query)),
  take: (query, text) => json("POST", "link-imports", query, text),
  /** Sends the picture for its middle, if there is one. */
  qr: async (link, kind, style, logo) => (await send(logo ? "POST" : "GET", path(link, `/qr.${kind}`), of(link, style), logo ?? undefined)).blob(),
};
