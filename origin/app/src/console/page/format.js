// Numbers and times as people read them. All times are in UTC, and say so.

const number = new Intl.NumberFormat("en");
const moment = new Intl.DateTimeFormat("en", { timeZone: "UTC", dateStyle: "medium", timeStyle: "short", hourCycle: "h23" });

export const count = (value) => (value === null || value === undefined ? "–" : number.format(value));
export const time = (ms) => (ms === null || ms === undefined ? "never" : `${moment.format(new Date(ms))} UTC`);

/** The same, to the second. */
export const instant = (ms) => `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** An instant as a control for times has it, and back: to the minute. */
export const minute = (ms) => new Date(ms).toISOString().slice(0, 16);
export const atMinute = (text) => Date.parse(`${text}Z`);

/** How many digits of a currency come after the point: two of EUR, none of JPY. */
const digits = (currency) => new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits;

/** A sum of money, given in the currency's smallest unit. */
export const money = (amount, currency) => new Intl.NumberFormat("en", { style: "currency", currency }).format(amount / 10 ** digits(currency));

/** What somebody has typed, in the currency's smallest unit; NaN if it is no sum of that currency. */
export function smallest(text, currency) {
  const after = digits(currency);
  const [, whole, rest = ""] = /^(\d{1,12})(?:\.(\d+))?$/.exec(text) ?? [];
  return whole === undefined || rest.length > after ? NaN : Number(whole + rest.padEnd(after, "0"));
}

/** How long something is, in one unit. */
export function length(ms) {
  if (ms === null || ms === undefined) {
    return "–";
  }
  const units = [["h", 3_600_000], ["min", 60_000], ["s", 1_000]];
  const [name, unit] = units.find(([, size]) => ms >= 2 * size) ?? ["ms", 1];
  return `${number.format(Math.round(ms / unit))} ${name}`;
}
