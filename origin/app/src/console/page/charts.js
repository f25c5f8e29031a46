// Charts: lines, areas and bars over time, sparks, and lists of bars. Each chart has its numbers as a table.

import { el, refresh, replace, svg } from "./dom.js";
import { compact, count, share, timeOfDay } from "./format.js";

const HEIGHT = 220;
const FRAME = { top: 12, right: 8, bottom: 26, left: 44 };
const TICK_ROOM = 64;

/** Maximum rows of the table of a chart. */
const ROWS = 60;

/** The smallest of 1, 2, 5, 10, 20, … that divides `most` into at most four steps; below 4, also 0.1, 0.2, 0.5. */
export function step(most) {
  for (let size = most < 4 ? 0.1 : 1; ; size *= 10) {
    for (const factor of [1, 2, 5]) {
      if (most <= 4 * size * factor) {
        return size * factor;
      }
    }
  }
}

/** The least width of a chart. */
const WIDTH_MIN = 120;

/** Calls `draw` with the width of `box` when it changes. Returns a function that draws again. */
function drawn(box, draw) {
  let width = 0;
  const again = () => width > 0 && replace(box, draw(width));
  new ResizeObserver(([{ contentRect }]) => {
    const now = Math.floor(contentRect.width);
    if (now >= WIDTH_MIN && now !== width) {
      width = now;
      again();
    }
  }).observe(box);
  return again;
}

/** The picture of a chart with its value axis, and the function from values to places. */
function frame(width, most, label) {
  const unit = step(most);
  const top = unit * Math.max(1, Math.ceil(most / unit - 1e-9));
  const y = (value) => FRAME.top + (HEIGHT - FRAME.top - FRAME.bottom) * (1 - value / top);
  const picture = svg("svg", { class: "chart", width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  for (let n = 0; n * unit <= top + 1e-9; n += 1) {
    const value = n * unit;
    picture.append(
      svg("line", { class: "grid", x1: FRAME.left, x2: width - FRAME.right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: FRAME.left - 8, y: y(value) + 4, "text-anchor": "end" }, compact(value)),
    );
  }
  return { picture, y };
}

const legendOf = (names) =>
  el("ul", { class: "legend", "aria-hidden": "true" }, names.map(([name, colour]) => el("li", { class: colour }, name)));

/** The numbers of a chart as a table, filled when it is opened. */
function numbers(rows) {
  const body = el("div", {});
  const details = el("details", { class: "numbers" }, el("summary", {}, "As a table"), body);
  const show = () => details.open && refresh(body, rows());
  details.addEventListener("toggle", show);
  return { details, show };
}

function plainTable(heads, rows) {
  const row = ([first, ...others]) => el("tr", {}, el("th", { scope: "row" }, first), others.map((value) => el("td", {}, value)));
  return el("table", {}, el("thead", {}, el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, rows.map(row)));
}

/** The sums of the series up to each, by time: where stacked areas and bars begin and end. */
function stack(series) {
  const sums = new Map();
  return series.map((one) => one.points.map(([ms, value]) => {
    const from = sums.get(ms) ?? 0;
    sums.set(ms, from + (value ?? 0));
    return [ms, from, from + (value ?? 0)];
  }));
}

/** Paths between gaps: values of null interrupt a line. */
function runs(points) {
  const all = [[]];
  for (const point of points) {
    if (point[1] === null) {
      all.push([]);
    } else {
      all.at(-1).push(point);
    }
  }
  return all.filter((run) => run.length > 0);
}

const pathOf = (points) => points.map(([x, y], at) => `${at === 0 ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/**
 * A chart over time. `kind` is `line`, `area` (stacked) or `bars` (stacked). `show` takes series, each with `name`,
 * `colour` (`c0` to `c6`) and `points` of milliseconds and value; all with the same times. `text` formats values, and
 * `tick` times.
 */
export function line(title, kind = "line", text = count, tick = timeOfDay) {
  const box = el("div", { class: "timeline" });
  const [key, note] = [el("div", {}), el("p", { class: "hint" })];
  let series = [];
  const times = () => series[0]?.points.map(([ms]) => ms) ?? [];
  const table = numbers(() => {
    const all = times();
    const every = Math.ceil(all.length / ROWS);
    const rows = all.map((ms, at) => [tick(ms), ...series.map((one) => text(one.points[at][1]))]).filter((_, at) => at % every === 0);
    return plainTable(["Time", ...series.map(({ name }) => name)], rows.reverse());
  });
  const draw = (width) => (times().length < 2 || series.every(({ points }) => points.every(([, value]) => value === null)) ? el("p", { class: "hint waiting" }, "Collecting …") : picture(title, kind, series, width, text, tick));
  const again = drawn(box, draw);
  const element = el("figure", {}, el("figcaption", { class: "row apart" }, el("h3", {}, title), key), box, note, table.details);
  const show = (wanted, hint = "") => {
    series = wanted;
    refresh(key, series.length > 1 && legendOf(series.map(({ name, colour }) => [name, colour])));
    note.textContent = hint;
    again();
    table.show();
  };
  return { element, show };
}

function picture(title, kind, series, width, text, tick) {
  const times = series[0].points.map(([ms]) => ms);
  const stacked = stack(series);
  const isLine = kind === "line";
  const values = isLine ? series.flatMap(({ points }) => points.map(([, value]) => value ?? 0)) : stacked.flatMap((one) => one.map(([, , to]) => to));
  const last = series.map((one) => `${one.name} ${text(one.points.at(-1)[1])}`).join(", ");
  const { picture: shown, y } = frame(width, Math.max(...values) || 1, `${title}. Now: ${last}. The table below has the numbers.`);
  const [from, to] = [times[0], times.at(-1)];
  const slot = (width - FRAME.left - FRAME.right) / (kind === "bars" ? times.length : times.length - 1);
  const x = (ms) => kind === "bars"
    ? FRAME.left + times.indexOf(ms) * slot
    : FRAME.left + ((width - FRAME.left - FRAME.right) * (ms - from)) / Math.max(1, to - from);
  series.forEach((one, n) => {
    if (isLine) {
      for (const run of runs(one.points)) {
        shown.append(svg("path", { class: `stroke ${one.colour}`, d: pathOf(run.map(([ms, value]) => [x(ms), y(value)])) }));
      }
    } else if (kind === "area") {
      const upper = stacked[n].map(([ms, , value]) => [x(ms), y(value)]);
      const lower = stacked[n].map(([ms, value]) => [x(ms), y(value)]).reverse();
      shown.append(svg("path", { class: `fill ${one.colour}`, d: `${pathOf([...upper, ...lower])}Z` }));
    } else {
      for (const [ms, low, high] of stacked[n].filter(([, low, high]) => high > low)) {
        shown.append(svg("rect", { class: `fill ${one.colour}`, x: x(ms) + 1, y: y(high), width: Math.max(1, slot - 2), height: y(low) - y(high) }));
      }
    }
  });
  timeAxis(shown, kind === "bars" ? times.map((ms, at) => [ms, FRAME.left + (at + 0.5) * slot]) : times.map((ms) => [ms, x(ms)]), width, tick);
  return shown;
}

function timeAxis(picture, ticks, width, tick) {
  let free = FRAME.left - 8;
  for (const [ms, x] of ticks) {
    if (x - TICK_ROOM / 2 >= free && x + TICK_ROOM / 2 <= width) {
      picture.append(svg("text", { class: "tick", x, y: HEIGHT - 7, "text-anchor": "middle" }, tick(ms)));
      free = x + TICK_ROOM;
    }
  }
}

/** A small line without axes. `label` says what it shows. */
export function spark(values, label) {
  const known = values.filter((value) => value !== null);
  const most = Math.max(1e-9, ...known);
  const points = known.map((value, at) => [(100 * at) / Math.max(1, known.length - 1), 22 - (20 * value) / most]);
  return svg("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": label },
    known.length > 1 && svg("path", { class: "stroke c0", d: pathOf(points) }));
}

/** Upright bars with labels, such as one for each shard. Each has `name`, `value` and `of`, its maximum. */
export function columns(label, bars) {
  const one = ({ name, value, of }) => {
    const height = of > 0 ? (60 * (value ?? 0)) / of : 0;
    return el("li", { "data-key": name },
      svg("svg", { viewBox: "0 0 10 60", preserveAspectRatio: "none", "aria-hidden": "true" },
        svg("rect", { class: "track", width: 10, height: 60 }), svg("rect", { class: "fill c0", y: 60 - height, width: 10, height })),
      el("span", {}, name), el("small", {}, count(value)));
  };
  return el("ol", { class: "columns-of", "aria-label": label }, bars.map(one));
}

/** Clicks as bars, with visitors as narrower bars inside. `names` writes times for the axis and in full. */
export function timeline(points, by, { tick, span }, hasVisitors = true) {
  const box = el("div", { class: "timeline" });
  drawn(box, (width) => clicks(points, by, { tick, span }, width));
  const rows = () => {
    const heads = hasVisitors ? ["Time", "Clicks", "Visitors", "Addresses"] : ["Time", "Clicks"];
    const clicked = points.filter((point) => point.clicks > 0);
    return plainTable(heads, clicked.map((point) => [span(point.at_ms), ...[point.clicks, point.visitors, point.addresses].slice(0, heads.length - 1).map(count)]));
  };
  return el("figure", {}, legendOf(hasVisitors ? [["Clicks", "c1"], ["Visitors", "c0"]] : [["Clicks", "c1"]]), box, numbers(rows).details);
}

function clicks(points, by, { tick, span }, width) {
  const most = Math.max(1, ...points.map((point) => point.clicks));
  const total = points.reduce((sum, point) => sum + point.clicks, 0);
  const { picture: shown, y } = frame(width, Math.max(4, most), `${count(total)} clicks by ${by}, at most ${count(most)} in one; the table below has the numbers`);
  const slot = (width - FRAME.left - FRAME.right) / points.length;
  const every = Math.ceil(TICK_ROOM / slot);
  points.forEach((point, index) => {
    const x = FRAME.left + index * slot;
    const gap = Math.min(4, slot * 0.2);
    const bar = (colour, value, inset) => {
      const [height, wide] = [y(0) - y(value), Math.max(1, slot - gap - 2 * inset)];
      return svg("rect", { class: `fill ${colour}`, x: x + gap / 2 + inset, y: y(value), width: wide, height, rx: Math.min(3, wide / 2, height) });
    };
    shown.append(svg("g", { class: "slot" },
      svg("title", {}, `${span(point.at_ms)}: ${count(point.clicks)} clicks, ${count(point.visitors)} visitors`),
      svg("rect", { class: "hover", x, y: FRAME.top, width: slot, height: y(0) - FRAME.top }),
      bar("c1", point.clicks, 0),
      bar("c0", Math.min(point.visitors, point.clicks), Math.min(4, slot * 0.15))));
    if (index % every === 0 && x + TICK_ROOM / 2 < width) {
      shown.append(svg("text", { class: "tick", x: x + slot / 2, y: HEIGHT - 7, "text-anchor": "middle" }, tick(point.at_ms)));
    }
  });
  return shown;
}

/**
 * A list of the largest `shown` values, with bars. The others are in a closed section. `word` names a value. With
 * `choose`, a click on a value filters by it.
 */
export function breakdown(title, values, word, { shown = 6, choose = null } = {}) {
  const sorted = Object.entries(values).sort(([, a], [, b]) => b - a);
  const total = sorted.reduce((sum, [, clicks]) => sum + clicks, 0);
  const bars = (entries) => el("ol", { class: "bars" }, entries.map((entry) => barOf(entry, total, word, choose)));
  const rest = sorted.slice(shown);
  return el(
    "section",
    { class: "breakdown" },
    el("h3", {}, title),
    sorted.length > 0 ? bars(sorted.slice(0, shown)) : el("p", { class: "hint" }, "No data yet."),
    rest.length > 0 && el("details", {}, el("summary", {}, `${count(rest.length)} more`), bars(rest)),
  );
}

function barOf([value, clicks], total, word, choose) {
  const width = total > 0 ? (100 * clicks) / total : 0;
  const name = word(value);
  return el(
    "li",
    {},
    choose
      ? el("button", { type: "button", class: "link name", title: `Only ${name}`, "data-value": value, onclick: () => choose(value) }, name)
      : el("span", { class: "name", title: value }, name),
    el("span", { class: "value" }, count(clicks), el("small", {}, share(clicks, total))),
    svg("svg", { class: "bar-of", "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 100 4" },
      svg("rect", { class: "track", width: 100, height: 4 }), svg("rect", { class: "fill c1", width, height: 4 })),
  );
}

/** Values over time, at most `max` of them: the oldest leave. */
export class Samples {
  constructor(max = 3_600) {
    this.max = max;
    this.all = [];
  }

  add(at_ms, values) {
    this.all.push({ at_ms, ...values });
    if (this.all.length > this.max) {
      this.all.shift();
    }
  }

  /** The points of a member, at most some hundred: of a chart's width, more would not be seen. */
  points(member, since = 0) {
    const wanted = this.all.filter(({ at_ms }) => at_ms >= since);
    const every = Math.ceil(wanted.length / 360);
    return wanted.filter((_, at) => at % every === 0 || at === wanted.length - 1).map((one) => [one.at_ms, one[member] ?? null]);
  }

  /** What a member changed by in a second, over the last `ms`; null: unknown. */
  slope(member, ms = 60_000) {
    const last = this.all.at(-1);
    const first = last && this.all.find((one) => one.at_ms >= last.at_ms - ms && one[member] !== null && one[member] !== undefined);
    return first && last.at_ms - first.at_ms >= 3_000 ? (1_000 * (last[member] - first[member])) / (last.at_ms - first.at_ms) : null;
  }
}
