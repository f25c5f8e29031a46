// The origin's admin routes, as the console asks them.

import { send } from "./session.js";

/** Relative to the page, as are its files. */
function address(path, query = {}) {
  const wanted = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const search = new URLSearchParams(wanted).toString();
  return search ? `${path}?${search}` : path;
}

async function json(method, path, query, body) {
  const options = { method };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "content-type": "application/json" };
  }
  const answer = await send(address(path, query), options);
  return answer.status === 204 ? null : answer.json();
}

const sale = (id, rest = "") => `sales/${encodeURIComponent(id)}${rest}`;

export const api = {
  sales: async () => (await json("GET", "sales")).sales,
  sale: (id) => json("GET", sale(id)),
  make: (new_sale) => json("POST", "sales", {}, new_sale),
  warm: (id) => json("POST", sale(id, "/warm")),
  switchTo: (id, change) => json("PUT", sale(id, "/switch"), {}, change),
  audit: (id) => json("GET", sale(id, "/audit")),
  live: (id) => new EventSource(address(sale(id, "/live"))),
  globalSwitch: () => json("GET", "switch"),
  setGlobalSwitch: (state) => json("PUT", "switch", {}, { state }),
  refundsDue: async () => (await json("GET", "payments", { state: "refund_due" })).payments,
  rooms: async () => (await json("GET", "rooms")).rooms,
  room: (name) => json("GET", `rooms/${encodeURIComponent(name)}`),
  setRoom: (name, setting) => json("PUT", `rooms/${encodeURIComponent(name)}`, {}, setting),
  limits: () => json("GET", "limits"),
  keys: async () => (await json("GET", "access/keys")).keys,
  makeKey: (key) => json("POST", "access/keys", {}, key),
  revokeKey: (id) => json("DELETE", `access/keys/${encodeURIComponent(id)}`),
  trail: (query) => json("GET", "access/audit", query),
};
