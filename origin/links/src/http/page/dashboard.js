// The statistics of all links, or of those in a folder or with a tag, and the reports shared without a key.

import { breakdown, timeline } from "../../ui/charts.js";
import { complaint, el, field, replace, select, table } from "../../ui/dom.js";
import { count } from "../../ui/format.js";
import { api } from "./api.js";
import { names, word } from "./format.js";
import { place } from "./home.js";
import { shareCard } from "./share.js";
import { RANGES, range as rangeOf, tiles, zones } from "./stats.js";

const PARTS = { countries: "Countries", devices: "Devices", referrers: "Referrers", browsers: "Browsers", languages: "Languages" };

export async function dashboard(desk, query) {
  const [{ domains }, { folders }] = await Promise.all([api.domains(), api.folders()]);
  const asked = new URLSearchParams(query ?? "");
  const range = select(Object.entries(RANGES).map(([key, { text }]) => [key, text]), "30d", { name: "range" });
  const zone = zones();
  const domain = select([["", "All domains"], ...domains.map(({ id, hosts }) => [id, hosts[0] ?? id])], "", { name: "domain" });
  const folder = select([["", "All folders"], ...folders.map(({ name, links }) => [name, `${name} (${count(links)})`])], asked.get("folder") ?? "", { name: "folder" });
  const tag = el("input", { type: "search", name: "tag", autocomplete: "off", value: asked.get("tag") ?? "", placeholder: "Instead of a folder" });
  const subject = () => ({ domain: domain.value || undefined, folder: tag.value.trim() ? undefined : folder.value || undefined, tag: tag.value.trim() || undefined });
  const body = el("div", { id: "stats", "aria-busy": "true" });
  let turn = 0;
  const load = async () => {
    turn += 1;
    const mine = turn;
    body.setAttribute("aria-busy", "true");
    try {
      const wanted = rangeOf(range.value, zone.control.value);
      const stats = await api.groupStats({ ...subject(), ...wanted });
      // An earlier request may be answered later.
      if (mine === turn) {
        replace(body, shown(stats, names(wanted.by, wanted.tz)));
      }
    } catch (error) {
      replace(body, complaint(error));
    }
    body.setAttribute("aria-busy", String(mine !== turn));
  };
  for (const control of [range, zone.control, domain, folder, tag]) {
    control.addEventListener("change", load);
  }
  load();
  return [
    el("p", {}, el("a", { class: "back", href: "#/links" }, "All links")),
    el("section", { class: "card", "aria-label": "Statistics" },
      el("div", { class: "row labelless" }, field("Range", range), field("Time zone", zone.control), zone.list, field("Domain", domain), field("Folder", folder), field("Tag", tag)),
      body),
    await shareCard(desk, subject),
  ];
}

function shown(stats, times) {
  const part = ([name, title]) => breakdown(title, stats[name], (value) => word(name === "countries" ? "regions" : name, value));
  const row = (link) => [
    el("span", {}, el("a", { href: place(link) }, link.title ?? link.url.replace(/^https?:\/\//, "")), link.title && el("span", { class: "cut hint" }, link.url.replace(/^https?:\/\//, ""))),
    el("span", { class: "cut", title: link.target }, link.target?.replace(/^https?:\/\//, "") ?? "Hidden by a password"),
    count(link.clicks),
  ];
  return [
    stats.partial && el("p", { class: "notice warn" }, "Only the 5,000 newest links are included."),
    tiles(stats),
    timeline(stats.series, stats.by, times),
    el("h3", {}, "Top links"),
    stats.links.length > 0 ? table("top-links", ["Link", "Target", "#Clicks"], stats.links.map(row)) : el("p", { class: "hint" }, "No data yet."),
    el("div", { class: "breakdowns" }, Object.entries(PARTS).map(part)),
  ];
}
