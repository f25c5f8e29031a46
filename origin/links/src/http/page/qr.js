// A link's QR code and its downloads.

import { complaint, el, field, replace, save, select } from "../../ui/dom.js";
import { api } from "./api.js";

const LEVELS = [
  ["L", "L: recovers 7 %"],
  ["M", "M: 15 %"],
  ["Q", "Q: 25 %"],
  ["H", "H: 30 %"],
];

/** The luminance of a colour, by WCAG. */
function luminance(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const value = parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one, other) {
  const [less, more] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (more + 0.05) / (less + 0.05);
}

export function qrCard(link) {
  const frame = el("div", { class: "qr" });
  const level = select(LEVELS, "M", { name: "level" });
  const size = el("input", { type: "number", min: 64, max: 2048, value: 512, name: "size" });
  const margin = el("input", { type: "number", min: 0, max: 16, value: 4, name: "margin" });
  const dark = el("input", { type: "color", value: "#000000", name: "dark" });
  const light = el("input", { type: "color", value: "#ffffff", name: "light" });
  const logo = el("input", { type: "file", accept: "image/png", name: "logo" });
  const style = () => ({
    level: level.value,
    size: size.value,
    margin: margin.value,
    dark: dark.value.slice(1),
    light: light.value.slice(1),
  });
  const weak = el("p", { class: "notice warn", hidden: true }, "The two colours are too near to each other for many cameras.");
  let shown;
  const draw = async () => {
    weak.hidden = contrast(dark.value, light.value) >= 3;
    try {
      const blob = await api.qr(link, "svg", style(), logo.files[0]);
      URL.revokeObjectURL(shown);
      shown = URL.createObjectURL(blob);
      replace(frame, el("img", { src: shown, alt: `QR code of ${link.url}`, id: "qr" }));
    } catch (error) {
      replace(frame, complaint(error));
    }
  };
  const download = (kind) => async () => {
    try {
      save(await api.qr(link, kind, style(), logo.files[0]), `${link.domain}-${link.code.replaceAll("/", "-")}.${kind}`);
    } catch (error) {
      replace(frame, complaint(error));
    }
  };
  const button = (kind) => el("button", { type: "button", onclick: download(kind) }, kind.toUpperCase());
  draw();
  return el(
    "section",
    { class: "card" },
    el("h2", {}, "QR code"),
    frame,
    weak,
    el("div", { class: "row center" }, button("svg"), button("png")),
    el(
      "details",
      { onchange: draw },
      el("summary", {}, "Style"),
      el(
        "div",
        { class: "grid" },
        field("Error correction", level),
        field("Size in pixels", size),
        field("Margin in modules", margin),
        field("Dark", dark),
        field("Light", light),
        field("Logo in the middle", logo, "A PNG of up to 256 KiB. The code then uses level H."),
      ),
    ),
  );
}
