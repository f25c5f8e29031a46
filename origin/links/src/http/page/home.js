// The list of links, and the form that creates one.

import { complaint, copier, el, empty, field, replace, select, state as badge, table, working } from "../../ui/dom.js";
import { count, exactly, relative } from "../../ui/format.js";
import { api } from "./api.js";
import { changed, linkParts, offers } from "./fields.js";

const PAGE = 25;

/** The address of a link's view. */
export const place = (link) => `#/links/l/${link.domain}/${link.code}`;

export async function home(desk) {
  const [make, list] = await Promise.all([desk.may("links:write") && maker(), links()]);
  return [make, list];
}

async function maker() {
  const code = el("input", { name: "code", maxlength: 32, autocomplete: "off", spellcheck: "false" });
  const [{ domains }, offered] = await Promise.all([api.domains(), offers()]);
  const domain = select(domains.map(({ id, hosts }) => [id, `${hosts[0]} (${id})`]), domains[0]?.id, { name: "domain" });
  const [target, ...others] = linkParts(null, offered);
  const said = el("div", {});
  const button = el("button", { class: "primary", type: "submit" }, "Create link");
  const make = working(button, said, async () => {
    const made = await api.create({
      ...changed([target, ...others]),
      code: code.value || undefined,
      domain: domain.value,
    });
    location.hash = place(made);
    return `${made.url} is created.`;
  });
  const options = el(
    "details",
    {},
    el("summary", {}, "Options"),
    el(
      "div",
      { class: "grid" },
      field("Custom code", code, "3 to 32 letters, digits, - and _, and other characters that the domain allows. Empty: generated."),
      field("Domain", domain),
      others.map((part) => part.element),
    ),
  );
  return el(
    "form",
    { class: "card", onsubmit: make, id: "make" },
    el("h2", {}, "New link"),
    said,
    el("div", { class: "together" }, target.element, button),
    options,
  );
}

const HEADS = ["Link", "Target", "#Clicks", "Created", "State"];

/** A card with the links that match the search, the newest or the most clicked first, page by page. */
async function links() {
  const shown = table("links", HEADS, []);
  const rows = shown.querySelector("tbody");
  const said = el("div", {});
  const text = el("input", { type: "search", name: "q", autocomplete: "off", placeholder: "Code, address, title, tag" });
  const tag = el("input", { type: "search", name: "tag", autocomplete: "off", placeholder: "Only this tag" });
  const { folders } = await api.folders();
  const folder = select([["", "All"], ...folders.map(({ name, links }) => [name, `${name} (${count(links)})`])], "", { name: "folder" });
  const sort = select([["created", "Newest first"], ["clicks", "Most clicked first"], ["unclicked", "Only without clicks"]], "created", { name: "sort" });
  const more = el("button", { type: "button", class: "quiet", id: "more", hidden: true }, "More");
  let after;
  const load = async (isFirst) => {
    const query = { q: text.value.trim(), tag: tag.value.trim(), folder: folder.value || undefined, sort: sort.value };
    const page = await api.list({ ...query, after: isFirst ? undefined : after, limit: PAGE });
    if (isFirst) {
      rows.replaceChildren();
    }
    rows.append(...table("", HEADS, page.links.map(row)).querySelectorAll("tbody tr"));
    after = page.next;
    more.hidden = !after;
    shown.hidden = rows.children.length === 0;
    replace(said, shown.hidden && empty("none", nothing(query, after)));
  };
  const tell = (error) => replace(said, complaint(error));
  more.addEventListener("click", () => load(false).catch(tell));
  for (const control of [text, folder, tag, sort]) {
    control.addEventListener("change", () => load(true).catch(tell));
  }
  await load(true);
  return el(
    "section",
    { class: "card", "aria-label": "All links" },
    el("div", { class: "row apart" },
      el("div", { class: "row labelless" }, field("Search", text), folders.length > 0 && field("Folder", folder), field("Tag", tag), field("Order", sort)),
      el("div", { class: "row" },
        el("a", { class: "button", href: "#/links/stats" }, "Statistics"),
        el("a", { class: "button", href: "#/links/templates" }, "UTM templates"),
        el("a", { class: "button", href: "#/links/import" }, "Import or export"))),
    shown,
    said,
    el("div", { class: "row" }, more),
  );
}

/** The reason why a page is empty. One page of a search covers only some thousand links. */
function nothing(query, after) {
  if (after) {
    return "No match so far. Press More to search further.";
  }
  if (query.q) {
    return "No links match.";
  }
  return query.tag ? "No link has this tag." : "No links yet.";
}

const STATES = { active: ["Active", "good"], disabled: ["Disabled", "warn"], ended: ["Ended"], used_up: ["Used up"] };

/** A link's state as a coloured label. */
export const state = (link) => badge(...(STATES[link.state] ?? [link.state]));

function row(link) {
  const name = decodeURI(link.url.replace(/^https?:\/\//, ""));
  return [
    el("span", {}, el("span", { class: "row close" }, el("a", { href: place(link) }, link.title ?? name), copier(link.url)), link.title && el("span", { class: "cut hint" }, name)),
    el("span", {}, el("span", { class: "cut", title: link.target }, link.target.replace(/^https?:\/\//, "")), labels(link)),
    count(link.clicks),
    el("span", { class: "hint", title: exactly(link.created_at_ms) }, relative(link.created_at_ms)),
    state(link),
  ];
}

/** A link's folder and tags: each leads to its statistics. */
export function labels(link) {
  const of = (kind, name) => el("li", {}, el("a", { href: `#/links/stats?${new URLSearchParams({ [kind]: name })}` }, kind === "folder" ? `${name}/` : name));
  const all = [...(link.folder ? [of("folder", link.folder)] : []), ...(link.tags ?? []).map((tag) => of("tag", tag))];
  return all.length > 0 ? el("ul", { class: "tags" }, all) : null;
}
