// The origin's admin routes that the console calls.

import { address, json } from "./session.js";

const part = encodeURIComponent;
const sale = (id, rest = "") => `sales/${part(id)}${rest}`;

/** All pages of a list, at most `max` entries. */
async function all(path, member, max = 1_000) {
  const found = [];
  for (let after = null; ; ) {
    const page = await json("GET", path, { after });
    found.push(...page[member]);
    after = page.next;
    if (!after || found.length >= max) {
      return found;
    }
  }
}

export const api = {
  sales: () => all("sales", "sales"),
  sale: (id) => json("GET", sale(id)),
  payloadSchema: async (id) => (await json("GET", sale(id, "/payload-schema"))).payload_schema,
  make: (newSale) => json("POST", "sales", {}, newSale),
  warm: (id) => json("POST", sale(id, "/warm")),
  switchTo: (id, change) => json("PUT", sale(id, "/switch"), {}, change),
  money: (id) => json("GET", sale(id, "/money")),
  audit: (id) => json("GET", sale(id, "/audit")),
  change: (id, members) => json("PATCH", sale(id), {}, members),
  stock: (id) => json("GET", sale(id, "/stock")),
  /** Requests with the same `key` are one change. */
  changeStock: (id, key, units) => json("POST", sale(id, "/stock"), {}, { units }, { "idempotency-key": key }),
  orders: (query) => json("GET", "orders", query),
  order: (id) => json("GET", `orders/${part(id)}`),
  orderChanges: async (id) => (await json("GET", `orders/${part(id)}/changes`)).changes,
  runOrderBatch: async (action, orders) => (await json("POST", "order-batches", {}, { action, orders })).verdicts,
  ordersAsTable: (query) => address("orders.csv", query),
  gaveBack: (payment, note) => json("POST", `payments/${part(payment)}/refunded`, {}, note),
  block: (id, user) => json("PUT", sale(id, `/blocked/${part(user)}`)),
  unblock: (id, user) => json("DELETE", sale(id, `/blocked/${part(user)}`)),
  users: async (query) => (await json("GET", "user-list", query)).users,
  user: (name) => json("GET", `user-list/${part(name)}`),
  setUser: (name, status) => json("PUT", `user-list/${part(name)}`, {}, status),
  clearUser: (name, removal) => json("DELETE", `user-list/${part(name)}`, {}, removal),
  tenants: async () => (await json("GET", "tenants")).tenants,
  setTenant: (name, tenant) => json("PUT", `tenants/${part(name)}`, {}, tenant),
  deleteTenant: (name) => json("DELETE", `tenants/${part(name)}`),
  liveNow: (id) => json("GET", sale(id, "/live")),
  live: (id) => new EventSource(address(sale(id, "/live"))),
  globalSwitch: () => json("GET", "switch"),
  setGlobalSwitch: (state) => json("PUT", "switch", {}, { state }),
  refundsDue: async () => (await json("GET", "payments", { state: "refund_due" })).payments,
  rooms: async () => (await json("GET", "rooms")).rooms,
  room: (name) => json("GET", `rooms/${part(name)}`),
  clearRoom: (name) => json("DELETE", `rooms/${part(name)}`),
  setRoom: (name, setting) => json("PUT", `rooms/${part(name)}`, {}, setting),
  gateways: () => json("GET", "gateways"),
  limits: () => json("GET", "limits"),
  refusals: (minutes) => json("GET", "limits/refusals", { minutes }),
  groups: async () => (await json("GET", "groups")).groups,
  pulls: async () => (await json("GET", "events/pulls")).pulls,
  deadLetters: (query) => json("GET", "events/dead-letters", query),
  links: (query) => json("GET", "links", query),
  keys: async () => (await json("GET", "access/keys")).keys,
  makeKey: (key) => json("POST", "access/keys", {}, key),
  revokeKey: (id) => json("DELETE", `access/keys/${part(id)}`),
  trail: (query) => json("GET", "access/audit", query),
};
