// Templates of UTM parameters.

import { ask, button, el, empty, field, refresh, table, working } from "../../ui/dom.js";
import { api } from "./api.js";
import { UTM } from "./fields.js";

export async function templates(desk) {
  const [said, list] = [el("div", {}), el("div", {})];
  const mayChange = desk.may("links:write");
  const load = async () => {
    const found = (await api.templates()).templates;
    const rows = found.map(({ name, utm }) => [name, ...UTM.map((part) => utm[part] ?? "–"), mayChange && remover(name)]);
    refresh(list, found.length > 0 ? table("templates", ["Name", ...UTM.map(titled), "~Action"], rows, found.map(({ name }) => name)) : empty("none", "No templates yet."));
  };
  const remover = (name) => button("Delete", { class: "danger small", "data-template": name }, said, async () => {
    if (!(await ask(`Delete “${name}”?`, "Links keep their parameters.", "Delete template", "Keep template"))) {
      return null;
    }
    await api.removeTemplate(name);
    await load();
    return "The template is deleted.";
  });
  await load();
  return [
    el("p", {}, el("a", { class: "back", href: "#/links" }, "All links")),
    mayChange && maker(load),
    el("section", { class: "card", "aria-label": "UTM templates" }, said, list),
  ];
}

const titled = (part) => part[0].toUpperCase() + part.slice(1);

function maker(load) {
  const said = el("div", {});
  const name = el("input", { name: "name", required: true, maxlength: 64, autocomplete: "off" });
  const controls = UTM.map((part) => el("input", { name: part, maxlength: 128, autocomplete: "off" }));
  const submit = el("button", { type: "submit", class: "primary" }, "Save template");
  const save = working(submit, said, async () => {
    const filled = UTM.map((part, at) => [part, controls[at].value.trim()]).filter(([, value]) => value !== "");
    await api.putTemplate(name.value.trim(), Object.fromEntries(filled));
    await load();
    return "The template is saved.";
  });
  return el("form", { class: "card", id: "template", onsubmit: save },
    el("h2", {}, "UTM template"),
    said,
    el("div", { class: "grid" }, field("Name", name, "An existing name is replaced."), UTM.map((part, at) => field(titled(part), controls[at]))),
    el("div", { class: "row" }, submit));
}
