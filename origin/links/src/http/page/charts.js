// Charts: bars over time, and lists of bars.

import { el, replace, svg } from "./dom.js";
import { compact, count, share, span, tick, word } from "./format.js";

const HEIGHT = 220;
const FRAME = { top: 12, right: 4, bottom: 26, left: 44 };
const TICK_ROOM = 64;

/** The smallest of 1, 2, 5, 10, 20, … that divides `most` into at most four steps. */
export function step(most) {
  let size = 1;
  for (;;) {
    for (const factor of [1, 2, 5]) {
      if (most <= 4 * size * factor) {
        return size * factor;
      }
    }
    size *= 10;
  }
}

/** Clicks as bars, with visitors as narrower bars inside. Redrawn when the width changes. */
export function timeline(points, by, zone = "UTC", hasVisitors = true) {
  const box = el("div", { class: "timeline" });
  let drawnWidth = 0;
  new ResizeObserver(([{ contentRect }]) => {
    const width = Math.floor(contentRect.width);
    if (width > 0 && width !== drawnWidth) {
      drawnWidth = width;
      replace(box, draw(points, by, zone, width));
    }
  }).observe(box);
  const legend = el(
    "ul",
    { class: "legend", "aria-hidden": "true" },
    el("li", { class: "clicks" }, "Clicks"),
    hasVisitors ? el("li", { class: "visitors" }, "Visitors") : null,
  );
  return el("figure", {}, legend, box, asTable(points, by, zone, hasVisitors));
}

function draw(points, by, zone, width) {
  const most = Math.max(1, ...points.map((point) => point.clicks));
  const unit = step(most);
  const top = unit * Math.ceil(most / unit);
  const inner = { width: width - FRAME.left - FRAME.right, height: HEIGHT - FRAME.top - FRAME.bottom };
  const y = (value) => FRAME.top + inner.height * (1 - value / top);
  const total = points.reduce((sum, point) => sum + point.clicks, 0);
  const picture = svg("svg", {
    class: "chart",
    width,
    height: HEIGHT,
    viewBox: `0 0 ${width} ${HEIGHT}`,
    role: "img",
    "aria-label": `${count(total)} clicks by ${by}, at most ${count(most)} in one; the table below has the numbers`,
  });
  for (let value = 0; value <= top; value += unit) {
    picture.append(
      svg("line", { class: "grid", x1: FRAME.left, x2: width - FRAME.right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: FRAME.left - 8, y: y(value) + 4, "text-anchor": "end" }, compact(value)),
    );
  }
  const slot = inner.width / points.length;
  const every = Math.ceil(TICK_ROOM / slot);
  points.forEach((point, index) => {
    const x = FRAME.left + index * slot;
    picture.append(bars(point, by, zone, x, slot, y));
    if (index % every === 0 && x + TICK_ROOM / 2 < width) {
      const at = { x: x + slot / 2, y: HEIGHT - 7, "text-anchor": "middle" };
      picture.append(svg("text", { class: "tick", ...at }, tick(point.at_ms, by, zone)));
    }
  });
  return picture;
}

function bars(point, by, zone, x, slot, y) {
  const gap = Math.min(4, slot * 0.2);
  const bar = (name, value, inset) => {
    const height = y(0) - y(value);
    const width = Math.max(1, slot - gap - 2 * inset);
    const round = Math.min(3, width / 2, height);
    return svg("rect", { class: name, x: x + gap / 2 + inset, y: y(value), width, height, rx: round });
  };
  const says = `${span(point.at_ms, by, zone)}: ${count(point.clicks)} clicks, ${count(point.visitors)} visitors`;
  return svg(
    "g",
    { class: "slot" },
    svg("title", {}, says),
    svg("rect", { class: "hover", x, y: FRAME.top, width: slot, height: y(0) - FRAME.top }),
    bar("clicks", point.clicks, 0),
    bar("visitors", Math.min(point.visitors, point.clicks), Math.min(4, slot * 0.15)),
  );
}

function asTable(points, by, zone, hasVisitors) {
  const head = hasVisitors ? ["Time", "Clicks", "Visitors", "Addresses"] : ["Time", "Clicks"];
  const rows = points.filter((point) => point.clicks > 0);
  const row = (point) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, span(point.at_ms, by, zone)),
      [point.clicks, point.visitors, point.addresses].slice(0, head.length - 1).map((value) => el("td", {}, count(value))),
    );
  return el(
    "details",
    { class: "numbers" },
    el("summary", {}, "As a table"),
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, rows.map(row)),
    ),
  );
}

/** A list of the largest `shown` values, with bars. The others are in a closed section. */
export function breakdown(title, part, values, shown = 6) {
  const sorted = Object.entries(values).sort(([, a], [, b]) => b - a);
  const total = sorted.reduce((sum, [, clicks]) => sum + clicks, 0);
  const list = el("ol", { class: "bars" }, sorted.slice(0, shown).map((entry) => barOf(part, entry, total)));
  const rest = sorted.slice(shown);
  const more =
    rest.length > 0 &&
    el(
      "details",
      {},
      el("summary", {}, `${count(rest.length)} more`),
      el("ol", { class: "bars" }, rest.map((entry) => barOf(part, entry, total))),
    );
  return el(
    "section",
    { class: "breakdown" },
    el("h3", {}, title),
    sorted.length > 0 ? list : el("p", { class: "hint" }, "Nothing yet"),
    more || null,
  );
}

function barOf(part, [value, clicks], total) {
  const width = total > 0 ? (100 * clicks) / total : 0;
  return el(
    "li",
    {},
    el("span", { class: "name", title: value }, word(part, value)),
    el("span", { class: "value" }, count(clicks), el("small", {}, share(clicks, total))),
    svg(
      "svg",
      { class: "bar-of", "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 100 4" },
      svg("rect", { class: "track", width: 100, height: 4 }),
      svg("rect", { class: "clicks", width, height: 4 }),
    ),
  );
}
