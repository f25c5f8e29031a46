// The form that creates a sale, empty or as a copy. It shows all errors at once. The origin validates again.

import { api } from "./api.js";
import { check, choice, el, fact, field, markAll, refresh, section, select, working } from "./dom.js";
import { HOUR_MS, MINUTE_MS, atMinute, clock, count, elsewhere, length, minute, money, smallest, time, typed } from "./format.js";

const TOTAL_MAX = 1_000_000_000;
const SHARDS_MAX = 64;
const USER_CAP_MAX = 1_000;
const SKU_LEN_MAX = 64;
const UNIT_AMOUNT_MAX = 1_000_000_000_000;
const GROUP_CAP_MAX = 1_000_000;
const WINNERS_MAX = 1_000_000;
const [BITS_MIN, BITS_MAX] = [8, 26];
const PAY_WITHIN_MINUTES_MAX = 30 * 24 * 60;
const ID_LEN_MAX = 64;
const SIZES_MAX = 30;

const text = (name, value = "", props = {}) => el("input", { name, value, autocomplete: "off", ...props });
const code = (name, value = "") => text(name, value, { spellcheck: "false" });
const whole = (name, value) => text(name, value, { inputmode: "numeric" });
const moment = (name, ms) => el("input", { name, type: "datetime-local", value: ms === null ? "" : minute(ms) });
const box = (name, checked) => el("input", { name, type: "checkbox", checked });

const inRange = (value, min, max) => /^\d+$/.test(value) && Number(value) >= min && Number(value) <= max;

/** The initial form values: defaults, or a copy of a sale with a period in the future. */
async function template(copied) {
  const hour = Math.ceil(Date.now() / HOUR_MS) * HOUR_MS;
  const usual = {
    title: "", total: "", user_cap: 1, starts_at_ms: hour + HOUR_MS, ends_at_ms: hour + 2 * HOUR_MS, token: false, challenge: null, sku: null, price: null,
    group: null, reservation: null, draw: null, payment: "at_order", listed: false, warm_before_ms: 5 * MINUTE_MS, shard_count: 8, payload_schema: null,
  };
  if (!copied) {
    return usual;
  }
  const sale = await api.sale(copied);
  const later = sale.starts_at_ms > Date.now() ? 0 : usual.starts_at_ms - sale.starts_at_ms;
  const moved = (ms) => ms + later;
  return {
    ...usual,
    ...sale,
    starts_at_ms: moved(sale.starts_at_ms),
    ends_at_ms: moved(sale.ends_at_ms),
    reservation: sale.reservation && { from_ms: moved(sale.reservation.from_ms), until_ms: moved(sale.reservation.until_ms) },
    payload_schema: await api.payloadSchema(copied),
  };
}

/** The controls of the form, by the member that each sets. */
function controls(sale, tenant) {
  const { price, group, reservation, draw, payment, challenge } = sale;
  return {
    title: text("title", sale.title),
    // All ids of a tenant begin with its name.
    id: code("id", tenant ? `${tenant}--` : ""),
    sku: code("sku", sale.sku ?? ""),
    price: text("price", price ? typed(price.unit_amount, price.currency) : "", { inputmode: "decimal" }),
    currency: code("currency", price?.currency ?? "EUR"),
    listed: box("listed", sale.listed),
    starts_at_ms: moment("starts_at_ms", sale.starts_at_ms),
    ends_at_ms: moment("ends_at_ms", sale.ends_at_ms),
    warm: whole("warm", sale.warm_before_ms === null ? "" : Math.round(sale.warm_before_ms / MINUTE_MS)),
    reserved: box("reserved", Boolean(reservation)),
    reserve_from: moment("reserve_from", reservation?.from_ms ?? null),
    reserve_until: moment("reserve_until", reservation?.until_ms ?? null),
    winners: whole("winners", draw?.winners ?? ""),
    total: whole("total", sale.total),
    sizes: el("textarea", { name: "sizes", rows: 3, spellcheck: "false", placeholder: "S, 100\nM, 250" }),
    user_cap: whole("user_cap", sale.user_cap),
    payment: select([["at_order", "on order"], ["hold", "on order, for a limited time"], ["at_payment", "on payment"]], payment.hold ? "hold" : payment, { name: "payment" }),
    pay_within: whole("pay_within", payment.hold ? Math.round(payment.hold.pay_within_ms / MINUTE_MS) : 15),
    token: box("token", sale.token),
    challenge: select([["", "none"], ["proof_of_work", "proof of work"], ["captcha", "a captcha"]], challenge ? Object.keys(challenge)[0] : "", { name: "challenge" }),
    bits: whole("bits", challenge?.proof_of_work?.bits ?? 18),
    group: code("group", group?.id ?? ""),
    group_cap: whole("group_cap", group?.user_cap ?? 1),
    shards: whole("shards", sale.shard_count),
    payload_schema: schemaControl(sale.payload_schema),
  };
}

function schemaControl(schema) {
  const control = el("textarea", { name: "payload_schema", rows: 5, spellcheck: "false" });
  control.value = schema ? JSON.stringify(schema, null, 1) : "";
  return control;
}

function parsed(source) {
  try {
    return JSON.parse(source);
  } catch {
    return undefined;
  }
}

/** An id from a title: `Autumn drop, size M` is `autumn-drop-size-m`. */
const slug = (title, prefix = "") =>
  (prefix + title.toLowerCase().normalize("NFKD").replace(/\p{M}/gu, "").replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "")).slice(0, ID_LEN_MAX);

/** The sizes, each with its name and its units; null for a line that is neither. */
const sizesOf = (of) =>
  of.sizes.value.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const [, name, units] = /^(.{1,40}?)\s*[,;\t]\s*(\d{1,10})$/.exec(line) ?? [];
    return name && Number(units) <= TOTAL_MAX && slug(name) ? { name, units: Number(units) } : null;
  });

/** The error of the sizes; null if there are none, or all are right. */
function sizesFault(of) {
  const sizes = sizesOf(of);
  if (sizes.includes(null)) {
    return "Must be one size on each line, with its units: M, 250.";
  }
  if (sizes.length > SIZES_MAX || new Set(sizes.map(({ name }) => slug(name))).size < sizes.length) {
    return `Must be at most ${SIZES_MAX} different sizes.`;
  }
  return sizes.every(({ name }) => `${of.id.value}-${slug(name)}`.length <= ID_LEN_MAX) ? null : "The id and a size have more than 64 characters together.";
}

const isCurrency = (of) => /^[A-Z]{3}$/.test(of.currency.value);
const isId = (value) => /^[a-z0-9-]{1,64}$/.test(value);

/** Errors by control. */
function faults(of) {
  const range = (name, min, max) => (inRange(of[name].value, min, max) ? null : `Must be an integer from ${count(min)} to ${count(max)}.`);
  const [starts, ends, from, until] = ["starts_at_ms", "ends_at_ms", "reserve_from", "reserve_until"].map((name) => atMinute(of[name].value));
  const title = [...of.title.value];
  const isPriced = of.price.value !== "";
  const isReserved = of.reserved.checked;
  const hasDraw = isReserved && of.winners.value !== "";
  const period = () => {
    if (Number.isNaN(until)) {
      return "Must be a time.";
    }
    if (until <= from) {
      return "Must be after the start of reservations.";
    }
    return hasDraw && until > starts ? "A draw needs reservations that end before the sale starts." : null;
  };
  return {
    title: title.length >= 1 && title.length <= 200 ? null : "Must be 1 to 200 characters.",
    id: isId(of.id.value) ? null : "Must be 1 to 64 of a-z, 0-9 and -.",
    sku: [...of.sku.value].length <= SKU_LEN_MAX ? null : `Must be at most ${SKU_LEN_MAX} characters.`,
    price: !isPriced || isCurrency(of) && price(of).unit_amount <= UNIT_AMOUNT_MAX ? null : "Must be an amount in that currency, such as 49.90.",
    currency: !isPriced || isCurrency(of) ? null : "Must be three capital letters, such as EUR.",
    starts_at_ms: Number.isNaN(starts) ? "Must be a time." : null,
    ends_at_ms: Number.isNaN(ends) ? "Must be a time." : ends <= starts ? "Must be after the start." : null,
    warm: of.warm.value === "" ? null : range("warm", 0, 100_000),
    reserve_from: isReserved && Number.isNaN(from) ? "Must be a time." : null,
    reserve_until: isReserved ? period() : null,
    winners: hasDraw ? range("winners", 1, WINNERS_MAX) : null,
    total: sizesOf(of).length > 0 ? null : range("total", 0, TOTAL_MAX),
    sizes: sizesFault(of),
    user_cap: range("user_cap", 1, USER_CAP_MAX),
    pay_within: of.payment.value === "hold" ? range("pay_within", 1, PAY_WITHIN_MINUTES_MAX) : null,
    challenge: of.challenge.value !== "" && !of.token.checked ? "A challenge needs an order token; tick it below." : null,
    bits: of.challenge.value === "proof_of_work" ? range("bits", BITS_MIN, BITS_MAX) : null,
    group: of.group.value === "" || isId(of.group.value) ? null : "Must be 1 to 64 of a-z, 0-9 and -.",
    group_cap: of.group.value === "" ? null : range("group_cap", 1, GROUP_CAP_MAX),
    shards: range("shards", 1, SHARDS_MAX),
    payload_schema: of.payload_schema.value.trim() === "" || parsed(of.payload_schema.value) ? null : "Must be JSON.",
  };
}

function price(of) {
  const currency = of.currency.value;
  return { unit_amount: smallest(of.price.value, currency), currency };
}

function challenge(of) {
  const all = { proof_of_work: { bits: Number(of.bits.value) }, captcha: {} };
  const chosen = of.challenge.value;
  return chosen === "" ? null : { [chosen]: all[chosen] };
}

function body(of) {
  const hold = { hold: { pay_within_ms: Number(of.pay_within.value) * MINUTE_MS } };
  const isReserved = of.reserved.checked;
  return {
    id: of.id.value,
    title: of.title.value,
    total: Number(of.total.value),
    shards: Number(of.shards.value),
    user_cap: Number(of.user_cap.value),
    starts_at_ms: atMinute(of.starts_at_ms.value),
    ends_at_ms: atMinute(of.ends_at_ms.value),
    token: of.token.checked,
    challenge: challenge(of),
    sku: of.sku.value === "" ? null : of.sku.value,
    price: of.price.value === "" ? null : price(of),
    group: of.group.value === "" ? null : { id: of.group.value, user_cap: Number(of.group_cap.value) },
    reservation: isReserved ? { from_ms: atMinute(of.reserve_from.value), until_ms: atMinute(of.reserve_until.value) } : null,
    draw: isReserved && of.winners.value !== "" ? { winners: Number(of.winners.value) } : null,
    payment: of.payment.value === "hold" ? hold : of.payment.value,
    listed: of.listed.checked,
    warm_before_ms: of.warm.value === "" ? null : Number(of.warm.value) * MINUTE_MS,
    payload_schema: of.payload_schema.value.trim() === "" ? null : parsed(of.payload_schema.value),
  };
}

/** The sales to create: one, or one for each size, which share the limit per customer. */
function bodies(of) {
  const whole = body(of);
  const sizes = sizesOf(of).map(({ name, units }) => ({
    ...whole,
    id: `${whole.id}-${slug(name)}`,
    title: `${whole.title}, ${name}`,
    sku: whole.sku && `${whole.sku}-${name}`,
    total: units,
    group: whole.group ?? { id: whole.id, user_cap: whole.user_cap },
  }));
  return sizes.length > 0 ? sizes : [whole];
}

/** What the form says so far, in words. */
function summary(of) {
  const [starts, ends] = [atMinute(of.starts_at_ms.value), atMinute(of.ends_at_ms.value)];
  const at = (ms) => (Number.isNaN(ms) ? "–" : [time(ms), elsewhere(ms) && el("span", { class: "hint" }, ` ${elsewhere(ms)}`)]);
  const cost = of.price.value !== "" && isCurrency(of) ? price(of) : null;
  const isPriced = cost && !Number.isNaN(cost.unit_amount);
  const sizes = sizesOf(of).filter(Boolean);
  const total = inRange(of.total.value, 0, TOTAL_MAX) ? Number(of.total.value) : null;
  const units = sizes.length > 0 ? sizes.reduce((sum, size) => sum + size.units, 0) : total;
  return el(
    "dl",
    { class: "facts" },
    fact("Sale", of.title.value || "–"),
    fact("Starts", at(starts)),
    fact("Ends", at(ends)),
    ends > starts && fact("Lasts", length(ends - starts)),
    fact("Units", `${count(units)}, ${of.user_cap.value || "–"} per customer`),
    sizes.length > 0 && fact("Sales", `${count(sizes.length)}, one for each size`),
    isPriced && fact("Price per unit", money(cost.unit_amount, cost.currency)),
    isPriced && units !== null && fact("Revenue if all are sold", money(cost.unit_amount * units, cost.currency)),
    fact("In the shop’s list", of.listed.checked ? "yes" : "no"),
    fact("Buyers", of.reserved.checked ? (of.winners.value ? `${of.winners.value} drawn winners` : "customers with a reservation") : "everyone"),
  );
}

export async function newSale(desk, copied) {
  const of = controls(await template(copied), desk.who.tenant);
  const prefix = desk.who.tenant ? `${desk.who.tenant}--` : "";
  const [said, shown] = [el("div", { id: "said" }), el("div", {})];
  const submit = el("button", { type: "submit", class: "primary" }, "Create sale");
  const warm = el("button", { type: "button", id: "create-warm" }, "Create and warm");
  const within = field("Minutes to pay", of.pay_within);
  const bits = field("Zero bits", of.bits, "Each bit doubles the work; 18 bits take an old phone 3 s.");
  const reservations = el("div", { class: "grid" },
    field(`Reservations from (${clock.name()})`, of.reserve_from), field(`Reservations until (${clock.name()})`, of.reserve_until),
    field("Winners of a draw", of.winners, "Empty: everyone with a reservation can buy."));
  let isOwnId = false;
  const show = () => {
    within.hidden = of.payment.value !== "hold";
    bits.hidden = of.challenge.value !== "proof_of_work";
    reservations.hidden = !of.reserved.checked;
    refresh(shown, summary(of));
  };
  of.id.addEventListener("input", () => { isOwnId = true; });
  const make = (isWarm) => async () => {
    check(Object.entries(faults(of)).map(([name, fault]) => [of[name], fault]));
    const sales = bodies(of);
    for (const [at, one] of sales.entries()) {
      await api.make(one).catch((error) => {
        const all = { ...Object.fromEntries(Object.entries(of).map(([name, control]) => [`/${name}`, control])), "/reservation": of.reserve_until, "/draw": of.winners };
        markAll(all, error.errors ?? []);
        throw at === 0 ? error : new Error(`${at} of ${sales.length} sales are created. “${one.title}”: ${error.message}`);
      });
      if (isWarm) {
        await api.warm(one.id);
      }
    }
    location.hash = sales.length === 1 ? `#/sales/id/${sales[0].id}` : "#/sales";
    return sales.length === 1 ? `“${sales[0].title}” is created.` : `${sales.length} sales are created.`;
  };
  warm.addEventListener("click", working(warm, said, make(true)));
  const form = el(
    // Use the origin's error messages: they are clearer than the browser's, and show all errors at once.
    "form",
    { class: "card", id: "make", novalidate: true, onsubmit: working(submit, said, make(false)) },
    said,
    section("What", null,
      field("Title", of.title),
      field("Id", of.id, "Used in URLs. Can’t be changed later."),
      field("SKU (optional)", of.sku, "Stored with each order."),
      field("Price per unit (optional)", of.price, "Stored with each order."),
      field("Currency", of.currency),
      el("div", { class: "full" }, choice(of.listed, "Show in the shop’s list of sales"))),
    section("When", `Times are in ${clock.name()}.`,
      field(`Starts (${clock.name()})`, of.starts_at_ms),
      field(`Ends (${clock.name()})`, of.ends_at_ms),
      el("div", { class: "full" }, choice(of.reserved, "Only customers with a reservation can buy")),
      el("div", { class: "full" }, reservations)),
    section("How many", null,
      field("Units", of.total),
      field("Limit per customer", of.user_cap),
      field("Sizes (optional)", of.sizes, "One size on each line, with its units instead of those above. Each becomes a sale; they share the limit."),
      field("Stock reserved", of.payment),
      within),
    section("Protection", null,
      field("Challenge", of.challenge, "Buyers must solve it at the checkout."),
      bits,
      el("div", { class: "full" }, choice(of.token, "Require an order token to buy"))),
    el("details", { class: "part" }, el("summary", {}, "Advanced"), el("div", { class: "grid" },
      field("Group (optional)", of.group, "Sales of a group share a limit per customer."),
      field("Limit per customer in the group", of.group_cap),
      field("Shards", of.shards, "Number of Redis shards for the stock."),
      field("Warm before the start, in minutes", of.warm, "Empty: only manually."),
      el("div", { class: "full" }, field("JSON Schema of the order data (optional)", of.payload_schema, "Data that buyers must send with an order.")))),
    el("div", { class: "row" }, submit, warm),
  );
  form.addEventListener("input", (event) => {
    if (event.target === of.title && !isOwnId) {
      of.id.value = slug(of.title.value, prefix);
    }
    show();
  });
  show();
  return [
    copied ? `Copy of ${copied}` : "New sale",
    el("p", {}, el("a", { class: "back", href: "#/sales" }, "Sales")),
    el("div", { class: "columns aside" }, form, el("aside", { class: "card", "aria-label": "Summary" }, el("h2", {}, "Summary"), shown)),
  ];
}
