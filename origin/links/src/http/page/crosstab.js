// Clicks by country, device and referrer in combination.

import { timeline } from "../../ui/charts.js";
import { complaint, el, field, replace } from "../../ui/dom.js";
import { count } from "../../ui/format.js";
import { api } from "./api.js";
import { names, word } from "./format.js";

const FILTERS = [["country", "countries", "Country"], ["device", "devices", "Device"], ["referrer", "referrers", "Referrer"]];

/** The label of a value. Countries are regions without a subdivision. */
const shown = (list, value) => word(list === "countries" ? "regions" : list, value);

/** The filters, for the range that `range` returns, and a function that sets one. */
export function crosstabFilter(link, range) {
  const chosen = Object.fromEntries(FILTERS.map(([name]) => [name, ""]));
  const controls = Object.fromEntries(FILTERS.map(([name]) => [name, el("select", { name: `filter-${name}` })]));
  const found = el("div", { id: "crosstab", "aria-live": "polite" });
  const options = (name, list, values) => {
    const sorted = Object.entries(values).sort(([, a], [, b]) => b - a);
    const missing = chosen[name] !== "" && !(chosen[name] in values) ? [[chosen[name], 0]] : [];
    const all = [...sorted, ...missing].map(([value, clicks]) =>
      el("option", { value, selected: value === chosen[name] }, `${shown(list, value)} (${count(clicks)})`),
    );
    replace(controls[name], el("option", { value: "" }, "Any"), all);
  };
  const load = async () => {
    try {
      const wanted = range();
      const crosstab = await api.crosstab(link, { ...wanted, ...chosen });
      FILTERS.forEach(([name, list]) => options(name, list, crosstab[list] ?? {}));
      const isFiltered = Object.values(chosen).some((value) => value !== "");
      const points = crosstab.series.map((point) => ({ ...point, visitors: 0, addresses: 0 }));
      replace(found, isFiltered && [el("p", {}, el("strong", {}, count(crosstab.clicks)), " matching clicks."), timeline(points, wanted.by, names(wanted.by, wanted.tz), false)]);
    } catch (error) {
      replace(found, complaint(error));
    }
  };
  for (const [name] of FILTERS) {
    controls[name].addEventListener("change", () => {
      chosen[name] = controls[name].value;
      load();
    });
  }
  load();
  const element = el(
    "details",
    { id: "filters" },
    el("summary", {}, "Combine filters"),
    el("div", { class: "grid" }, FILTERS.map(([name, , title]) => field(title, controls[name]))),
    found,
  );
  const choose = (name, value) => {
    chosen[name] = value;
    element.open = true;
    load();
    element.scrollIntoView({ block: "nearest" });
  };
  return { element, choose };
}
