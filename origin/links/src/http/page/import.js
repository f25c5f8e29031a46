// Imports links from a file: an export of Weir or of another shortener. Sends it in parts to show the progress.

import { announce, button, el, field, replace, select, working } from "../../ui/dom.js";
import { count } from "../../ui/format.js";
import { address } from "../../ui/session.js";
import { api } from "./api.js";

const FORMATS = [
  ["csv", "Weir, CSV"], ["ndjson", "Weir, NDJSON"],
  ["bitly", "Bitly"], ["dub", "Dub"], ["shlink", "Shlink"], ["yourls", "YOURLS"],
];

/** Maximum rows of a part: some seconds of work for an origin. */
const ROWS = 500;

/** Maximum characters of a part, unless a single row is longer. */
const LENGTH = 2_000_000;

/** Maximum of refused rows to show. */
const SHOWN = 200;

/** The offset and the line of each row. In a table, line breaks within quotes do not end a row. */
function places(text, isTable) {
  const found = [];
  let [start, line, begun, isQuoted] = [0, 1, 1, false];
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    isQuoted = isTable && character === '"' ? !isQuoted : isQuoted;
    if (character !== "\n") {
      continue;
    }
    line += 1;
    if (!isQuoted) {
      found.push({ start, line: begun });
      [start, begun] = [at + 1, line];
    }
  }
  if (start < text.length) {
    found.push({ start, line: begun });
  }
  return found;
}

/** Splits a file into parts of whole rows, each with the column names. */
export function parts(text, format) {
  const isTable = format !== "ndjson";
  const all = places(text, isTable);
  const head = isTable && all.length > 0 ? text.slice(0, all[1]?.start ?? text.length) : "";
  const rows = isTable ? all.slice(1) : all;
  const cut = [];
  for (let from = 0; from < rows.length; ) {
    let to = from + 1;
    const end = (n) => rows[n]?.start ?? text.length;
    while (to < rows.length && to - from < ROWS && end(to + 1) - rows[from].start <= LENGTH) {
      to += 1;
    }
    cut.push({ text: head + text.slice(rows[from].start, end(to)), firstLine: rows[from].line, rows: to - from });
    from = to;
  }
  return cut;
}

/** What an import found so far, in words. */
function summary(sum, isDry) {
  const verb = isDry ? "would be created" : "created";
  return `${count(sum.rows)} rows: ${count(sum.created)} ${verb}, ${count(sum.present)} already exist, ${count(sum.refused.length)} refused.`;
}

/** Shows the progress of an import, and what it refused. */
function progress(rows, isDry) {
  const bar = el("progress", { max: Math.max(1, rows), value: 0, "aria-label": "Rows read" });
  const [text, list, next] = [el("p", {}), el("ol", { class: "past", id: "refused" }), el("div", {})];
  const show = (sum, again = null) => {
    const isOver = again !== null;
    bar.value = sum.rows;
    bar.hidden = isOver;
    const ignored = sum.ignored.length > 0 ? ` Ignored columns: ${sum.ignored.join(", ")}.` : "";
    const done = isDry ? "Checked; nothing was created yet." : "Done.";
    text.textContent = `${summary(sum, isDry)} ${isOver ? done + ignored : "…"}`;
    replace(list, sum.refused.slice(0, SHOWN).map(({ line, code, detail }) => el("li", {}, `Line ${line}${code ? `, ${code}` : ""}: ${detail}`)));
    replace(next, isOver && isDry && sum.created > 0 && again);
  };
  return { element: [bar, text, next, list], show };
}

export async function importer(desk) {
  const { domains } = await api.domains();
  const file = el("input", { type: "file", name: "file", required: true, accept: ".csv,.ndjson,.jsonl,.json,.txt,text/*" });
  const format = select(FORMATS, "csv", { name: "format" });
  const domain = select([["", "From the file, or the first"], ...domains.map(({ id, hosts }) => [id, hosts[0] ?? id])], "", { name: "domain" });
  const tag = el("input", { name: "tag", autocomplete: "off" });
  const dry = el("input", { type: "checkbox", name: "dry", checked: true });
  const [said, report] = [el("div", {}), el("div", { id: "report", class: "stack", "aria-live": "polite" })];
  const submit = el("button", { type: "submit", class: "primary" }, "Check file");
  dry.addEventListener("change", () => { submit.textContent = dry.checked ? "Check file" : "Import"; });
  const run = async (isDry) => {
    const text = await file.files[0].text();
    const all = parts(text.replace(/^\uFEFF/, ""), format.value);
    const sum = { rows: 0, created: 0, present: 0, refused: [], ignored: [] };
    const shown = progress(all.reduce((rows, part) => rows + part.rows, 0), isDry);
    replace(report, shown.element);
    shown.show(sum);
    // An empty file has no parts. Send it anyway, so that the origin reports the error.
    for (const part of all.length > 0 ? all : [{ text, firstLine: 2, rows: 0 }]) {
      const query = { format: format.value, domain: domain.value, tag: tag.value.trim(), dry_run: isDry, first_line: part.firstLine };
      const done = await api.take(query, part.text);
      sum.rows += done.rows;
      sum.created += done.created;
      sum.present += done.present;
      sum.refused.push(...done.refused);
      sum.ignored = done.ignored_columns;
      shown.show(sum);
    }
    shown.show(sum, button(`Import these ${count(sum.created)}`, { class: "primary", id: "import-these" }, said, () => run(false)));
    announce("Done");
    return null;
  };
  return [
    el("p", {}, el("a", { class: "back", href: "#/links" }, "All links")),
    desk.may("links:write") && el(
      "form",
      { class: "card", id: "import", onsubmit: working(submit, said, () => run(dry.checked)) },
      el("p", { class: "hint" }, "Links keep their codes. You can import the same file again, for example after an interruption. A link with two names counts twice."),
      said,
      el(
        "div",
        { class: "grid" },
        field("File", file),
        field("Format", format),
        field("Domain", domain, "For links on unknown hosts."),
        field("Tag (optional)", tag, "Added to every link."),
      ),
      el("label", { class: "choice" }, dry, "Dry run"),
      el("div", { class: "row" }, submit),
      report,
    ),
    el(
      "section",
      { class: "card", id: "export", "aria-labelledby": "export-title" },
      el("h2", { id: "export-title" }, "Export"),
      el("p", {}, "Export: all links as ", el("a", { href: address("links.csv"), download: "links.csv" }, "CSV"), " or ",
        el("a", { href: address("links.ndjson"), download: "links.ndjson" }, "NDJSON"), ". You can import both here."),
    ),
  ];
}
