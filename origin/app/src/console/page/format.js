// Formats numbers, times and money. Times are in UTC, or in the zone of the browser if the person chose that. The text
// contains the zone.

const KEPT = "weir-local-time";

export const MINUTE_MS = 60_000;
export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

const number = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const perSecond = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });

/** The zone of the browser. */
export const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/** The zone of all times in the console. */
export const clock = {
  isLocal: false,
  /** The zone as a short word, such as `UTC` or `GMT+1`. */
  name(ms = Date.now()) {
    return clock.isLocal ? zoned({ timeZoneName: "short", hour: "numeric" }).formatToParts(new Date(ms)).find(({ type }) => type === "timeZoneName").value : "UTC";
  },
  set(isLocal) {
    clock.isLocal = isLocal;
    try {
      if (isLocal) {
        localStorage.setItem(KEPT, "1");
      } else {
        localStorage.removeItem(KEPT);
      }
    } catch {
      // The browser keeps nothing: the choice lasts as long as the page.
    }
  },
};

try {
  clock.isLocal = localStorage.getItem(KEPT) === "1";
} catch {
  // As above.
}

const zoned = (options) => new Intl.DateTimeFormat("en", { timeZone: clock.isLocal ? HERE : "UTC", hourCycle: "h23", ...options });

const isNone = (value) => value === null || value === undefined;

export const count = (value) => (isNone(value) ? "–" : number.format(value));
export const compact = (value) => short.format(value);
export const rate = (value) => (isNone(value) ? "–" : `${value >= 100 ? number.format(Math.round(value)) : perSecond.format(value)}/s`);

/** `1 vehicle`, `2 vehicles`. */
export const plural = (sum, one, many = `${one}s`) => `${count(sum)} ${sum === 1 ? one : many}`;

export const share = (part, whole) => (whole > 0 ? `${Math.round((100 * part) / whole)} %` : "0 %");

export const time = (ms) => (isNone(ms) ? "never" : `${zoned({ dateStyle: "medium", timeStyle: "short" }).format(new Date(ms))} ${clock.name(ms)}`);

/** An instant with seconds. */
export function instant(ms) {
  if (isNone(ms)) {
    return "never";
  }
  const of = Object.fromEntries(zoned({ year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" })
    .formatToParts(new Date(ms)).map(({ type, value }) => [type, value]));
  return `${of.year}-${of.month}-${of.day} ${of.hour}:${of.minute}:${of.second} ${clock.name(ms)}`;
}

/** The time of day, with seconds. */
export const timeOfDay = (ms) => zoned({ hour: "2-digit", minute: "2-digit", second: "2-digit" }).format(new Date(ms));

/** An instant in UTC and in the zone of the browser, for titles. */
export const exactly = (ms) => `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC, ${new Date(ms).toLocaleString("en", { timeZoneName: "short" })}`;

/** An instant as the value of a `datetime-local` control, and back: in minutes. */
export function minute(ms) {
  const away = clock.isLocal ? new Date(ms).getTimezoneOffset() * MINUTE_MS : 0;
  return new Date(ms - away).toISOString().slice(0, 16);
}
export const atMinute = (text) => Date.parse(clock.isLocal ? text : `${text}Z`);

/** The instant in the other zone, as a hint beside a control. */
export function elsewhere(ms) {
  const timeZone = clock.isLocal ? "UTC" : HERE;
  const format = new Intl.DateTimeFormat("en", { timeZone, dateStyle: "medium", timeStyle: "short", hourCycle: "h23" });
  return Number.isNaN(ms) || HERE === "UTC" ? "" : `${format.format(new Date(ms))} ${timeZone}`;
}

/** Decimal places of a currency: two for EUR, none for JPY. */
const digits = (currency) => new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits;

/** An amount of money. `amount` is in the currency's smallest unit. */
export const money = (amount, currency) => new Intl.NumberFormat("en", { style: "currency", currency }).format(amount / 10 ** digits(currency));

/** An amount as people type it. */
export const typed = (amount, currency) => (amount / 10 ** digits(currency)).toFixed(digits(currency));

/** Parses an amount into the currency's smallest unit, with a point or a comma; NaN if it is invalid. */
export function smallest(text, currency) {
  const after = digits(currency);
  const [, whole, rest = ""] = /^(\d{1,12})(?:[.,](\d+))?$/.exec(text.trim()) ?? [];
  return whole === undefined || rest.length > after ? NaN : Number(whole + rest.padEnd(after, "0"));
}

const UNITS = [["d", DAY_MS], ["h", HOUR_MS], ["min", MINUTE_MS], ["s", 1_000]];

/** A duration in one unit. */
export function length(ms) {
  if (isNone(ms)) {
    return "–";
  }
  const [name, unit] = UNITS.find(([, size]) => ms >= 2 * size) ?? (ms >= 1_000 ? ["s", 1_000] : ["ms", 1]);
  return `${number.format(Math.round(ms / unit))} ${name}`;
}

/** `in 12 min`, `3 h ago`. */
export function relative(ms, now = Date.now()) {
  const away = Math.abs(ms - now);
  return away < 1_000 ? "now" : ms > now ? `in ${length(away)}` : `${length(away)} ago`;
}
