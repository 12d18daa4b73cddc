/** Times in the reader's time zone, with exact local and UTC times on hover. */

import { formatAge } from "./durations";

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const PAUSE_MS = 5000;

/** Shows every `<time>` below a node in the reader's time zone. */
export function showTimes(root: ParentNode): void {
  for (const element of root.querySelectorAll<HTMLTimeElement>("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    element.title = `${exact.format(at)} (${at.toISOString()})`;
    write(element, "relative" in element.dataset ? ago(at) : exact.format(at));
  }
}

/** Keeps relative times up to date while the page is visible. */
export function updateTimes(root: Document): void {
  const update = (): void => {
    if (root.hidden) return;
    for (const element of root.querySelectorAll<HTMLTimeElement>("time[data-relative]")) {
      const at = new Date(element.dateTime);
      if (!Number.isNaN(at.getTime())) write(element, ago(at));
    }
  };
  setInterval(update, PAUSE_MS);
  root.addEventListener("visibilitychange", update);
}

/** Unchanged text is left alone, so that a selection survives. */
function write(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

function ago(at: Date): string {
  return `${formatAge(Math.max(0, (Date.now() - at.getTime()) / 1000))} ago`;
}
