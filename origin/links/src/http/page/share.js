// Reports that people read without a key: the form that shares one, and the list to revoke them.

import { ask, button, complaint, copier, el, empty, field, replace, select, table, working } from "../../ui/dom.js";
import { DAY_MS, HERE, plural, relative } from "../../ui/format.js";
import { api } from "./api.js";

/** The card that shares a report about `subject()`, the members of the API, and lists the shared ones. */
export async function shareCard(desk, subject) {
  const [said, made, list] = [el("div", {}), el("div", { id: "shared", "aria-live": "polite" }), el("div", {})];
  const mayChange = desk.may("links:write");
  const load = async () => {
    try {
      const { reports } = await api.reports();
      replace(list, reports.length > 0 ? table("reports", ["Title", "About", "Ends", "~Action"], reports.map(row)) : empty("no-reports", "No shared reports."));
    } catch (error) {
      replace(list, complaint(error));
    }
  };
  const revoke = async (report) => {
    if (!(await ask(`Revoke “${report.title}”?`, "Its address stops working at once.", "Revoke report", "Keep report"))) {
      return null;
    }
    await api.revoke(report.id);
    await load();
    return "The report is revoked.";
  };
  const row = (report) => [
    report.title,
    `${about(report)}, ${plural(report.days, "day")}`,
    report.expires_at_ms ? relative(report.expires_at_ms) : "Never",
    mayChange && button("Revoke", { class: "danger small", "data-report": report.title }, said, () => revoke(report)),
  ];
  await load();
  return el("section", { class: "card", id: "share", "aria-label": "Shared reports" },
    el("h2", {}, "Shared reports"),
    said,
    mayChange && form(subject, said, made, load),
    made,
    list);
}

function form(subject, said, made, load) {
  const title = el("input", { name: "report-title", required: true, maxlength: 200, autocomplete: "off" });
  const days = select([[7, "Last 7 days"], [30, "Last 30 days"], [90, "Last 90 days"]], 30, { name: "report-days" });
  const ends = select([["", "Never"], [7, "In 7 days"], [30, "In 30 days"], [365, "In a year"]], 30, { name: "report-ends" });
  const submit = el("button", { type: "submit", class: "primary" }, "Share report");
  const share = working(submit, said, async () => {
    const { path } = await api.share({
      ...subject(),
      title: title.value,
      days: Number(days.value),
      tz: HERE,
      expires_at_ms: ends.value ? Date.now() + Number(ends.value) * DAY_MS : undefined,
    });
    const text = el("code", { id: "report-path" }, path);
    replace(made, el("p", { class: "notice good" }, "Path on your gateway: ", text, " ", copier(path, () => text), " Copy it now. You won’t see it again."));
    await load();
    return "The report is shared.";
  });
  return el("form", { id: "share-form", onsubmit: share },
    el("p", { class: "hint" }, "Anyone with its address can read the numbers shown here, without a key. Targets behind a password stay hidden."),
    el("div", { class: "grid" }, field("Title", title), field("Range", days), field("Ends", ends)),
    el("div", { class: "row" }, submit));
}

function about(report) {
  if (report.code) {
    return `Link ${report.code}`;
  }
  const label = report.folder ? `Folder ${report.folder}` : report.tag ? `Tag ${report.tag}` : "All links";
  return report.domain ? `${label} of ${report.domain}` : label;
}
