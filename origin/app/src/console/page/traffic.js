// The traffic of this origin: over the last 24 hours, which it keeps in memory, and every five seconds since the console
// was opened. All origins and the time before are in the metrics system.

import { Samples } from "./charts.js";
import { length } from "./format.js";
import { json, send } from "./session.js";

const EVERY_MS = 5_000;
const DAY_MS = 24 * 60 * 60_000;
const DAY_SAMPLES = DAY_MS / EVERY_MS;

/** The history changes every five minutes. */
const HISTORY_MS = 60_000;

/** Rates per second by name: the metric and, optionally, what its labels must contain. */
const RATES = {
  orders: ["weir_origin_orders_total", 'outcome="ordered"'],
  refused: ["weir_origin_orders_total", null, /outcome="(ordered|ordered_before|released)"/],
  clicks: ["weir_origin_clicks_total", null],
  events: ["weir_origin_events_total", 'verdict="accepted"'],
  rejected: ["weir_origin_events_total", 'verdict="rejected"'],
};

/** The metric of the age of the oldest unhandled event. */
const OLDEST = ["weir_origin_event_group_oldest_seconds"];

/** Lines of the text format as name, labels and value. */
function read(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const [, name, labels = "", value] = /^([a-z_]+)(?:\{(.*)\})? (\S+)/.exec(line) ?? [];
    if (name) {
      found.push([name, labels, Number(value)]);
    }
  }
  return found;
}

const sum = (lines, [name, part, but]) =>
  lines.filter(([one, labels]) => one === name && (!part || labels.includes(part)) && !but?.test(labels)).reduce((all, [, , value]) => all + value, 0);

export const traffic = {
  samples: new Samples(DAY_SAMPLES),
  opened_ms: 0,
  timer: null,
  before: null,
  past: { at: 0, samples: [] },

  /** Reads now, and then at every interval. */
  watch() {
    if (!this.timer) {
      this.opened_ms = Date.now();
      this.timer = setInterval(() => this.look(), EVERY_MS);
      this.look();
    }
  },

  /** Stops, and forgets everything. */
  stop() {
    clearInterval(this.timer);
    this.timer = this.before = null;
    this.samples = new Samples(DAY_SAMPLES);
    this.past = { at: 0, samples: [] };
  },

  /** Reads the history again if it may have changed. */
  async readPast() {
    if (Date.now() - this.past.at > HISTORY_MS) {
      const { samples } = await json("GET", "traffic");
      this.past = { at: Date.now(), samples };
    }
  },

  /** The rates per second of the last 24 hours as points; null after a restart. */
  history(member) {
    const { samples } = this.past;
    return samples.slice(1).map((one, at) => {
      const before = samples[at];
      const seconds = (one.at_ms - before.at_ms) / 1_000;
      return [one.at_ms, one[member] < before[member] || seconds <= 0 ? null : (one[member] - before[member]) / seconds];
    });
  },

  /** The series of a chart, and the note below it: `isLive`, since the console was opened. */
  chart(series, isLive) {
    const points = (member) => (isLive ? this.samples.points(member) : this.history(member));
    const first = this.past.samples[0]?.at_ms ?? Date.now();
    const since = isLive ? `since you opened the console ${length(Date.now() - this.opened_ms)} ago` : `the last ${length(Math.min(DAY_MS, Date.now() - first))}`;
    return [series.map(([name, colour, member]) => ({ name, colour, points: points(member) })), `This origin, ${since}.`];
  },

  async look() {
    const text = await send("metrics", { headers: { accept: "text/plain" } }).then((answer) => answer.text()).catch(() => null);
    const now = Date.now();
    if (text === null || !this.timer) {
      this.before = null;
      return;
    }
    const lines = read(text);
    const sums = Object.fromEntries(Object.entries(RATES).map(([name, of]) => [name, sum(lines, of)]));
    if (this.before) {
      const seconds = (now - this.before.now) / 1_000;
      // After a restart, counters begin at 0.
      const rates = Object.entries(sums).map(([name, value]) => [name, value < this.before.sums[name] ? null : (value - this.before.sums[name]) / seconds]);
      this.samples.add(now, { ...Object.fromEntries(rates), oldest_s: sum(lines, OLDEST) });
    }
    this.before = { now, sums };
  },
};
