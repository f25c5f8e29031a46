// The profile of a customer: first and last time, events by type, segments, and all events, the newest first.

import { button, complaint, el, empty, fact, field, meter, refresh, replace, state, table } from "../../ui/dom.js";
import { count, instant, plural, relative, share } from "../../ui/format.js";
import { api } from "./api.js";

/** Events of one page; more are loaded on request. */
const PAGE = 50;

/** The address of a profile. */
export const profileOf = (customer) => `#/events/customers?customer=${encodeURIComponent(customer)}`;

/** The form that opens a profile. */
function looker(customer) {
  const control = el("input", { type: "search", name: "customer", value: customer ?? "", autocomplete: "off", spellcheck: "false" });
  const submitted = (event) => {
    event.preventDefault();
    if (control.value.trim()) {
      location.hash = profileOf(control.value.trim());
    }
  };
  return el("form", { class: "card", id: "look-customer", role: "search", onsubmit: submitted },
    el("div", { class: "together" }, field("Find a customer", control, "The customer’s id, as in your events."), el("button", { type: "submit", class: "primary" }, "Show")));
}

function numbers(profile) {
  if (profile.events === 0) {
    return empty("no-profile", "No events of this customer are stored.");
  }
  const rows = profile.types.map((one) => [el("code", {}, one.type), count(one.events),
    el("span", {}, share(one.events, profile.events), meter(one.events, profile.events, `${share(one.events, profile.events)} of the customer’s events`)),
    instant(one.last_ms)]);
  return [
    el("dl", { class: "facts" },
      fact("First event", `${instant(profile.first_ms)} (${relative(profile.first_ms)})`),
      fact("Last event", `${instant(profile.last_ms)} (${relative(profile.last_ms)})`),
      fact("Events", `${profile.complete ? "" : "latest "}${count(profile.events)}`)),
    el("p", { id: "profile-segments" }, "Segments: ", profile.segments.length > 0
      ? profile.segments.map((one) => [el("span", { title: `since ${instant(one.since_ms)}` }, state(one.name, "info")), " "])
      : "none"),
    table("profile-types", ["Type", "#Events", "Share", "Last"], rows),
  ];
}

const eventRow = (event) => [
  el("span", { class: "nowrap" }, instant(event.at_ms)),
  el("code", {}, event.type),
  el("details", {}, el("summary", {}, "Attributes"), el("pre", {}, JSON.stringify(event.attributes ?? {}, null, 2))),
];

/** The section of a customer; without one, only the form. */
export function customers(customer) {
  if (!customer) {
    return [looker(null), empty("no-customer", "Enter a customer’s id to see the profile. Segments list customers by what they did.", el("a", { href: "#/events/segments" }, "Segments"))];
  }
  const [shown, list, said, more] = [el("div", { class: "stack", id: "profile" }), el("div", { id: "customer-events" }), el("div", {}), el("div", { class: "row" })];
  let events = [];
  const load = async (page = null) => {
    const found = await api.eventsOf(customer, { order: "latest", limit: PAGE, page });
    events = page ? events.concat(found.events) : found.events;
    refresh(list, events.length > 0 && table("events-of", ["Time", "Type", "~Attributes"], events.map(eventRow), events.map((one) => one.id)));
    replace(more, found.next_page && [button("More", { class: "quiet", id: "more-events" }, said, () => load(found.next_page)), el("span", { class: "hint" }, `${plural(events.length, "event")} loaded`)]);
    return null;
  };
  const card = el("section", { class: "card stack", "aria-labelledby": "profile-title" },
    el("h2", { id: "profile-title" }, customer), said, shown, list, more);
  card.addEventListener("opened", async () => {
    try {
      const profile = await api.profile(customer);
      replace(shown, numbers(profile));
      await load();
      replace(said);
    } catch (error) {
      replace(said, complaint(error));
    }
  });
  return [looker(customer), card];
}
