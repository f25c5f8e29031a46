// Waiting rooms: their queues, refreshed every two seconds, and their settings.

import { api } from "./api.js";
import { complaint, el, fact, field, replace, select, state, working } from "./dom.js";
import { count, length, minute, atMinute } from "./format.js";

const EVERY_MS = 2_000;
const NAME = /^[a-z0-9-]{1,48}$/;

const MODES = [
  ["open", "Open: visitors enter at the set rate"],
  ["paused", "Paused: the queue is frozen"],
  ["draining", "Draining: the queue moves, new visitors are refused"],
  ["closed", "Closed: no new visitors, the queue is frozen"],
  ["bypass", "Bypass: no queue"],
];

function queue(room) {
  const { queue: now } = room;
  if (!now) {
    return el("p", { class: "hint" }, "No gateway has reported this room since Redis started.");
  }
  const parts = [
    ["Waiting", count(now.waiting)],
    ["Called", count(now.called)],
    ["Inside", count(now.inside)],
    ["Entered in the last minute", count(now.entered_last_minute)],
    ["Entered", count(now.entered)],
    ["No-shows", count(now.dropped_out)],
    ["Median wait", length(now.wait_ms.p50)],
    ["p90 wait", length(now.wait_ms.p90)],
  ];
  return el("dl", { class: "facts" }, parts.map(([name, value]) => fact(name, value)));
}

/** The form of one room. */
function form(desk, room, update) {
  const isFixed = !desk.may("rooms:write");
  const now = room.setting ?? { mode: "open", per_minute: 0, active_max: 0, opens_at_ms: 0 };
  const mode = select(MODES, now.mode, { name: "mode", disabled: isFixed });
  const number = (name, value) => el("input", { type: "number", min: 0, name, value, disabled: isFixed });
  const [pace, most] = [number("per_minute", now.per_minute), number("active_max", now.active_max)];
  const opens = el("input", { type: "datetime-local", name: "opens_at", disabled: isFixed, value: now.opens_at_ms ? minute(now.opens_at_ms) : "" });
  const said = el("div", {});
  const submit = el("button", { type: "submit", disabled: isFixed }, "Set");
  const set = working(submit, said, async () => {
    const setting = {
      mode: mode.value,
      per_minute: Number(pace.value),
      active_max: Number(most.value),
      opens_at_ms: opens.value ? atMinute(opens.value) : 0,
    };
    const done = await api.setRoom(room.name, setting);
    update(done);
    return `Saved as version ${done.setting.version}. Gateways apply it within seconds.`;
  });
  return el(
    "form",
    { onsubmit: set },
    said,
    el(
      "div",
      { class: "grid" },
      field("Mode", mode),
      field("Admissions per minute", pace, "0: unlimited."),
      field("Active sessions", most, "0: unlimited."),
      field("Opens at (UTC)", opens, "Empty: open at once."),
    ),
    el("div", { class: "row" }, submit),
  );
}

function card(desk, room) {
  const shown = el("div", { "aria-live": "off" });
  const head = el("div", { class: "row apart" });
  const update = (now) => {
    const word = now.setting?.mode ?? "as configured";
    replace(head, el("h2", {}, now.name), state(word, word === "open" || word === "bypass"));
    replace(shown, queue(now));
  };
  update(room);
  const element = el("section", { class: "card", "data-room": room.name, "aria-label": `Room ${room.name}` }, head, shown, form(desk, room, update));
  return { element, update };
}

/** A form that shows a room without settings. */
function find(show) {
  const name = el("input", { name: "room", autocomplete: "off", spellcheck: "false" });
  const said = el("div", {});
  const submit = el("button", { type: "submit" }, "Show");
  const look = working(submit, said, async () => {
    if (!NAME.test(name.value)) {
      throw new Error("A room's name has 1 to 48 of a-z, 0-9 and -.");
    }
    try {
      show(await api.room(name.value));
    } catch (error) {
      if (error.code !== "unknown_room") {
        throw error;
      }
      show({ name: name.value, setting: null, queue: null });
    }
    return null;
  });
  const hint = "Rooms are defined in the gateways' configuration. This list has the rooms with saved settings.";
  return el("form", { class: "card", id: "find", onsubmit: look }, said, el("div", { class: "together" }, field("Room", name, hint), submit));
}

export async function rooms(desk) {
  const cards = new Map();
  const list = el("div", {});
  const said = el("div", {});
  const show = (room) => {
    if (!cards.has(room.name)) {
      cards.set(room.name, card(desk, room));
      list.append(cards.get(room.name).element);
    }
    cards.get(room.name).update(room);
  };
  for (const room of await api.rooms()) {
    show(room);
  }
  const again = async () => {
    if (document.hidden) {
      return;
    }
    try {
      const all = await api.rooms();
      all.forEach(show);
      replace(said);
    } catch (error) {
      replace(said, complaint(error));
    }
  };
  const timer = setInterval(again, EVERY_MS);
  desk.onLeave(() => clearInterval(timer));
  return ["Waiting rooms", said, list, find(show)];
}
