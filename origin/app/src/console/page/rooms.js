// Waiting rooms: their queues, refreshed every two seconds, and their settings.

import { api } from "./api.js";
import { Samples, line } from "./charts.js";
import { ask, button, check, complaint, el, empty, fact, field, follow, refresh, replace, select, state, working } from "./dom.js";
import { atMinute, clock, count, length, minute, plural, time } from "./format.js";

const EVERY_MS = 2_000;
const NAME = /^[a-z0-9-]{1,48}$/;
const PACE_MAX = 10_000_000;

const MODES = {
  open: "Open: admitted at the set rate",
  paused: "Paused: the queue is frozen",
  draining: "Draining: the queue moves, new visitors are refused",
  closed: "Closed: no new visitors, the queue is frozen",
  bypass: "Bypass: no queue",
};

/** What to ask before a mode is set: the action, and its effect. */
const EFFECTS = {
  open: ["Open room", "Visitors enter at the set rate."],
  paused: ["Pause room", "No one enters until the room is open again. Visitors keep their positions."],
  draining: ["Drain room", "New visitors are refused. The queue moves on."],
  closed: ["Close room", "New visitors are refused, and no one in the queue enters."],
  bypass: ["Bypass room", "Everyone enters at once: nothing protects the shop behind it."],
};

const TONES = { open: "good", paused: "warn", draining: "warn", closed: "", bypass: "bad" };

function queue(now) {
  if (!now) {
    return el("p", { class: "hint" }, "No gateway has reported this room yet.");
  }
  const parts = [
    ["Waiting", count(now.waiting)],
    ["Inside", count(now.inside)],
    ["Entered in the last minute", count(now.entered_last_minute)],
    ["Admitted", count(now.called)],
    ["Entered", count(now.entered)],
    ["No-shows", count(now.dropped_out)],
    ["Median wait", length(now.wait_ms.p50)],
    ["90th percentile wait", length(now.wait_ms.p90)],
  ];
  return el("dl", { class: "facts" }, parts.map(([name, value]) => fact(name, value)));
}

/** When a queue of `waiting` is empty at `pace` admissions per minute. */
function clears(waiting, pace, mode) {
  if (mode === "paused" || mode === "closed") {
    return "The queue does not move in this mode.";
  }
  if (mode === "bypass" || pace === 0) {
    return "Without a limit, everyone who waits enters at once.";
  }
  if (waiting === 0) {
    return "No one is waiting.";
  }
  const ms = (60_000 * waiting) / pace;
  return `${count(waiting)} waiting: the queue clears in about ${length(ms)} if no one joins (${time(Date.now() + ms)}).`;
}

/** The values of a setting as its controls show them. */
const shownOf = ({ setting, configured }) => shownOfFields(setting ?? configured);

const shownOfFields = (setting) => ({
  mode: setting?.mode ?? "",
  per_minute: setting ? String(setting.per_minute) : "",
  active_max: setting ? String(setting.active_max) : "",
  opens_at: setting?.opens_at_ms ? minute(setting.opens_at_ms) : "",
});

const LABELS = { mode: "the mode", per_minute: "the pace", active_max: "the active sessions", opens_at: "the opening" };

/** The form of one room. It follows the room until it is changed here. */
function form(desk, room, saved) {
  const isFixed = !desk.may("rooms:write");
  let now = room;
  const number = (name) => el("input", { name, inputmode: "numeric", autocomplete: "off", disabled: isFixed });
  const options = [["", "As configured in the gateways"], ...Object.entries(MODES)];
  const of = {
    mode: select(options, "", { name: "mode", disabled: isFixed }),
    per_minute: number("per_minute"),
    active_max: number("active_max"),
    opens_at: el("input", { type: "datetime-local", name: "opens_at", disabled: isFixed }),
  };
  const slider = el("input", { type: "range", name: "pace", min: 0, max: 1_000, disabled: isFixed });
  const estimate = el("p", { class: "hint", "aria-live": "polite" });
  const [said, note] = [el("div", {}), el("div", {})];
  const followed = follow(of, note, (name) => LABELS[name]);
  // The slider is logarithmic, because paces are.
  const fromSlider = () => Math.round(10 ** (Number(slider.value) / 250)) - 1;
  const toSlider = (pace) => Math.round(250 * Math.log10(pace + 1));
  const pace = () => Number(of.per_minute.value);
  const look = () => {
    const isPace = of.per_minute.value !== "" && /^\d+$/.test(of.per_minute.value);
    slider.value = isPace ? toSlider(pace()) : 0;
    slider.setAttribute("aria-valuetext", isPace ? `${count(pace())} per minute` : "as configured");
    estimate.textContent = isPace && now.queue ? clears(now.queue.waiting, pace(), of.mode.value) : "";
  };
  slider.addEventListener("input", () => {
    of.per_minute.value = String(fromSlider());
    look();
  });
  of.per_minute.addEventListener("input", look);
  of.mode.addEventListener("change", look);
  const update = (room, isOwn = false) => {
    now = room;
    followed.update(shownOf(room), isOwn);
    back.hidden = isFixed || !room.setting;
    look();
  };
  const submit = el("button", { type: "submit", disabled: isFixed }, "Save room");
  /** Sets the room to an earlier setting, or to the gateways' configuration. */
  const restore = async (before) => {
    if (before) {
      const { version: _, ...fields } = before;
      saved(await api.setRoom(room.name, fields), true);
    } else {
      await api.clearRoom(room.name);
      saved({ ...now, setting: null }, true);
    }
  };
  const set = working(submit, said, async () => {
    const isNumber = (control) => /^\d+$/.test(control.value.trim()) && Number(control.value) <= PACE_MAX;
    const opens = of.opens_at.value ? atMinute(of.opens_at.value) : 0;
    check([
      [of.mode, of.mode.value ? null : "Choose a mode: the setting replaces the gateways’ configuration."],
      [of.per_minute, isNumber(of.per_minute) ? null : `Must be an integer up to ${count(PACE_MAX)}; 0 means no limit.`],
      [of.active_max, isNumber(of.active_max) ? null : `Must be an integer up to ${count(PACE_MAX)}; 0 means no limit.`],
      [of.opens_at, Number.isNaN(opens) ? "Must be a time." : null],
    ]);
    const setting = { mode: of.mode.value, per_minute: pace(), active_max: Number(of.active_max.value), opens_at_ms: opens };
    if (!(await confirmed(now, setting))) {
      return null;
    }
    const before = now.setting;
    const done = await api.setRoom(room.name, setting);
    saved(done, true);
    return [`Saved as version ${done.setting.version}. Gateways apply it within seconds.`, () => restore(before)];
  });
  const back = button("Back to configuration", { class: "back-to-configuration" }, said, async () => {
    const text = "The mode and the limits of the gateways’ configuration apply again.";
    if (!(await ask(`Reset room “${room.name}”?`, text, "Back to configuration", `Keep room ${now.setting.mode}`))) {
      return null;
    }
    const before = now.setting;
    await restore(null);
    return ["The room follows the gateways’ configuration.", () => restore(before)];
  });
  const element = el(
    "form",
    { onsubmit: set, novalidate: true },
    note,
    said,
    el(
      "div",
      { class: "grid" },
      field("Mode", of.mode),
      field("Admissions per minute", of.per_minute, "0: no limit."),
      field("Active sessions", of.active_max, "0: no limit."),
      field(`Opens at (${clock.name()})`, of.opens_at, "Empty: open at once."),
    ),
    field("Pace", slider),
    estimate,
    el("div", { class: "row" }, submit, back),
  );
  update(room);
  return { element, update };
}

/** Asks before a setting that holds back or floods visitors. */
async function confirmed(room, setting) {
  const before = room.setting;
  const [deed, effect] = EFFECTS[setting.mode];
  const isNew = !before && "This setting replaces the mode and limits of the gateways’ configuration.";
  const isFree = setting.mode !== "bypass" && (setting.per_minute === 0 || setting.active_max === 0)
    && `No limit for ${[setting.per_minute === 0 && "admissions", setting.active_max === 0 && "active sessions"].filter(Boolean).join(" and ")}.`;
  const isOther = before?.mode !== setting.mode && (setting.mode !== "open" || before) && effect;
  const reasons = [isNew, isOther, isFree].filter(Boolean);
  if (reasons.length === 0) {
    return true;
  }
  const waiting = room.queue ? ` ${count(room.queue.waiting)} are waiting, ${count(room.queue.inside)} have an active session.` : "";
  const keep = before ? `Keep room ${before.mode}` : "Keep as configured";
  return ask(`${isOther || isNew ? deed : "Change room"} “${room.name}”?`, reasons.join(" ") + waiting, isOther ? deed : "Save room", keep);
}

/** How many gateways run this room. */
const reportedBy = ({ configured }) => el("span", { class: "hint" }, configured ? `in ${plural(configured.gateways, "gateway")}` : "in no gateway that reports");

function card(desk, room) {
  const [shown, head] = [el("div", { "aria-live": "off" }), el("div", { class: "row apart" })];
  const samples = new Samples(1_800);
  const people = line("Waiting and inside", "line");
  const entered = line("Entered per minute", "line", (value) => `${count(value)} per minute`);
  const opened = Date.now();
  let latest = room;
  const update = (now, isOwn = false) => {
    latest = now;
    const mode = now.setting?.mode;
    refresh(head, el("h2", {}, now.name), el("span", { class: "row" }, reportedBy(now), state(mode ?? (now.configured ? `as configured: ${now.configured.mode}` : "as configured"), TONES[mode] ?? "info")));
    refresh(shown, queue(now.queue));
    edit.update(now, isOwn);
    if (now.queue) {
      samples.add(Date.now(), { waiting: now.queue.waiting, inside: now.queue.inside, entered: now.queue.entered_last_minute });
      const since = `Since you opened this page, ${length(Date.now() - opened)} ago.`;
      people.show([["Waiting", "c3", "waiting"], ["Inside", "c0", "inside"]].map(([name, colour, member]) => ({ name, colour, points: samples.points(member) })), since);
      entered.show([{ name: "Entered", colour: "c2", points: samples.points("entered") }], since);
    }
    charts.hidden = !now.queue;
  };
  const edit = form(desk, room, (now, isOwn) => update(now, isOwn));
  const charts = el("div", { class: "columns" }, people.element, entered.element);
  const element = el("section", { class: "card", "data-room": room.name, "aria-label": `Room ${room.name}` }, head, shown, charts, edit.element);
  update(room);
  return { element, update, isKnown: () => Boolean(latest.setting || latest.queue || latest.configured) };
}

/** A form that shows a room without settings. */
function find(show) {
  const name = el("input", { name: "room", autocomplete: "off", spellcheck: "false" });
  const said = el("div", {});
  const submit = el("button", { type: "submit" }, "Show");
  const look = working(submit, said, async () => {
    check([[name, NAME.test(name.value) ? null : "Must be 1 to 48 of a-z, 0-9 and -."]]);
    try {
      show(await api.room(name.value));
    } catch (error) {
      if (error.code !== "unknown_room") {
        throw error;
      }
      show({ name: name.value, setting: null, queue: null, configured: null });
    }
    document.querySelector(`[data-room="${name.value}"]`).scrollIntoView({ block: "nearest" });
    return null;
  });
  const hint = "The list has rooms with saved settings, and rooms of gateways that have reported in the last two minutes.";
  return el("form", { class: "card", id: "find-room", novalidate: true, onsubmit: look }, said, el("div", { class: "together" }, field("Show another room", name, hint), submit));
}

export async function rooms(desk, wanted) {
  const cards = new Map();
  const list = el("div", { class: "stack" });
  const [said, none] = [el("div", {}), empty("no-rooms", "No room has saved settings, and no gateway has reported one.")];
  const show = (room) => {
    none.remove();
    if (!cards.has(room.name)) {
      cards.set(room.name, card(desk, room));
      list.append(cards.get(room.name).element);
    } else {
      cards.get(room.name).update(room);
    }
  };
  list.append(none);
  if (wanted) {
    requestAnimationFrame(() => cards.get(wanted)?.element.scrollIntoView({ block: "start" }));
  }
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
      // Rooms without settings that gateways have reported are not in the list.
      const others = [...cards.entries()].filter(([name, { isKnown }]) => isKnown() && !all.some((room) => room.name === name));
      await Promise.all(others.map(async ([name]) => show(await api.room(name))));
      replace(said);
    } catch (error) {
      replace(said, complaint(error));
    }
  };
  const timer = setInterval(again, EVERY_MS);
  desk.onLeave(() => clearInterval(timer));
  return ["Waiting rooms", said, list, find(show)];
}
