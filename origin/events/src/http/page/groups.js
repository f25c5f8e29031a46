// The state of consumer groups and collectors, and their actions.

import { ask, button, complaint, el, fact, field, refresh, select, state } from "../../ui/dom.js";
import { atMinute, clock, count, instant, length, plural } from "../../ui/format.js";
import { api } from "./api.js";

const TONES = { running: "good", outage: "bad", paused: "warn" };

const facts = (pairs) => el("dl", { class: "facts" }, pairs.map(([name, text, isBad]) => fact(name, text, { class: isBad ? "bad" : null })));

const lag = (group) => (group.lag_records === null ? `${count(group.lag_bytes ?? 0)} bytes` : plural(group.lag_records, "record"));

/** Describes the effect of a seek in one sentence. */
function effect(sought, isDry) {
  const sum = (name) => sought.sources.reduce((all, one) => all + (one[name] ?? 0), 0);
  const begins = sought.sources.map((one) => one.begins_ms).filter((ms) => ms !== undefined);
  const done = isDry
    ? `${count(sum("again"))} records would be replayed, ${count(sum("skipped"))} skipped.`
    : "The group resumes there.";
  const gone = begins.length > 0 ? ` The log starts at ${instant(Math.min(...begins))}; there is nothing older.` : "";
  return done + gone;
}

const TARGETS = [["start", "the oldest event"], ["end", "latest"], ["time_ms", "a time"], ["position", "a position"]];

function seekForm(name) {
  const to = select(TARGETS, "start", { name: "to" });
  const time = el("input", { type: "datetime-local", step: "1", name: "time" });
  const position = el("input", { inputmode: "numeric", name: "position" });
  const said = el("div", {});
  const [timeField, positionField] = [field(`Time (${clock.name()})`, time), field("Position", position)];
  const target = () => {
    if (to.value === "time_ms") {
      const ms = atMinute(time.value);
      if (Number.isNaN(ms)) {
        throw new Error("Choose a time first.");
      }
      return { time_ms: ms };
    }
    if (to.value === "position") {
      if (!/^[0-9]+$/.test(position.value)) {
        throw new Error("A position must be an integer.");
      }
      return { position: Number(position.value) };
    }
    return { to: to.value };
  };
  const choose = () => {
    timeField.hidden = to.value !== "time_ms";
    positionField.hidden = to.value !== "position";
  };
  to.addEventListener("change", choose);
  choose();
  const dry = async () => effect(await api.seek(name, { ...target(), dry_run: true }), true);
  const move = async () => {
    const wanted = target();
    const text = effect(await api.seek(name, { ...wanted, dry_run: true }), true);
    if (!(await ask(`Move consumer group “${name}”?`, text, "Confirm move", "Keep its position"))) {
      return null;
    }
    return effect(await api.seek(name, { ...wanted, dry_run: false }), false);
  };
  return el(
    "details",
    {},
    el("summary", {}, "Move"),
    el("div", { class: "row low" }, field("Resume from", to), timeField, positionField),
    el("div", { class: "row" }, button("Dry run", { class: "dry-run" }, said, dry), button("Move", { class: "danger move" }, said, move)),
    said,
  );
}

/** The card of a group. `update` shows the group's current state. */
export function groupCard(name) {
  const [head, numbers, said] = [el("div", { class: "row apart" }), el("div", {}), el("div", {})];
  let group = { name };
  const run = button("Pause", { class: "run" }, said, async () => {
    const isPaused = group.state === "paused";
    if (!isPaused && !(await ask(`Pause consumer group “${name}”?`, "It handles no more events in all origins. Events are kept, and the lag grows.", "Pause group", "Keep it running"))) {
      return null;
    }
    await (isPaused ? api.resume(name) : api.pause(name));
    return isPaused ? "Resumes within a second." : "Pauses within a second in all origins.";
  });
  const now = button("Retry now", { class: "retry-now" }, said, async () => {
    const { due } = await api.retryNow(name);
    return `Retrying ${plural(due, "event")} now.`;
  });
  const letters = el("a", { class: "button letters", href: `#/events/dead-letters?group=${encodeURIComponent(name)}` }, "Dead letters");
  const card = el("li", { class: "card", id: `group-${name}` }, head, numbers, el("div", { class: "row" }, run, now, letters), said, seekForm(name));
  const update = (current) => {
    group = current;
    refresh(head, el("h3", {}, name), state(group.state, TONES[group.state]));
    run.textContent = group.state === "paused" ? "Resume" : "Pause";
    now.disabled = group.retries === 0;
    const positions = group.positions.map((one) => `${one.source}: ${one.position ?? "none"}`).join("\n");
    refresh(
      numbers,
      group.error && complaint({ message: group.error }),
      facts([
        ["Lag", lag(group)],
        ["Oldest event", group.oldest_age_ms === null ? "none" : `${length(group.oldest_age_ms)} old`],
        ["Retrying", count(group.retries), group.retries > 0],
        ["Dead letters", count(group.dead_letters), group.dead_letters > 0],
        ["To recompute", count(group.compensations), group.compensations > 0],
      ]),
      el("details", {}, el("summary", { class: "hint" }, "Positions"), el("pre", {}, positions || "none")),
    );
  };
  return { card, update };
}

export function pullCard(pull) {
  const isFailing = pull.failures > 0;
  return el(
    "li",
    { class: "card", id: `pull-${pull.name}`, "data-key": pull.name },
    el("div", { class: "row apart" }, el("h3", {}, pull.name), state(isFailing ? "failing" : "working", isFailing ? "bad" : "good")),
    isFailing && complaint({ message: pull.error }),
    facts([
      ["Failures in a row", count(pull.failures), isFailing],
      ["Last fetch", instant(pull.fetched_at_ms)],
      ["Cursor", pull.cursor || "at the start"],
    ]),
  );
}
