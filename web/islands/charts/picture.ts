/** Pictures of charts, as PNG files. */

import { colour } from "./chart";

const FONT = "system-ui, sans-serif";
const MARGIN = 8;

/** Saves a section's charts with their titles, as they are laid out. */
export function savePicture(section: HTMLElement, name: string): void {
  const unit = devicePixelRatio;
  const frame = section.getBoundingClientRect();
  const plots = [...section.querySelectorAll<HTMLElement>(".plot")].filter((plot) => plot.querySelector("canvas"));
  const bottom = Math.max(...plots.map((plot) => plot.getBoundingClientRect().bottom)) - frame.top + MARGIN;
  const canvas = Object.assign(document.createElement("canvas"), { width: frame.width * unit, height: bottom * unit });
  const ctx = canvas.getContext("2d");
  if (!ctx) return;
  ctx.scale(unit, unit);
  ctx.fillStyle = colour("ground");
  ctx.fillRect(0, 0, frame.width, bottom);
  for (const plot of plots) {
    const image = plot.querySelector("canvas");
    const { left, top, width, height } = plot.getBoundingClientRect();
    if (image) ctx.drawImage(image, left - frame.left, top - frame.top, width, height);
  }
  for (const title of section.querySelectorAll<HTMLElement>("h2, .latest:has(.plot) .target, .latest:has(.plot) .now")) {
    const { left, top, width, height } = title.getBoundingClientRect();
    ctx.save();
    ctx.beginPath();
    ctx.rect(left - frame.left, top - frame.top, width, height);
    ctx.clip();
    ctx.font = `${title.tagName === "H2" ? "600 16px" : "13px"} ${FONT}`;
    ctx.fillStyle = colour("text");
    ctx.textBaseline = "middle";
    ctx.fillText(title.innerText.replace(/\s+/g, " "), left - frame.left, top - frame.top + height / 2);
    ctx.restore();
  }
  canvas.toBlob((blob) => {
    if (!blob) return;
    const href = URL.createObjectURL(blob);
    Object.assign(document.createElement("a"), { href, download: `${name}.png` }).click();
    URL.revokeObjectURL(href);
  });
}
