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

/** How long something is, in one unit. */
export function length(ms) {
  if (ms === null || ms === undefined) {
    return "–";
  }
  const units = [["h", 3_600_000], ["min", 60_000], ["s", 1_000]];
  const [name, unit] = units.find(([, size]) => ms >= 2 * size) ?? ["ms", 1];
  return `${number.format(Math.round(ms / unit))} ${name}`;
}
