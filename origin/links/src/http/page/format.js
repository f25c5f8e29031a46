// Formats times of statistics, in the selected zone, and names their values.

import { DAY_MS, HOUR_MS, count } from "../../ui/format.js";

const inZone = new Map();

/** Formatters for days and hours of a time zone. */
function writers(timeZone) {
  if (!inZone.has(timeZone)) {
    const format = (options) => new Intl.DateTimeFormat("en", { timeZone, ...options });
    inZone.set(timeZone, {
      day: format({ day: "numeric", month: "short" }),
      fullDay: format({ day: "numeric", month: "long", year: "numeric" }),
      hour: format({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" }),
      parts: format({ year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric", hourCycle: "h23" }),
    });
  }
  return inZone.get(timeZone);
}

/** Whether the time zone exists. */
export function isZone(name) {
  try {
    return Boolean(writers(name));
  } catch {
    return false;
  }
}

/** The offset of a zone from UTC at an instant, in milliseconds. */
function ahead(zone, ms) {
  const of = Object.fromEntries(writers(zone).parts.formatToParts(new Date(ms)).map(({ type, value }) => [type, Number(value)]));
  return Date.UTC(of.year, of.month - 1, of.day, of.hour, of.minute, of.second) - Math.floor(ms / 1000) * 1000;
}

/** The start of the day in a zone that contains an instant. */
export function midnight(zone, ms) {
  const start = Math.floor((ms + ahead(zone, ms)) / DAY_MS) * DAY_MS;
  return start - ahead(zone, start - ahead(zone, ms));
}

/** Writes the times of a chart by hour or day: short for the axis, and in full. */
export function names(by, zone) {
  const { hour, day, fullDay } = writers(zone);
  const isHour = by === "hour";
  return {
    tick: (ms) => (isHour ? hour : day).format(new Date(ms)),
    span: (ms) => (isHour ? `${fullDay.format(new Date(ms))}, ${hour.format(new Date(ms))} ${zone}` : fullDay.format(new Date(ms))),
  };
}

/** A duration in days if it is a whole number of days, otherwise in hours. */
export function life(ms) {
  const days = ms / DAY_MS;
  if (Number.isInteger(days)) {
    return days === 1 ? "1 day" : `${count(days)} days`;
  }
  return `${count(Math.round((10 * ms) / HOUR_MS) / 10)} hours`;
}

const WORDS = {
  desktop: "Desktop", mobile: "Phone", tablet: "Tablet", bot: "Bot", script: "Script",
  windows: "Windows", macos: "macOS", linux: "Linux", ios: "iOS", android: "Android",
  chrome: "Chrome", safari: "Safari", firefox: "Firefox", edge: "Edge", wechat: "WeChat",
  direct: "Direct", unknown: "Unknown", other: "Other",
};

const displayNames = (type) => {
  try {
    return new Intl.DisplayNames("en", { type });
  } catch {
    return { of: (code) => code };
  }
};
const countries = displayNames("region");
const languages = displayNames("language");

function named(list, code) {
  try {
    return list.of(code) ?? code;
  } catch {
    return code; // Not a valid code.
  }
}

/** The label of a value in the statistics' `part`. */
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
