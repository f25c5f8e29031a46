// The origin's admin routes of links.

import { json, newKey, send } from "../../ui/session.js";

const path = (link, rest = "") => `links/${encodeURIComponent(link.code)}${rest}`;
const of = (link, query = {}) => ({ domain: link.domain, ...query });
const blob = async (...request) => (await send(...request)).blob();

export const api = {
  list: (query) => json("GET", "links", query),
  // Without a key if there is a password: the stored answer would reveal the protected target.
  create: (link) => json("POST", "links", {}, link, link.password ? {} : { "idempotency-key": newKey() }),
  link: (link) => json("GET", path(link), of(link)),
  edit: (link, changes) => json("PATCH", path(link), of(link), changes, { "if-match": `"${link.version}"` }),
  remove: (link) => json("DELETE", path(link), of(link)),
  history: (link) => json("GET", path(link, "/history"), of(link)),
  domains: () => json("GET", "link-domains"),
  putDomain: (domain, version) => json("PUT", `link-domains/${domain.id}`, {}, domain, { "if-match": `"${version}"` }),
  removeDomain: (domain, version) => json("DELETE", `link-domains/${domain.id}`, {}, undefined, { "if-match": `"${version}"` }),
  stats: (link, query) => json("GET", path(link, "/stats"), of(link, query)),
  csv: (link, query) => blob(path(link, "/stats.csv"), { query: of(link, query) }),
  crosstab: (link, query) => json("GET", path(link, "/crosstab"), of(link, query)),
  conversions: (link, query) => json("GET", path(link, "/conversions"), of(link, query)),
  groupStats: (query) => json("GET", "link-stats", query),
  folders: () => json("GET", "link-folders"),
  reports: () => json("GET", "link-reports"),
  share: (report) => json("POST", "link-reports", {}, report),
  revoke: (id) => json("DELETE", `link-reports/${id}`),
  templates: () => json("GET", "link-utm-templates"),
  putTemplate: (name, utm) => json("PUT", `link-utm-templates/${encodeURIComponent(name)}`, {}, utm),
  removeTemplate: (name) => json("DELETE", `link-utm-templates/${encodeURIComponent(name)}`),
  take: (query, text) => json("POST", "link-imports", query, text),
  /** Sends the picture for its middle, if there is one. */
  qr: (link, kind, style, logo) => blob(path(link, `/qr.${kind}`), { method: logo ? "POST" : "GET", query: of(link, style), body: logo }),
};
