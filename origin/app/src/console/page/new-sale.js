// The form that creates a sale. It shows all errors at once. The origin validates again.

import { api } from "./api.js";
import { complaint, el, field, mark, markAll, replace, select } from "./dom.js";
import { atMinute, minute, smallest } from "./format.js";

const HOUR_MS = 3_600_000;
const TOTAL_MAX = 1_000_000_000;
const SHARDS_MAX = 64;
const USER_CAP_MAX = 1_000;
const SKU_LEN_MAX = 64;
const UNIT_AMOUNT_MAX = 1_000_000_000_000;
const GROUP_CAP_MAX = 1_000_000;
const [BITS_MIN, BITS_MAX] = [8, 26];
const PAY_WITHIN_MINUTES_MAX = 30 * 24 * 60;

const whole = (name, value, max) => el("input", { name, type: "number", min: 0, max, value, inputmode: "numeric", step: 1 });
const moment = (name, ms) => el("input", { name, type: "datetime-local", value: minute(ms) });

function isWhole(text, min, max) {
  return /^\d+$/.test(text) && Number(text) >= min && Number(text) <= max;
}

/** The controls of the form, by the member that each sets. */
function controls(tenant) {
  const hour = Math.ceil(Date.now() / HOUR_MS) * HOUR_MS;
  return {
    title: el("input", { name: "title", autocomplete: "off" }),
    // All IDs of a tenant begin with its name.
    id: el("input", { name: "id", autocomplete: "off", spellcheck: "false", value: tenant ? `${tenant}--` : null }),
    total: whole("total", "", TOTAL_MAX),
    shards: whole("shards", 8, SHARDS_MAX),
    user_cap: whole("user_cap", 1, USER_CAP_MAX),
    starts_at_ms: moment("starts_at_ms", hour + HOUR_MS),
    ends_at_ms: moment("ends_at_ms", hour + 2 * HOUR_MS),
    payment: select([["at_order", "when ordered"], ["hold", "when ordered, for a limited time"], ["at_payment", "when paid"]], "at_order", { name: "payment" }),
    pay_within: whole("pay_within", 15, PAY_WITHIN_MINUTES_MAX),
    warm: whole("warm", 5, 100_000),
    token: el("input", { name: "token", type: "checkbox" }),
    challenge: select([["", "nothing"], ["proof_of_work", "proof of work"], ["captcha", "a captcha"]], "", { name: "challenge" }),
    sku: el("input", { name: "sku", autocomplete: "off", spellcheck: "false" }),
    price: el("input", { name: "price", autocomplete: "off", inputmode: "decimal" }),
    currency: el("input", { name: "currency", autocomplete: "off", spellcheck: "false", maxlength: 3, value: "EUR" }),
    group: el("input", { name: "group", autocomplete: "off", spellcheck: "false" }),
    group_cap: whole("group_cap", 1, GROUP_CAP_MAX),
    bits: whole("bits", 18, BITS_MAX),
  };
}

/** Errors by control. */
function faults(of) {
  const range = (name, min, max) =>
    isWhole(of[name].value, min, max) ? null : `Must be an integer from ${min.toLocaleString("en")} to ${max.toLocaleString("en")}.`;
  const [starts, ends] = [atMinute(of.starts_at_ms.value), atMinute(of.ends_at_ms.value)];
  const title = [...of.title.value];
  const late = Number.isNaN(ends) ? "Must be a time." : ends <= starts ? "Must be after the start." : null;
  return {
    title: title.length >= 1 && title.length <= 200 ? null : "Must be 1 to 200 characters.",
    id: /^[a-z0-9-]{1,64}$/.test(of.id.value) ? null : "Must be 1 to 64 of a-z, 0-9 and -.",
    total: range("total", 0, TOTAL_MAX),
    shards: range("shards", 1, SHARDS_MAX),
    user_cap: range("user_cap", 1, USER_CAP_MAX),
    starts_at_ms: Number.isNaN(starts) ? "Must be a time." : null,
    ends_at_ms: late,
    pay_within: of.payment.value === "hold" ? range("pay_within", 1, PAY_WITHIN_MINUTES_MAX) : null,
    warm: of.warm.value === "" ? null : range("warm", 0, 100_000),
    challenge: of.challenge.value !== "" && !of.token.checked ? "Select “Require an order token” as well." : null,
    sku: [...of.sku.value].length <= SKU_LEN_MAX ? null : `Must be at most ${SKU_LEN_MAX} characters.`,
    price: of.price.value === "" || isCurrency(of) && price(of).unit_amount <= UNIT_AMOUNT_MAX ? null : "Must be an amount in that currency, such as 49.90.",
    currency: of.price.value === "" || isCurrency(of) ? null : "Must be three capital letters, such as EUR.",
    group: of.group.value === "" || /^[a-z0-9-]{1,64}$/.test(of.group.value) ? null : "Must be 1 to 64 of a-z, 0-9 and -.",
    group_cap: of.group.value === "" ? null : range("group_cap", 1, GROUP_CAP_MAX),
    bits: of.challenge.value === "proof_of_work" ? range("bits", BITS_MIN, BITS_MAX) : null,
  };
}

const isCurrency = (of) => /^[A-Z]{3}$/.test(of.currency.value);

function price(of) {
  const currency = of.currency.value;
  return { unit_amount: smallest(of.price.value, currency), currency };
}

function challenge(of) {
  const all = { proof_of_work: { bits: Number(of.bits.value) }, captcha: {} };
  const wanted = of.challenge.value;
  return wanted === "" ? null : { [wanted]: all[wanted] };
}

function body(of) {
  const hold = { hold: { pay_within_ms: Number(of.pay_within.value) * 60_000 } };
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
    payment: of.payment.value === "hold" ? hold : of.payment.value,
    warm_before_ms: of.warm.value === "" ? null : Number(of.warm.value) * 60_000,
  };
}

export function newSale(desk) {
  const of = controls(desk.who.tenant);
  const said = el("div", { id: "said" });
  const submit = el("button", { type: "submit", class: "primary" }, "Create sale");
  const within = field("Minutes to pay", of.pay_within);
  const bits = field("Zero bits", of.bits, "Each bit doubles the work; 18 bits take an old phone 3 s.");
  const show = () => {
    within.hidden = of.payment.value !== "hold";
    bits.hidden = of.challenge.value !== "proof_of_work";
  };
  of.payment.addEventListener("change", show);
  of.challenge.addEventListener("change", show);
  show();
  const make = async (event) => {
    event.preventDefault();
    const wrong = Object.entries(faults(of)).filter(([name, fault]) => mark(of[name], fault) || fault);
    if (wrong.length > 0) {
      const text = wrong.length === 1 ? "One field is invalid." : `${wrong.length} fields are invalid.`;
      replace(said, complaint(new Error(text)));
      of[wrong[0][0]].focus();
      return;
    }
    submit.disabled = true;
    try {
      const made = await api.make(body(of));
      location.hash = `#/sales/id/${made.id}`;
    } catch (error) {
      replace(said, complaint(error));
      markAll(Object.fromEntries(Object.entries(of).map(([name, control]) => [`/${name}`, control])), error.errors ?? []);
      submit.disabled = false;
    }
  };
  return [
    "New sale",
    el("p", {}, el("a", { class: "back", href: "#/sales" }, "Sales")),
    el(
      // Use the origin's error messages: they are clearer than the browser's, and show all errors at once.
      "form",
      { class: "card", id: "make", novalidate: true, onsubmit: make },
      said,
      el(
        "div",
        { class: "grid" },
        field("Title", of.title),
        field("Id", of.id, "Used in URLs; cannot change."),
        field("SKU", of.sku, "Stored with each order. Empty: none."),
        field("Price per unit", of.price, "Stored with each order. Empty: none."),
        field("Currency", of.currency),
        field("Units", of.total),
        field("Limit per user", of.user_cap),
        field("Starts (UTC)", of.starts_at_ms),
        field("Ends (UTC)", of.ends_at_ms),
        field("Shards", of.shards, "Number of Redis shards for the stock."),
        field("Warm before the start, in minutes", of.warm, "Empty: only manually."),
        field("Units are deducted", of.payment),
        within,
        field("Challenge", of.challenge, "Challenge that buyers must solve at the checkout."),
        bits,
        field("Group", of.group, "Sales of a group share a limit per user. Empty: none."),
        field("Limit per user in the group", of.group_cap),
      ),
      el("label", { class: "choice" }, of.token, "Require an order token"),
      el("div", { class: "row" }, submit),
    ),
  ];
}
