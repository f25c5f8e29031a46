// Waiting rooms: their queues, looked at every two seconds, and what is set for them.

import { api } from "./api.js";
import { complaint, el, fact, field, replace, select, state, working } from "./dom.js";
import { count, length, minute, atMinute } from "./format.js";

const EVERY_MS = 2_000;
const NAME = /^[a-z0-9-]{1,48}$/;

const MODES = [
  ["open", "Open: called at the pace"],
  ["paused", "Paused: nobody is called"],
  ["draining", "Draining: those who wait are called, newcomers are refused"],
  ["closed", "Closed: nobody gets a place"],
  ["bypass", "Bypass: everybody passes"],
];

function queue(room) {
  const { queue: now } = room;
  if (!now) {
    return el("p", { class: "hint" }, "No gateway has looked at this room since Redis is there.");
  }
  const parts = [
    ["Waiting", count(now.waiting)],
    ["Called", count(now.called)],
    ["Inside", count(now.inside)],
    ["Entered in the last minute", count(now.entered_last_minute)],
    ["Entered", count(now.entered)],
    ["Dropped out", count(now.dropped_out)],
    ["Half waited less than", length(now.wait_ms.p50)],
    ["9 of 10 waited less than", length(now.wait_ms.p90)],
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
    return `Set, version ${done.setting.version}. Gateways follow within seconds.`;
  });
  return el(
    "form",
    { onsubmit: set },
    said,
    el(
      "div",
      { class: "grid" },
      field("Mode", mode),
      field("Entries a minute", pace, "0: no limit."),
      field("Inside at once", most, "0: no limit."),
      field("Opens at (UTC)", opens, "Empty: at once."),
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

/** A form that shows a room for which nothing is set yet. */
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
  const hint = "A room is in the gateways' configuration. Those for which something is set are listed.";
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
