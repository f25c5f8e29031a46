// The state of consumer groups, and their actions.

import { api } from "./api.js";
import { age, asking, bad, button, count, el, field, instant } from "./dom.js";

const LOOKS = { running: "on", outage: "off" };

function facts(pairs) {
  return el(
    "dl",
    { class: "facts" },
    pairs.flatMap(([name, text, isBad]) => [el("dt", {}, name), el("dd", { class: isBad ? "bad" : null }, text)]),
  );
}

function lag(group) {
  return group.lag_records === null ? `${count(group.lag_bytes ?? 0)} bytes` : `${count(group.lag_records)} records`;
}

/** Describes the effect of a seek in one sentence. */
function told(sought, isDry) {
  const sum = (name) => sought.sources.reduce((all, one) => all + (one[name] ?? 0), 0);
  const begins = sought.sources.map((one) => one.begins_ms).filter((ms) => ms !== undefined);
  const done = isDry
    ? `${count(sum("again"))} records would be replayed, ${count(sum("skipped"))} skipped.`
    : "The group continues there.";
  const gone = begins.length > 0 ? ` The log starts at ${instant(Math.min(...begins))}; there is nothing older.` : "";
  return done + gone;
}

function seekForm(group) {
  const to = el(
    "select",
    { name: "to" },
    [["start", "the oldest event"], ["end", "after the latest"], ["time_ms", "a time (UTC)"], ["position", "a position"]].map(
      ([value, text]) => el("option", { value }, text),
    ),
  );
  const time = el("input", { type: "datetime-local", step: "1", name: "time" });
  const position = el("input", { inputmode: "numeric", pattern: "[0-9]+", name: "position" });
  const said = el("div", {});
  const [timeField, positionField] = [field("Time, in UTC", time), field("Position", position)];
  const target = () => {
    if (to.value === "time_ms") {
      const ms = Date.parse(`${time.value}Z`);
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
  const seek = (isDry) => async () => told(await api.seek(group.name, { ...target(), dry_run: isDry }), isDry);
  const choose = () => {
    timeField.hidden = to.value !== "time_ms";
    positionField.hidden = to.value !== "position";
  };
  to.addEventListener("change", choose);
  choose();
  return el(
    "details",
    {},
    el("summary", {}, "Move"),
    el("div", { class: "row ends" }, field("Continue at", to), timeField, positionField),
    el(
      "div",
      { class: "row" },
      button("Dry run", { class: "dry-run" }, said, seek(true)),
      asking("Seek", "Confirm seek", { class: "danger move" }, said, seek(false)),
    ),
    said,
  );
}

/** The card of a group. `update` shows the group's current state. */
export function groupCard(name, showLetters) {
  const [head, numbers, said] = [el("div", { class: "row apart" }), el("div", {}), el("div", {})];
  let group = { name };
  const run = button("Pause", { class: "run" }, said, async () => {
    const isPaused = group.state === "paused";
    await (isPaused ? api.resume(name) : api.pause(name));
    return isPaused ? "Resumes within a second." : "Pauses within a second in all origins.";
  });
  const now = button("Retry now", { class: "retry-now" }, said, async () => {
    const { due } = await api.retryNow(name);
    return `Retrying ${count(due)} events now.`;
  });
  const letters = el("button", { type: "button", class: "letters", onclick: () => showLetters(name) }, "Dead letters");
  const actions = el("div", { class: "row" }, run, now, letters);
  const card = el("li", { class: "card", id: `group-${name}` }, head, numbers, actions, said, seekForm(group));
  const update = (current) => {
    group = current;
    head.replaceChildren(el("h3", {}, name), el("span", { class: `state ${LOOKS[group.state] ?? ""}` }, group.state));
    run.textContent = group.state === "paused" ? "Resume" : "Pause";
    now.disabled = group.retries === 0;
    const error = group.error ? [bad(group.error)] : [];
    numbers.replaceChildren(
      ...error,
      facts([
        ["Lag", lag(group)],
        ["Oldest event", age(group.oldest_age_ms)],
        ["In retry", count(group.retries), group.retries > 0],
        ["Dead letters", count(group.dead_letters), group.dead_letters > 0],
        ["To be recomputed", count(group.compensations), group.compensations > 0],
        ...group.positions.slice(0, 3).map((one) => [`Position in ${one.source}`, one.position ?? "none"]),
      ]),
    );
  };
  return { card, update };
}

export function pullCard(pull) {
  const isFailing = pull.failures > 0;
  return el(
    "li",
    { class: "card", id: `pull-${pull.name}` },
    el(
      "div",
      { class: "row apart" },
      el("h3", {}, pull.name),
      el("span", { class: `state ${isFailing ? "off" : "on"}` }, isFailing ? "failing" : "working"),
    ),
    isFailing ? bad(pull.error) : null,
    facts([
      ["Failures in a row", count(pull.failures), isFailing],
      ["Last fetch", instant(pull.fetched_at_ms)],
      ["Cursor", pull.cursor || "at the start"],
    ]),
  );
}
