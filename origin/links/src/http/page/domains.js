// The domains: their hosts, defaults, pages and files.

import { ask, complaint, el, empty, field, replace, select, table, toast, working } from "../../ui/dom.js";
import { api } from "./api.js";
import { Part, parts, STATUSES, valueOf } from "./fields.js";

const PLACE = "#/domains";
const NEW = "new";

const yesOrNo = [["false", "No"], ["true", "Yes"]];

/** Shows all domains, or the form of the domain `id`, which may be new. */
export async function domains(desk, id) {
  const all = await api.domains();
  if (id === null) {
    return overview(desk, all);
  }
  const domain = all.domains.find((one) => one.id === id);
  if (!domain && id !== NEW) {
    throw new Error(`Domain ${id} is not known.`);
  }
  return editor(desk, domain ?? null, all.version);
}

function overview(desk, { domains }) {
  const row = (domain, index) => [
    el("a", { href: `${PLACE}/${domain.id}` }, domain.hosts[0] ?? domain.id), domain.hosts.slice(1).join(", "), el("code", {}, domain.id), index === 0 ? "Default of new links" : "",
  ];
  const make = desk.may("links:write") && el("a", { class: "button primary", href: `${PLACE}/${NEW}`, id: "new-domain" }, "New domain");
  return el(
    "section",
    { class: "card", "aria-label": "All domains" },
    el("div", { class: "row end" }, make),
    domains.length > 0 ? table("domains", ["Host", "Other hosts", "Id", ""], domains.map(row)) : empty("none", "No domains yet. Links need one."),
  );
}

const text = (name, title, hint, domain, props = {}) => {
  const control = el("input", { name, value: domain?.[name] ?? "", autocomplete: "off", spellcheck: "false", ...props });
  return new Part(name, field(title, control, hint), valueOf(control));
};

const number = (name, title, hint, domain, props) => {
  const control = el("input", { type: "number", name, value: domain?.[name] ?? "", ...props });
  return new Part(name, field(title, control, hint), valueOf(control, Number));
};

const choice = (name, title, options, domain, read = (value) => value) => {
  const control = select(options, domain?.[name] ?? options[0][0], { name });
  return new Part(name, field(title, control), valueOf(control, read));
};

const words = (name, title, hint, domain, props = {}) => {
  const control = el("textarea", { name, rows: 2, spellcheck: "false", ...props });
  control.value = (domain?.[name] ?? []).join(", ");
  return new Part(name, field(title, control, hint), valueOf(control, parts, []));
};

const page = (name, title, hint, domain) => {
  const control = el("textarea", { name, rows: 4, spellcheck: "false", maxlength: 65536 });
  control.value = domain?.[name] ?? "";
  return new Part(name, field(title, control, hint), () => (control.value === "" ? null : control.value));
};

const json = (name, title, hint, domain) => {
  const control = el("textarea", { name, rows: 4, spellcheck: "false" });
  control.value = domain?.[name] ? JSON.stringify(domain[name], null, 1) : "";
  const read = (source) => {
    try {
      return JSON.parse(source);
    } catch {
      throw new Error(`${title}: this is not JSON.`);
    }
  };
  return new Part(name, field(title, control, hint), valueOf(control, read));
};

function domainParts(domain) {
  const isTrue = (value) => value === "true";
  const own = "HTML. Empty: a plain page. Styles and pictures are allowed, scripts are not.";
  return [
    words("hosts", "Hosts", "Separated by commas. New links use the first.", domain, { required: true }),
    choice("scheme", "Link scheme", [["https", "https"], ["http", "http"]], domain),
    number("port", "Link port", "Empty: the scheme’s own.", domain, { min: 1, max: 65535 }),
    number("length", "Code length", "5 to 8. Empty: 7.", domain, { min: 5, max: 8 }),
    number("life_days", "Life in days", "New links expire after this long without a click. Empty: 30; 0: never.", domain, { min: 0, max: 3650 }),
    json("codes", "Code options", 'As JSON, each off unless true: {"trailing_slash": true, "ignore_case": true, "unicode": true, "segments": true}.', domain),
    json("life_days_by_length", "Life in days by code length", 'Of new links with generated codes, as JSON: {"5": 10}. Other lengths have the life above.', domain),
    choice("status", "Redirect", STATUSES, domain ?? { status: 302 }, Number),
    choice("pass_query", "Pass query strings", yesOrNo, domain, isTrue),
    text("home", "Home", "Redirect for /. Empty: not found.", domain, { type: "url" }),
    page("not_found_page", "Page for unknown codes (404)", own, domain),
    page("gone_page", "Page for expired links (410)", own, domain),
    page("unavailable_page", "Page for failed lookups (503)", own, domain),
    page("robots", "robots.txt", "Empty: all crawlers are allowed, so that links have previews.", domain),
    words("app_schemes", "App schemes", "In addition to http and https. Separated by commas.", domain),
    words("denied_hosts", "Denied hosts", "Also denies their subdomains. Separated by commas.", domain),
    choice("allow_private_targets", "Targets in private networks", yesOrNo, domain, isTrue),
    choice("homographs", "Imitated hosts", [["flag", "Accepted and flagged"], ["refuse", "Refused"]], domain),
    json("apple_app_site_association", "apple-app-site-association", "JSON. Empty: not served.", domain),
    json("assetlinks", "assetlinks.json", "JSON. Empty: not served.", domain),
  ];
}

function editor(desk, domain, version) {
  const name = el("input", { name: "id", required: true, pattern: "[a-z0-9\\-]{1,16}", autocomplete: "off", spellcheck: "false" });
  const all = domainParts(domain);
  const said = el("div", {});
  const button = el("button", { type: "submit", class: "primary", disabled: !desk.may("links:write") }, "Save domain");
  const save = working(button, said, async () => {
    const members = all.map((part) => [part.name, part.get()]).filter(([, value]) => value !== null);
    const id = domain?.id ?? name.value;
    await api.putDomain({ id, ...Object.fromEntries(members) }, version);
    location.hash = PLACE;
    return `Domain ${id} is saved.`;
  });
  const remove = async () => {
    if (!(await ask(`Delete domain ${domain.id}?`, `All links on ${domain.hosts.join(", ")} stop working.`, "Delete domain", "Keep domain", domain.id))) {
      return;
    }
    try {
      await api.removeDomain(domain, version);
      location.hash = PLACE;
      toast(`Domain ${domain.id} is deleted.`);
    } catch (error) {
      replace(said, complaint(error));
    }
  };
  return el(
    "form",
    { class: "card", id: "domain", onsubmit: save },
    el("a", { class: "back", href: PLACE }, "All domains"),
    said,
    el("div", { class: "grid" }, domain ? null : field("Id", name, "1 to 16 of a–z, 0–9 and -. Cannot change."), all.map((part) => part.element)),
    el(
      "div",
      { class: "row apart" },
      button,
      domain && desk.may("links:write") ? el("button", { type: "button", class: "danger", id: "delete-domain", onclick: remove }, "Delete") : null,
    ),
  );
}
