// Events: their flow, consumer groups and collectors, refreshed every few seconds; trends, funnels, customers and segments;
// dead letters; types.

import { line } from "../../ui/charts.js";
import { complaint, el, empty, refresh, replace, table, tabs } from "../../ui/dom.js";
import { count, length, plural, rate, time } from "../../ui/format.js";
import { traffic } from "../../ui/traffic.js";
import { api } from "./api.js";
import { customers } from "./customer.js";
import { deadLetters } from "./dead.js";
import { groupCard, pullCard } from "./groups.js";
import { segments } from "./segments.js";
import { funnel, trends } from "./trends.js";

const EVERY_MS = 3_000;

/** Letters to count of events that were refused on arrival. */
const COLLECT_MAX = 100;

/** The charts of this origin's traffic; none for tenants. */
function flow(desk) {
  if (desk.who.tenant) {
    return { element: null, show: () => {} };
  }
  const [rates, age] = [line("Events per second", "line", rate), line("Oldest unhandled event, age in seconds", "line", (seconds) => length(seconds === null ? null : 1_000 * seconds))];
  const show = () => {
    rates.show(...traffic.chart([["Accepted", "c0", "events"], ["Refused", "c4", "rejected"]], true));
    age.show(...traffic.chart([["Age", "c3", "oldest_s"]], true));
  };
  return { element: el("div", { class: "columns" }, [rates, age].map((chart) => el("section", { class: "card" }, chart.element))), show };
}

/** Events that were refused on arrival, which belong to no consumer group. */
async function refusedNote() {
  const { dead_letters: letters, next_page: next } = await api.letters({ group: "collect", limit: COLLECT_MAX });
  const many = next ? `At least ${plural(letters.length, "event")}` : plural(letters.length, "event");
  return letters.length > 0 && el("p", { class: "notice warn", id: "refused-on-arrival" }, `${many} refused on arrival. `, el("a", { href: "#/events/dead-letters?group=collect" }, "View dead letters"));
}

async function types() {
  const all = await api.types();
  const row = (type) => [el("code", {}, type.name), count(type.version), time(type.changed_at_ms),
    el("details", {}, el("summary", {}, "Settings"), el("pre", {}, JSON.stringify({ ...type, name: undefined, version: undefined, changed_at_ms: undefined }, null, 2)))];
  return all.length > 0 ? table("types", ["Type", "#Version", "Changed", "Settings"], all.map(row)) : empty("no-types", "No event types yet: events of unknown types become dead letters.");
}

export async function events(desk, tab, search) {
  const [said, note, groups, pulls] = [el("div", {}), el("div", {}), el("ul", { class: "cards", id: "groups" }), el("ul", { class: "cards", id: "pulls" })];
  const given = new URLSearchParams(search ?? "");
  const cards = new Map();
  const charts = flow(desk);
  const look = async () => {
    const [known, all, refused] = await Promise.all([api.groups(), api.pulls(), refusedNote()]);
    for (const group of known) {
      if (!cards.has(group.name)) {
        cards.set(group.name, groupCard(group.name));
        groups.append(cards.get(group.name).card);
      }
      cards.get(group.name).update(group);
    }
    refresh(pulls, all.length > 0 ? all.map(pullCard) : el("li", { class: "hint" }, "No collectors."));
    refresh(note, refused);
    charts.show();
  };
  const again = async () => {
    if (document.hidden) {
      return;
    }
    try {
      await look();
      replace(said);
    } catch (error) {
      replace(said, complaint(error));
    }
  };
  await look();
  const timer = setInterval(again, EVERY_MS);
  desk.onLeave(() => clearInterval(timer));
  const typeCard = el("section", { class: "card", "aria-label": "Event types" });
  typeCard.addEventListener("opened", async () => replace(typeCard, await types().catch(complaint)));
  const running = [
    said,
    note,
    charts.element,
    el("section", { class: "stack", "aria-labelledby": "groups-title" }, el("h2", { id: "groups-title" }, "Consumer groups"), groups),
    el("section", { class: "stack", "aria-labelledby": "pulls-title" }, el("h2", { id: "pulls-title" }, "Collectors"), pulls),
  ];
  return ["Events", ...tabs((id) => (id ? `#/events/${id}` : "#/events"), [
    ["flow", "Flow", running],
    ["trends", "Trends", [trends(), funnel()]],
    ["customers", "Customers", customers(given.get("customer"))],
    ["segments", "Segments", segments(desk)],
    ["dead-letters", "Dead letters", deadLetters(desk, given)],
    ["types", "Types", typeCard],
  ], tab)];
}
