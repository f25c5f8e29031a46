// One link: its QR code, its statistics, and its editable members.

import { api } from "./api.js";
import { announce, ask, el, outward, replace } from "./dom.js";
import { changed, linkParts } from "./fields.js";
import { count, life, time } from "./format.js";
import { labels, state } from "./home.js";
import { complaint, working } from "./notice.js";
import { qrCard } from "./qr.js";
import { statsCard } from "./stats.js";

const ACTIONS = { create: "Created", edit: "Edited", disable: "Disabled", enable: "Enabled", delete: "Deleted" };

/** The warning for a target whose host the origin has flagged. */
const FLAGS = "This host mixes alphabets and may imitate another host. Check it before you share it.";

export async function detail(name) {
  const link = await api.link(name);
  const view = el("div", { class: "detail" });
  const show = (shown) => replace(view, head(shown, show), columns(shown, show));
  show(link);
  return view;
}

function columns(link, show) {
  return el(
    "div",
    { class: "columns" },
    el("div", { class: "wide" }, statsCard(link), editor(link, show)),
    el("div", { class: "narrow" }, qrCard(link), past(link)),
  );
}

/** Name, target and state, with the most important actions. */
function head(link, show) {
  const said = el("div", {});
  const toggle = el("button", { type: "button", id: "toggle" }, link.disabled ? "Enable" : "Disable");
  const flip = working(toggle, said, async () => {
    show(await api.edit(link, { disabled: !link.disabled }));
    announce(link.disabled ? "Enabled" : "Disabled");
    document.getElementById("toggle")?.focus();
  });
  toggle.addEventListener("click", flip);
  const remove = async () => {
    const text = `${link.url} will stop working, and its statistics are deleted.`;
    if (!(await ask("Delete this link?", text, "Delete"))) {
      return;
    }
    try {
      await api.remove(link);
      location.hash = "#/";
    } catch (error) {
      replace(said, complaint(error));
    }
  };
  return el(
    "header",
    { class: "card head" },
    el("a", { class: "back", href: "#/" }, "All links"),
    el(
      "div",
      { class: "row apart" },
      el("h1", { id: "name" }, outward(link.url, { id: "url" }), copier(link.url)),
      el(
        "div",
        { class: "row" },
        toggle,
        el("button", { type: "button", class: "danger", id: "delete", onclick: remove }, "Delete"),
      ),
    ),
    el("p", { class: "leads" }, "Target: ", outward(link.target, { id: "target" })),
    el("div", { class: "row facts" }, state(link), facts(link), labels(link)),
    link.flag ? el("p", { class: "notice bad" }, FLAGS) : null,
    said,
  );
}

function facts(link) {
  const said = [`created ${time(link.created_at_ms)}`];
  if (link.life_ms) {
    said.push(`expires ${life(link.life_ms)} after its last click`);
  }
  if (link.ends_at_ms) {
    said.push(`expires ${time(link.ends_at_ms)} at the latest`);
  }
  if (link.max_clicks) {
    said.push(`${count(link.clicks_left)} of ${count(link.max_clicks)} clicks left`);
  }
  if (link.protected) {
    said.push("password required");
  }
  return el("span", { class: "hint" }, said.join(" · "));
}

function copier(text) {
  const button = el("button", { type: "button", class: "quiet small", id: "copy" }, "Copy");
  const done = (word) => {
    button.textContent = word;
    announce(word);
    setTimeout(() => {
      button.textContent = "Copy";
    }, 2000);
  };
  button.addEventListener("click", async () => {
    try {
      // Available only on pages over HTTPS or from localhost.
      await navigator.clipboard.writeText(text);
      done("Copied");
    } catch {
      getSelection().selectAllChildren(document.getElementById("url"));
      done("Press Ctrl+C");
    }
  });
  return button;
}

function editor(link, show) {
  const all = linkParts(link);
  const said = el("div", {});
  const button = el("button", { type: "submit", class: "primary" }, "Save");
  const save = working(button, said, async () => {
    show(await api.edit(link, changed(all)));
    announce("Saved");
  });
  return el(
    "form",
    { class: "card", id: "edit", onsubmit: save },
    el("h2", {}, "Edit"),
    said,
    el("div", { class: "grid" }, all.map((part) => part.element)),
    el("div", { class: "row" }, button),
  );
}

/** The history of changes, loaded when it is opened. */
function past(link) {
  const list = el("ol", { class: "past" });
  const details = el("details", { class: "card" }, el("summary", {}, el("h2", {}, "History")), list);
  details.addEventListener("toggle", async () => {
    if (!details.open) {
      return;
    }
    try {
      const { history } = await api.history(link);
      const entry = (change) =>
        el(
          "li",
          {},
          el("strong", {}, ACTIONS[change.what] ?? change.what),
          " ",
          el("time", {}, time(change.at_ms)),
          el("p", { class: "hint" }, change.target),
        );
      replace(list, history.map(entry));
    } catch (error) {
      replace(list, complaint(error));
    }
  });
  return details;
}
