// The number of events by type over time, and how many customers do one thing and then another.

import { line } from "../../ui/charts.js";
import { button, complaint, el, empty, field, meter, replace, select, table } from "../../ui/dom.js";
import { count, DAY_MS, HOUR_MS, plural, share } from "../../ui/format.js";
import { api } from "./api.js";

/** Steps and length of the choices, in days. */
const TIMES = [["1", "The last 24 hours"], ["7", "The last 7 days"], ["31", "The last 31 days"], ["366", "The last 12 months"]];
const HOURS_UP_TO = 7;

/** Types with a colour of their own; the others are summed. */
const COLOURS = ["c0", "c2", "c3", "c4", "c5"];
const REST = "c6";

/** Days and hours of the steps, which are in UTC. */
const dayOf = (ms) => new Date(ms).toISOString().slice(5, 10);
const hourOf = (ms) => new Date(ms).toISOString().slice(5, 16).replace("T", " ");

/** One value for each step; 0 where the origin has none. */
function pointsOf(found, types) {
  const sums = new Map();
  for (const { at_ms: ms, events } of types.flatMap(({ points }) => points)) {
    sums.set(ms, (sums.get(ms) ?? 0) + events);
  }
  const steps = (found.to_ms - found.from_ms) / found.step_ms;
  return Array.from({ length: steps }, (_, at) => found.from_ms + at * found.step_ms).map((ms) => [ms, sums.get(ms) ?? 0]);
}

function seriesOf(found) {
  const shown = found.types.slice(0, COLOURS.length);
  const rest = found.types.slice(COLOURS.length);
  const series = shown.map((type, at) => ({ name: type.type, colour: COLOURS[at], points: pointsOf(found, [type]) }));
  return rest.length > 0 ? [...series, { name: "Others", colour: REST, points: pointsOf(found, rest) }] : series;
}

/** The card of trends. It reads when its tab is opened, or another time is chosen. */
export function trends() {
  const [shown, said] = [el("div", { id: "trends" }), el("div", {})];
  const days = select(TIMES, "7", { name: "trend-days" });
  const look = async () => {
    const length = Number(days.value);
    const by = length <= HOURS_UP_TO ? "hour" : "day";
    try {
      // The current step is the last one.
      const found = await api.trends({ by, from_ms: Date.now() - length * DAY_MS + (by === "hour" ? HOUR_MS : DAY_MS) });
      const total = found.types.reduce((sum, one) => sum + one.events, 0);
      if (total === 0) {
        replace(shown, empty("no-trends", "No events were stored in this time."));
      } else {
        const chart = line(by === "hour" ? "Events per hour" : "Events per day", "bars", count, by === "hour" ? hourOf : dayOf);
        chart.show(seriesOf(found), `Stored events of all origins by their own time, in UTC${found.complete ? "" : "; the 50 most frequent types"}.`);
        const rows = found.types.map((one) => [el("code", {}, one.type), count(one.events), el("span", {}, share(one.events, total), meter(one.events, total, `${share(one.events, total)} of all events`))]);
        replace(shown, chart.element, table("trend-types", ["Type", "#Events", "Share"], rows));
      }
      replace(said);
    } catch (error) {
      replace(said, complaint(error));
    }
  };
  days.addEventListener("change", look);
  const card = el("section", { class: "card", "aria-labelledby": "trends-title" }, el("h2", { id: "trends-title" }, "Events by type"), field("Time", days), said, shown);
  card.addEventListener("opened", look);
  return card;
}

const WITHIN = [["30m", "30 minutes"], ["2h", "2 hours"], ["1d", "1 day"], ["7d", "7 days"], ["31d", "31 days"]];
const SINCE = [["7", "the last 7 days"], ["31", "the last 31 days"], ["92", "the last 92 days"]];

/** A page has the customers of about 10,000 events. */
const PAGES_MAX = 100;

/** The counts of all pages. */
async function counted(query) {
  let [sums, page, isComplete] = [null, null, true];
  for (let pages = 0; pages < PAGES_MAX; pages += 1) {
    const found = await api.funnel({ ...query, page });
    sums = found.steps.map((step, at) => ({ type: step.type, customers: step.customers + (sums?.[at].customers ?? 0) }));
    isComplete &&= found.complete;
    page = found.next_page;
    if (!page) {
      return { sums, isComplete };
    }
  }
  return { sums, isComplete: false };
}

/** The card of funnels. It reads the types when its tab is opened. */
export function funnel() {
  const [shown, said] = [el("div", { id: "funnel" }), el("div", {})];
  const steps = [1, 2, 3].map((at) => select([], "", { name: `step-${at}` }));
  const [within, since] = [select(WITHIN, "1d", { name: "within" }), select(SINCE, "7", { name: "since" })];
  const show = button("Count customers", { class: "primary", id: "count-funnel" }, said, async () => {
    const types = steps.map((step) => step.value).filter(Boolean);
    if (types.length < 2 || new Set(types).size < types.length) {
      throw new Error("Choose two or three different types.");
    }
    const to = Date.now();
    const { sums, isComplete } = await counted({ types: types.join(","), within: within.value, from_ms: to - Number(since.value) * DAY_MS, to_ms: to });
    const before = (at) => sums[at - 1]?.customers ?? 0;
    const rows = sums.map((step, at) => [el("code", {}, step.type), count(step.customers),
      at === 0 ? "–" : el("span", {}, share(step.customers, before(at)), meter(step.customers, before(at), `${share(step.customers, before(at))} of the step before`))]);
    replace(shown,
      table("funnel-steps", ["Step", "#Customers", "Of the step before"], rows),
      el("p", { class: "hint" }, `${share(sums.at(-1).customers, sums[0].customers)} of ${plural(sums[0].customers, "customer")} complete all steps. Visitors who have not signed in do not count.`),
      !isComplete && el("p", { class: "notice warn" }, "There were too many events to read all of them: the counts are too low."));
    return null;
  });
  const card = el("section", { class: "card", "aria-labelledby": "funnel-title" },
    el("h2", { id: "funnel-title" }, "Funnel"),
    el("div", { class: "grid" }, field("First step", steps[0]), field("Second step", steps[1]), field("Third step", steps[2]),
      field("All steps within", within), field("First step in", since)),
    el("div", { class: "row" }, show), said, shown);
  card.addEventListener("opened", async () => {
    try {
      const names = (await api.types()).map(({ name }) => name);
      steps.forEach((step, at) => {
        const before = step.value;
        replace(step, at === 2 && el("option", { value: "" }, "None"), names.map((name) => el("option", { value: name }, name)));
        step.value = before || (at === 2 ? "" : names[Math.min(at, names.length - 1)] ?? "");
      });
      show.disabled = names.length < 2;
    } catch (error) {
      replace(said, complaint(error));
    }
  });
  return card;
}
