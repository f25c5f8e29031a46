// The controls for the members of a link, new or existing.

import { el, field, select } from "../../ui/dom.js";
import { DAY_MS, atMinute, clock, count, minute } from "../../ui/format.js";
import { api } from "./api.js";

export const STATUSES = [
  [301, "301, permanent"],
  [302, "302, temporary"],
  [307, "307, temporary, keeps the method"],
  [308, "308, permanent, keeps the method"],
];

/** The names of UTM parameters, without `utm_`. */
export const UTM = ["source", "medium", "campaign", "term", "content"];

const PLATFORMS = ["ios", "android", "wechat", "mobile", "tablet", "desktop", "any"];

const LIFE_HINTS = {
  isNew: "The link expires after this long without a click. Empty: the domain’s default; 0: never.",
  isOld: "The link expires after this long without a click. Empty: never.",
};

/** The distinct parts of a text, separated by commas. */
export function parts(text) {
  const all = text.split(",").map((part) => part.trim());
  return [...new Set(all.filter((part) => part !== ""))];
}

/** Returns a reader of an input's value for the API: `empty` if the input is empty. */
export const valueOf = (control, read = (text) => text, empty = null) => () => {
  const text = control.value.trim();
  return text === "" ? empty : read(text);
};

/** A part of a form: its element and its member of the API. */
export class Part {
  constructor(name, element, get) {
    this.name = name;
    this.element = element;
    this.get = get;
    this.before = JSON.stringify(get());
  }

  isChanged() {
    return JSON.stringify(this.get()) !== this.before;
  }
}

/** The changed members. */
export function changed(all) {
  return Object.fromEntries(all.filter((part) => part.isChanged()).map((part) => [part.name, part.get()]));
}

/** What a form offers: UTM templates and folders. */
export async function offers() {
  const [{ templates }, { folders }] = await Promise.all([api.templates(), api.folders()]);
  return { templates, folders: folders.map(({ name }) => name) };
}

/** The parts of a link's form; without `link`, of a new link. */
export function linkParts(link, { templates, folders }) {
  return [target(link), ...labels(link, folders), utm(link, templates), conversion(link), life(link), clicks(link), end(link), status(link), query(link), language(link), password(link), ended(link), preview(link), apps(link), rules(link)];
}

function target(link) {
  const control = el("input", {
    type: "url",
    name: "target",
    required: true,
    maxlength: 2048,
    value: link?.target ?? "",
    placeholder: "https://example.com/a/long/address",
    autocomplete: "off",
  });
  return new Part("target", field("Target address", control), valueOf(control));
}

/** UTM parameters in the target's query. The controls show the existing ones. */
function utm(link, templates) {
  const names = UTM;
  const known = new URLSearchParams(/\?([^#]*)/.exec(link?.target ?? "")?.[1] ?? "");
  const controls = names.map((name) => el("input", { name: `utm-${name}`, maxlength: 128, autocomplete: "off", value: known.get(`utm_${name}`) ?? "" }));
  const title = (name) => name[0].toUpperCase() + name.slice(1);
  const chosen = select([["", "None"], ...templates.map(({ name }) => [name, name])], "", { name: "utm-template" });
  chosen.addEventListener("change", () => {
    const values = templates.find(({ name }) => name === chosen.value)?.utm ?? {};
    names.forEach((name, n) => { controls[n].value = values[name] ?? controls[n].value; });
  });
  const element = el(
    "fieldset",
    { class: "part full", id: "utm" },
    el("legend", {}, "UTM parameters"),
    el("p", { class: "hint" }, "Added to the target’s query. To remove one, change the target address."),
    templates.length > 0 && field("Template", chosen),
    el("div", { class: "grid" }, names.map((name, n) => field(title(name), controls[n]))),
  );
  const get = () => Object.fromEntries(names.map((name, n) => [name, controls[n].value.trim()]).filter(([, value]) => value !== ""));
  return new Part("utm", element, get);
}

function conversion(link) {
  const options = [["false", "No"], ["true", "Yes: pass click ids to the target"]];
  const control = select(options, String(link?.conversion ?? false), { name: "conversion" });
  return new Part("conversion", field("Conversion tracking", control), () => control.value === "true");
}

function life(link) {
  const control = el("input", { type: "number", name: "days", min: 0, max: 3650, step: "any" });
  if (link?.life_ms) {
    control.value = link.life_ms / DAY_MS;
  }
  const hint = link ? LIFE_HINTS.isOld : LIFE_HINTS.isNew;
  const get = valueOf(control, (text) => Math.round(Number(text) * DAY_MS), link ? 0 : null);
  return new Part("life_ms", field("Life in days", control, hint), get);
}

function clicks(link) {
  const control = el("input", { type: "number", name: "clicks", min: 1, max: 1e12, value: link?.max_clicks ?? "" });
  const left = link?.max_clicks ? ` ${count(link.clicks_left)} left.` : "";
  const hint = `The link expires after this many clicks. Empty: no limit.${left}`;
  return new Part("max_clicks", field("Click limit", control, hint), valueOf(control, Number));
}

function end(link) {
  const control = el("input", { type: "datetime-local", name: "end", value: link?.ends_at_ms ? minute(link.ends_at_ms) : "" });
  const hint = "The link expires then, even if it is used. Empty: never.";
  return new Part("expires_at_ms", field(`Expires (${clock.name()})`, control, hint), valueOf(control, atMinute));
}

function status(link) {
  const options = link ? STATUSES : [["", "The domain’s default"], ...STATUSES];
  const control = select(options, link?.status ?? "", { name: "status" });
  return new Part("status", field("Redirect", control), valueOf(control, Number));
}

function query(link) {
  const options = [["true", "Passed to the target"], ["false", "Dropped"]];
  const control = select(link ? options : [["", "The domain’s default"], ...options], link?.pass_query ?? "", { name: "query" });
  return new Part("pass_query", field("Visitors’ query string", control), valueOf(control, (text) => text === "true"));
}

function language(link) {
  const control = el("input", { name: "language", value: link?.language ?? "", autocomplete: "off", placeholder: "en, zh-TW" });
  const hint = "The language of the target. Rules for other languages send visitors elsewhere.";
  return new Part("language", field("Language", control, hint), valueOf(control));
}

/** What a team notes about a link. Visitors never see it. */
function labels(link, folders) {
  const text = (name, props = {}) => el("input", { name, value: link?.[name] ?? "", autocomplete: "off", ...props });
  const title = text("title", { maxlength: 200 });
  const folder = text("folder", { maxlength: 63, list: "folders" });
  const id = text("external_id", { maxlength: 63 });
  const note = el("textarea", { name: "note", maxlength: 2000, rows: 2 }, link?.note ?? "");
  const tags = el("input", { name: "tags", value: (link?.tags ?? []).join(", "), autocomplete: "off" });
  const list = el("datalist", { id: "folders" }, folders.map((value) => el("option", { value })));
  const folded = el("div", {}, field("Folder", folder, "Such as a campaign. A new name creates a folder."), list);
  return [
    new Part("title", field("Title", title, "For your team. Visitors never see it."), valueOf(title)),
    new Part("folder", folded, valueOf(folder)),
    new Part("tags", field("Tags", tags, "Separated by commas."), valueOf(tags, parts, [])),
    new Part("external_id", field("External ID", id, "The ID in another system."), valueOf(id)),
    new Part("note", field("Note", note), valueOf(note)),
  ];
}

/** An existing password is never shown. A checkbox removes it. */
function password(link) {
  const control = el("input", { type: "password", name: "password", maxlength: 128, autocomplete: "new-password" });
  if (!link?.protected) {
    return new Part("password", field("Password", control, "Visitors must enter it before the redirect. Empty: not protected."), valueOf(control));
  }
  const drop = el("input", { type: "checkbox", name: "no-password" });
  const element = el(
    "div",
    {},
    field("New password", control, "A password is set. Empty: keep it."),
    el("label", { class: "choice" }, drop, "Remove password"),
  );
  return new Part("password", element, () => (drop.checked ? null : control.value || undefined));
}

function ended(link) {
  const control = el("input", { type: "url", name: "ended", maxlength: 2048, value: link?.ended_target ?? "", autocomplete: "off" });
  const hint = "Where visitors go after the link has expired. Empty: the domain’s page.";
  return new Part("ended_target", field("Expired-link URL", control, hint), valueOf(control));
}

function preview(link) {
  const shown = link?.preview ?? {};
  const title = el("input", { name: "preview-title", value: shown.title ?? "", autocomplete: "off" });
  const text = el("input", { name: "preview-text", value: shown.text ?? "", autocomplete: "off" });
  const image = el("input", { type: "url", name: "preview-image", value: shown.image ?? "", autocomplete: "off" });
  const element = el(
    "fieldset",
    { class: "part full", id: "preview" },
    el("legend", {}, "Preview"),
    el("p", { class: "hint" }, "Shown in chats and social networks. Without a title: the target’s own preview."),
    el("div", { class: "grid" }, field("Title", title), field("Text", text), field("Picture", image)),
  );
  const get = () => {
    const [heading, words, picture] = [title, text, image].map((control) => control.value.trim());
    return heading === "" ? null : { title: heading, text: words || undefined, image: picture || undefined };
  };
  return new Part("preview", element, get);
}

/** Parameters as a query string, and back. */
const written = (query) => new URLSearchParams((query ?? []).map(({ name, value }) => [name, value ?? "*"])).toString();
const parameters = (text) => [...new URLSearchParams(text)].map(([name, value]) => (value === "*" ? { name } : { name, value }));

function apps(link) {
  const row = (app) => {
    const platform = select(PLATFORMS.map((one) => [one, one]), app.platform ?? "any", { name: "app-platform" });
    const url = el("input", { name: "app-url", required: true, value: app.url ?? "", placeholder: "myapp://page" });
    const fallback = el("input", { type: "url", name: "app-fallback", value: app.fallback ?? "" });
    return {
      controls: [
        field("On", platform),
        field("Opens", url),
        field("Without the app", fallback, "Empty: the target."),
      ],
      get: () => ({ platform: platform.value, url: url.value.trim(), fallback: fallback.value.trim() || undefined }),
    };
  };
  return list("apps", "Apps", "Opens the first app that matches the visitor’s device.", link?.apps ?? [], row);
}

function rules(link) {
  const row = (rule) => {
    const chosen = rule.platforms ?? [];
    const boxes = PLATFORMS.map((one) => el("input", { type: "checkbox", name: "rule-platform", value: one, checked: chosen.includes(one) }));
    const languages = el("input", { name: "rule-languages", value: (rule.languages ?? []).join(", "), placeholder: "zh-TW, zh" });
    const lands = el("input", { name: "rule-countries", value: (rule.countries ?? []).join(", "), placeholder: "DE, AT" });
    const query = el("input", { name: "rule-query", value: written(rule.query), placeholder: "ref=mail&x=*" });
    const percent = el("input", { type: "number", name: "rule-percent", min: 1, max: 99, value: rule.percent ?? "" });
    const address = el("input", { name: "rule-target", required: true, value: rule.target ?? "" });
    return {
      controls: [
        el(
          "fieldset",
          { class: "choices" },
          el("legend", {}, "On"),
          boxes.map((box) => el("label", {}, box, box.value)),
          el("p", { class: "hint" }, "None selected: everywhere."),
        ),
        field("In languages", languages, "Separated by commas. Empty: all."),
        field("In countries", lands, "Two letters each, separated by commas. Empty: all."),
        field("With the query", query, "All of these parameters; * matches any value. Empty: any query."),
        field("Percentage of visitors", percent, "Empty: all matching visitors."),
        field("Target", address),
      ],
      get: () => ({
        platforms: boxes.filter((box) => box.checked).map((box) => box.value),
        languages: parts(languages.value),
        countries: parts(lands.value),
        query: parameters(query.value.trim()),
        percent: percent.value === "" ? undefined : Number(percent.value),
        target: address.value.trim(),
      }),
    };
  };
  return list("rules", "Rules", "Other targets for some visitors. The first matching rule applies.", link?.rules ?? [], row);
}

/** An editable list: add, remove and move items. */
function list(name, title, hint, items, row) {
  const rows = el("ol", { class: "rows" });
  const held = new Map();
  const add = (item) => {
    const { controls, get } = row(item);
    const line = el("li", {});
    const remove = () => {
      held.delete(line);
      line.remove();
    };
    const up = () => line.previousElementSibling?.before(line);
    line.append(
      ...controls,
      el(
        "div",
        { class: "row" },
        el("button", { type: "button", class: "quiet small", onclick: up }, "Up"),
        el("button", { type: "button", class: "danger small", onclick: remove }, "Remove"),
      ),
    );
    held.set(line, get);
    rows.append(line);
  };
  items.forEach(add);
  const one = title.slice(0, -1).toLowerCase();
  const element = el(
    "fieldset",
    { class: "part full", id: `${name}-list` },
    el("legend", {}, title),
    el("p", { class: "hint" }, hint),
    rows,
    el("button", { type: "button", class: "quiet", name: `add-${name}`, onclick: () => add({}) }, `Add ${one === "app" ? "an" : "a"} ${one}`),
  );
  return new Part(name, element, () => [...rows.children].map((line) => held.get(line)()));
}
