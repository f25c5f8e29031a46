// One link: its statistics, its editable members, its QR code and its history.

import { ask, complaint, copier, el, outward, replace, tabs, toast, working } from "../../ui/dom.js";
import { count, time } from "../../ui/format.js";
import { api } from "./api.js";
import { changed, linkParts, offers } from "./fields.js";
import { life } from "./format.js";
import { labels, place, state } from "./home.js";
import { qrCard } from "./qr.js";
import { shareCard } from "./share.js";
import { statsCard } from "./stats.js";

const ACTIONS = { create: "Created", edit: "Edited", disable: "Disabled", enable: "Enabled", delete: "Deleted" };

/** The warning for a target whose host the origin has flagged. */
const FLAGS = "This host mixes alphabets and may imitate another host. Check it before you share it.";

export async function detail(desk, name, tab) {
  const [found, offered] = await Promise.all([api.link(name), offers()]);
  const top = el("div", {});
  const edit = el("div", {});
  const show = (link) => {
    replace(top, head(desk, link, show));
    replace(edit, editor(desk, link, offered, show));
  };
  show(found);
  return [
    el("p", {}, el("a", { class: "back", href: "#/links" }, "All links")),
    top,
    ...tabs((id) => (id ? `${place(found)}?${id}` : place(found)), [
      ["stats", "Statistics", statsCard(found)],
      ["edit", "Edit", edit],
      ["qr", "QR code", qrCard(found)],
      ["share", "Share", await shareCard(desk, () => ({ domain: found.domain, code: found.code }))],
      ["history", "History", past(found)],
    ], tab),
  ];
}

/** Name, target and state, with the most important actions. */
function head(desk, link, show) {
  const said = el("div", {});
  const toggle = el("button", { type: "button", id: "toggle" }, link.disabled ? "Enable" : "Disable");
  const flip = working(toggle, said, async () => {
    if (!link.disabled && !(await ask(`Disable ${link.url}?`, "Visitors then get an error page. You can enable it again.", "Disable link", "Keep link"))) {
      return null;
    }
    show(await api.edit(link, { disabled: !link.disabled }));
    document.getElementById("toggle")?.focus();
    return link.disabled ? "The link works again." : "The link is disabled.";
  });
  toggle.addEventListener("click", flip);
  const remove = async () => {
    const text = `${link.url} will stop working, and its statistics are deleted.`;
    if (!(await ask("Delete this link?", text, "Delete link", "Keep link"))) {
      return;
    }
    try {
      await api.remove(link);
      location.hash = "#/links";
      toast(`${link.url} is deleted.`);
    } catch (error) {
      replace(said, complaint(error));
    }
  };
  const address = outward(link.url, { id: "url" });
  const mayChange = desk.may("links:write");
  return el(
    "header",
    { class: "card head" },
    el(
      "div",
      { class: "row apart" },
      el("h2", { class: "row", id: "name" }, address, copier(link.url, () => address)),
      mayChange && el(
        "div",
        { class: "row" },
        toggle,
        el("button", { type: "button", class: "danger", id: "delete", onclick: remove }, "Delete"),
      ),
    ),
    link.title && el("p", { id: "title" }, el("strong", {}, link.title)),
    link.note && el("p", { class: "hint", id: "note" }, link.note),
    el("p", { class: "cut" }, "Target: ", outward(link.target, { id: "target" })),
    el("div", { class: "row members" }, state(link), facts(link), labels(link)),
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

function editor(desk, link, offered, show) {
  if (!desk.may("links:write")) {
    return el("p", { class: "hint" }, "Your key cannot change links.");
  }
  const all = linkParts(link, offered);
  all[0].element.classList.add("full");
  const said = el("div", {});
  const button = el("button", { type: "submit", class: "primary" }, "Save link");
  const save = working(button, said, async () => {
    show(await api.edit(link, changed(all)));
    return "Saved.";
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
  const card = el("section", { class: "card", "aria-label": "History" }, list);
  const load = async () => {
    try {
      const { history } = await api.history(link);
      const entry = (change) =>
        el("li", {}, el("strong", {}, ACTIONS[change.what] ?? change.what), " ", el("time", {}, time(change.at_ms)), el("p", { class: "hint" }, change.target));
      replace(list, history.map(entry));
    } catch (error) {
      replace(list, el("li", {}, complaint(error)));
    }
  };
  card.addEventListener("opened", load);
  return card;
}
