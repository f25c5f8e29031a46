// Numbers, times and words as people read them. All times are in UTC, as the origin counts, and say so.

const number = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const utc = (options) => new Intl.DateTimeFormat("en", { timeZone: "UTC", ...options });
const moment = utc({ dateStyle: "medium", timeStyle: "short", hourCycle: "h23" });
const day = utc({ day: "numeric", month: "short" });
const fullDay = utc({ day: "numeric", month: "long", year: "numeric" });
const hour = utc({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

export const count = (value) => number.format(value);
export const compact = (value) => short.format(value);
export const time = (ms) => `${moment.format(new Date(ms))} UTC`;

/** An instant as a control for times has it, and back: to the minute. */
export const minute = (ms) => new Date(ms).toISOString().slice(0, 16);
export const atMinute = (text) => Date.parse(`${text}Z`);

/** A tick of the time axis. The origin counts by hours and days of UTC. */
export function tick(ms, by) {
  return by === "hour" ? hour.format(new Date(ms)) : day.format(new Date(ms));
}

/** The same, so that it stands by itself. */
export function span(ms, by) {
  const date = new Date(ms);
  return by === "hour" ? `${fullDay.format(date)}, ${hour.format(date)} UTC` : fullDay.format(date);
}

export function share(part, whole) {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "0 %";
}

/** Days, if it is so many; else hours. */
export function life(ms) {
  const days = ms / DAY_MS;
  if (Number.isInteger(days)) {
    return days === 1 ? "1 day" : `${count(days)} days`;
  }
  return `${count(Math.round((10 * ms) / HOUR_MS) / 10)} hours`;
}

const WORDS = {
  desktop: "Desktop", mobile: "Phone", tablet: "Tablet", bot: "Bot",
  windows: "Windows", macos: "macOS", linux: "Linux", ios: "iOS", android: "Android",
  chrome: "Chrome", safari: "Safari", firefox: "Firefox", edge: "Edge", wechat: "WeChat",
  direct: "Direct", unknown: "Unknown", other: "Other",
};

const names = (type) => {
  try {
    return new Intl.DisplayNames("en", { type });
  } catch {
    return { of: (code) => code };
  }
};
const countries = names("region");
const languages = names("language");

function named(list, code) {
  try {
    return list.of(code) ?? code;
  } catch {
    return code; // Not a code that there could be.
  }
}

/** A value of the statistics' `part` in words. */
export function word(part, value) {
  if (part === "referrers" && value === "qr") {
    return "QR code";
  }
  if (["direct", "unknown", "other"].includes(value)) {
    return WORDS[value];
  }
  if (part === "regions") {
    const [country, subdivision] = value.split("-");
    const name = named(countries, country);
    return subdivision ? `${name}, ${subdivision}` : name;
  }
  if (part === "languages") {
    return named(languages, value);
  }
  return ["devices", "systems", "browsers"].includes(part) ? (WORDS[value] ?? value) : value;
}
