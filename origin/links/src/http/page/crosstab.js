// Clicks by country, device and referrer in combination.

import { api } from "./api.js";
import { timeline } from "./charts.js";
import { el, field, replace } from "./dom.js";
import { count, word } from "./format.js";
import { complaint } from "./notice.js";

const FILTERS = [["country", "countries", "Country"], ["device", "devices", "Device"], ["referrer", "referrers", "Referrer"]];

/** The label of a value. Countries are regions without a subdivision. */
const shown = (list, value) => word(list === "countries" ? "regions" : list, value);

/** The filters, for the range that `asked` returns. */
export function crosstabFilter(link, asked) {
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
      const wanted = asked();
      const crosstab = await api.crosstab(link, { ...wanted, ...chosen });
      FILTERS.forEach(([name, list]) => options(name, list, crosstab[list] ?? {}));
      const isFiltered = Object.values(chosen).some((value) => value !== "");
      const points = crosstab.series.map((point) => ({ ...point, visitors: 0, addresses: 0 }));
      replace(found, isFiltered && [el("p", {}, el("strong", {}, count(crosstab.clicks)), " matching clicks."), timeline(points, wanted.by, wanted.tz, false)]);
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
  return el(
    "details",
    { id: "filters" },
    el("summary", {}, "Cross-tab by country, device and referrer"),
    el("div", { class: "grid" }, FILTERS.map(([name, , title]) => field(title, controls[name]))),
    found,
  );
}
