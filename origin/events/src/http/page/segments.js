// Segments: customers by rules on their events. List, create, change, evaluate, export and delete.

import { ask, button, check, choice, complaint, el, empty, field, replace, select, table, working } from "../../ui/dom.js";
import { count, plural, time } from "../../ui/format.js";
import { api } from "./api.js";
import { profileOf } from "./customer.js";

/** Members of one page; more are loaded on request. */
const PAGE = 100;

const CONDITIONS_MAX = 3;
const EVENTS_MAX = 10_000;
const DAYS_MAX = 366;

/** A condition in words. */
function wordsOf({ type, at_least: least, at_most: most, days }) {
  const times = most === undefined ? `at least ${count(least)} ×` : least === undefined ? `at most ${count(most)} ×` : `${count(least)} to ${count(most)} ×`;
  return `${most === 0 ? "no" : times} ${type} in ${plural(days, "day")}`;
}

/** An integer; undefined if the field is empty, NaN if it is invalid. */
const integer = (control) => (control.value.trim() === "" ? undefined : /^\d{1,6}$/.test(control.value.trim()) ? Number(control.value) : NaN);

const isBetween = (value, low, high) => value >= low && value <= high;

/** The fields of a condition. */
function conditionFields(types, at, given) {
  const known = given && !types.includes(given.type) ? [...types, given.type] : types;
  const options = known.map((name) => [name, name]);
  const number = (name, value) => el("input", { name: `${name}-${at + 1}`, inputmode: "numeric", value: value ?? "", autocomplete: "off" });
  const of = {
    type: select(at === 0 ? options : [["", "None"], ...options], given?.type ?? (at === 0 ? known[0] : ""), { name: `type-${at + 1}` }),
    least: number("least", given ? given.at_least : at === 0 ? 1 : null),
    most: number("most", given?.at_most),
    days: number("days", given?.days ?? 30),
  };
  const element = el("fieldset", { class: "part" }, el("legend", {}, at === 0 ? "Condition" : `And condition ${at + 1}`),
    el("div", { class: "grid" }, field("Type", of.type), field("At least", of.least), field("At most", of.most), field("In the last days", of.days)));
  const faults = () => {
    const [least, most, days] = [integer(of.least), integer(of.most), integer(of.days)];
    const wrong = (value) => (value === undefined || isBetween(value, 0, EVENTS_MAX) ? null : `Must be 0 to ${count(EVENTS_MAX)}.`);
    return [
      [of.least, wrong(least) ?? (least === undefined && most === undefined ? "Enter at least or at most." : null)],
      [of.most, wrong(most) ?? (least > most ? "Must not be less than “at least”." : null)],
      [of.days, isBetween(days, 1, DAYS_MAX) ? null : `Must be 1 to ${DAYS_MAX}.`],
    ];
  };
  const read = () => ({ type: of.type.value, at_least: integer(of.least), at_most: integer(of.most), days: integer(of.days) });
  return { element, of, isUsed: () => of.type.value !== "", faults, read };
}

/** The form that creates or changes a segment. */
function form(types, given, done) {
  const name = el("input", { name: "segment", value: given?.name ?? "", readonly: Boolean(given), autocomplete: "off", spellcheck: "false" });
  const notify = el("input", { type: "checkbox", name: "notify", checked: given?.notify });
  const conditions = Array.from({ length: CONDITIONS_MAX }, (_, at) => conditionFields(types, at, given?.conditions[at]));
  const said = el("div", { id: "segment-said" });
  const submit = el("button", { type: "submit", class: "primary" }, given ? "Save segment" : "Create segment");
  const save = working(submit, said, async () => {
    const used = conditions.filter((one) => one.isUsed());
    const isName = /^[a-z0-9_.-]{1,64}$/.test(name.value.trim());
    const needs = used.some((one) => one.read().at_least > 0);
    check([
      [name, isName ? null : "Must be 1 to 64 of a-z, 0-9, _, . and -."],
      ...used.flatMap((one) => one.faults()),
      ...(needs ? [] : [[used[0].of.least, "One condition needs at least 1 event."]]),
    ]);
    const saved = await api.saveSegment(name.value.trim(), { conditions: used.map((one) => one.read()), notify: notify.checked });
    await done();
    return `Segment ${saved.name} is saved. Its members are found within seconds.`;
  });
  return el("form", { class: "card", id: "segment-form", novalidate: true, onsubmit: save },
    el("h2", {}, given ? `Change ${given.name}` : "New segment"),
    field("Name", name, given ? null : "Such as dormant-buyers. It cannot be changed later."),
    conditions.map((one) => one.element),
    choice(notify, "Send an event when a customer enters or leaves: to the webhook and all other consumer groups"),
    said,
    el("div", { class: "row" }, submit));
}

/** The members of a segment. */
function membersOf(name) {
  const [shown, said, more] = [el("div", {}), el("div", {}), el("div", { class: "row" })];
  let members = [];
  const load = async (page = null) => {
    const found = await api.members(name, { limit: PAGE, page });
    members = page ? members.concat(found.members) : found.members;
    const rows = members.map((one) => [el("a", { href: profileOf(one.customer) }, one.customer), time(one.since_ms)]);
    replace(shown, rows.length > 0 ? table("members", ["Customer", "Since"], rows) : empty("no-members", "No customers meet the conditions."));
    replace(more, found.next_page && button("More", { class: "quiet" }, said, () => load(found.next_page)));
    return null;
  };
  const csv = el("a", { class: "button", id: "members-csv", download: `${name}.csv`, href: api.membersAsTable(name) }, "Download CSV");
  const element = el("section", { class: "card", "aria-labelledby": "members-title" },
    el("div", { class: "row apart" }, el("h2", { id: "members-title" }, `Members of ${name}`), csv), said, shown, more);
  load().catch((error) => replace(said, complaint(error)));
  return element;
}

/** The section of segments. */
export function segments(desk) {
  const [list, said, below, edited] = [el("div", { id: "segments" }), el("div", {}), el("div", {}), el("div", {})];
  const mayChange = desk.may("events:write");
  let types = [];
  const edit = (given) => replace(edited, mayChange && (types.length > 0 || given) && form(types, given, async () => {
    await load();
    edit(null);
  }));
  const row = (one) => {
    const remove = async () => {
      if (!(await ask(`Delete segment “${one.name}”?`, "Its list of members is deleted. Customers and their events stay.", "Delete segment", "Keep segment"))) {
        return null;
      }
      await api.removeSegment(one.name);
      replace(below);
      await load();
      return `Segment ${one.name} is deleted.`;
    };
    const evaluate = async () => {
      await api.evaluate(one.name);
      return "Its members are found again within seconds.";
    };
    const change = async () => {
      edit(one);
      edited.querySelector("[name=type-1]").focus();
      return null;
    };
    const show = async () => {
      replace(below, membersOf(one.name));
      return null;
    };
    const act = (text, props, work) => button(text, { ...props, "aria-label": `${text} ${one.name}` }, said, work);
    return [
      one.name,
      el("ul", { class: "plain" }, one.conditions.map((condition) => el("li", {}, wordsOf(condition))), one.notify && el("li", { class: "hint" }, "Sends events")),
      `${one.complete ? "" : "more than "}${count(one.members)}`,
      time(one.evaluated_ms),
      el("div", { class: "row" }, act("Members", { class: "small show-members" }, show), mayChange && [
        act("Evaluate", { class: "small evaluate" }, evaluate), act("Change", { class: "small change" }, change), act("Delete", { class: "small danger remove" }, remove)]),
    ];
  };
  const load = async () => {
    const all = await api.segments();
    replace(list, all.length > 0
      ? table("segment-list", ["Segment", "Conditions", "#Members", "Evaluated", "~Actions"], all.map(row), all.map(({ name }) => name))
      : empty("no-segments", "No segments yet. A segment lists the customers who meet up to three conditions, such as “at least 1 order in 180 days and no order in 30 days”."));
  };
  const refreshed = button("Refresh", { class: "quiet", id: "refresh-segments" }, said, async () => {
    await load();
    return null;
  });
  const card = el("section", { class: "card", "aria-labelledby": "segments-title" },
    el("div", { class: "row apart" }, el("h2", { id: "segments-title" }, "Segments"), refreshed), said, list);
  card.addEventListener("opened", async () => {
    try {
      types = (await api.types()).map(({ name }) => name);
      await load();
      if (!edited.firstChild) {
        edit(null);
      }
    } catch (error) {
      replace(said, complaint(error));
    }
  });
  return [card, below, edited];
}
