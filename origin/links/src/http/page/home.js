// The list of links, and the form that creates one.

import { api } from "./api.js";
import { el, field, replace, select } from "./dom.js";
import { changed, linkParts } from "./fields.js";
import { count, time } from "./format.js";
import { complaint, working } from "./notice.js";

const PAGE = 25;

/** The address of a link's view. */
export const place = (link) => `#/l/${link.domain}/${link.code}`;

export async function home() {
  const [make, list] = await Promise.all([maker(), links()]);
  return [el("h1", { class: "unseen" }, "Links"), make, list];
}

async function maker() {
  const code = el("input", { name: "code", maxlength: 32, autocomplete: "off", spellcheck: "false" });
  const { domains } = await api.domains();
  const domain = select(domains.map(({ id, hosts }) => [id, `${id} (${hosts[0]})`]), domains[0]?.id, { name: "domain" });
  const [target, ...others] = linkParts();
  const said = el("div", {});
  const button = el("button", { class: "primary", type: "submit" }, "Shorten");
  const make = working(button, said, async () => {
    const made = await api.create({
      ...changed([target, ...others]),
      code: code.value || undefined,
      domain: domain.value,
    });
    location.hash = place(made);
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
    { class: "card maker", onsubmit: make, id: "make" },
    el("h2", {}, "New link"),
    said,
    el("div", { class: "together" }, target.element, button),
    options,
  );
}

/** A card with the links that match the search, the newest or the most clicked first, page by page. */
async function links() {
  const rows = el("tbody", {});
  const said = el("div", {});
  const text = el("input", { type: "search", name: "q", autocomplete: "off", placeholder: "Code, address, tag" });
  const tag = el("input", { type: "search", name: "tag", autocomplete: "off", placeholder: "Only this tag" });
  const sort = select([["created", "Newest first"], ["clicks", "Most clicked first"]], "created", { name: "sort" });
  const more = el("button", { type: "button", class: "quiet", hidden: true }, "More");
  let after;
  const load = async (isFirst) => {
    const wanted = { q: text.value.trim(), tag: tag.value.trim(), sort: sort.value };
    const page = await api.list({ ...wanted, after: isFirst ? undefined : after, limit: PAGE });
    if (isFirst) {
      rows.replaceChildren();
    }
    rows.append(...page.links.map(row));
    after = page.next;
    more.hidden = !after;
    const hasNone = rows.children.length === 0;
    replace(said, hasNone && el("p", { class: "hint", id: "none" }, nothing(wanted, after)));
  };
  const tell = (error) => replace(said, complaint(error));
  more.addEventListener("click", () => load(false).catch(tell));
  for (const control of [text, tag, sort]) {
    control.addEventListener("change", () => load(true).catch(tell));
  }
  await load(true);
  const heads = ["Link", "Target", "Clicks", "Created", "State"];
  return el(
    "section",
    { class: "card" },
    el("div", { class: "row apart" }, el("h2", {}, "Links"), el("div", { class: "row labelless" }, field("Search", text), field("Tag", tag), field("Order", sort))),
    el(
      "table",
      { class: "links", id: "links" },
      el("thead", {}, el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text)))),
      rows,
    ),
    said,
    el("div", { class: "row" }, more),
  );
}

/** The reason why a page is empty. One page of a search covers only some thousand links. */
function nothing(wanted, after) {
  if (after) {
    return "Not found yet. Press More to continue the search.";
  }
  if (wanted.q) {
    return "No matching links.";
  }
  return wanted.tag ? "No link has this tag." : "No links yet.";
}

const STATES = { active: "Active", disabled: "Disabled", ended: "Ended", used_up: "Used up" };

/** A link's state as a coloured label. */
export function state(link) {
  return el("span", { class: `state ${link.state === "active" ? "on" : "off"}` }, STATES[link.state] ?? link.state);
}

function row(link) {
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, el("a", { href: place(link) }, decodeURI(link.url.replace(/^https?:\/\//, "")))),
    el("td", { class: "target" }, el("span", { title: link.target }, link.target), labels(link)),
    el("td", { class: "when" }, count(link.clicks)),
    el("td", { class: "when" }, time(link.created_at_ms)),
    el("td", {}, state(link)),
  );
}

/** A link's tags. */
export function labels(link) {
  return link.tags?.length ? el("ul", { class: "tags" }, link.tags.map((tag) => el("li", {}, tag))) : null;
}
