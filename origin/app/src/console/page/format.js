// Formats numbers and times. All times are in UTC, and the text contains the zone.

const number = new Intl.NumberFormat("en");
const moment = new Intl.DateTimeFormat("en", { timeZone: "UTC", dateStyle: "medium", timeStyle: "short", hourCycle: "h23" });

export const count = (value) => (value === null || value === undefined ? "–" : number.format(value));
export const time = (ms) => (ms === null || ms === undefined ? "never" : `${moment.format(new Date(ms))} UTC`);

/** An instant with seconds. */
export const instant = (ms) => `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** An instant as the value of a `datetime-local` control, and back: in minutes. */
export const minute = (ms) => new Date(ms).toISOString().slice(0, 16);
export const atMinute = (text) => Date.parse(`${text}Z`);

/** Decimal places of a currency: two for EUR, none for JPY. */
const digits = (currency) => new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits;

/** An amount of money. `amount` is in the currency's smallest unit. */
export const money = (amount, currency) => new Intl.NumberFormat("en", { style: "currency", currency }).format(amount / 10 ** digits(currency));

/** Parses an amount into the currency's smallest unit; NaN if it is invalid. */
export function smallest(text, currency) {
  const after = digits(currency);
  const [, whole, rest = ""] = /^(\d{1,12})(?:\.(\d+))?$/.exec(text) ?? [];
  return whole === undefined || rest.length > after ? NaN : Number(whole + rest.padEnd(after, "0"));
}

/** A duration in one unit. */
export function length(ms) {
  if (ms === null || ms === undefined) {
    return "–";
  }
  const units = [["h", 3_600_000], ["min", 60_000], ["s", 1_000]];
  const [name, unit] = units.find(([, size]) => ms >= 2 * size) ?? ["ms", 1];
  return `${number.format(Math.round(ms / unit))} ${name}`;
}
