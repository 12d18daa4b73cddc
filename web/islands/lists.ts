/** Live updates of lists while the page is visible: often while a listed build is open, else now and then. */

import { fetchPart, signature } from "./page-parts";
import { showTimes } from "./times";

const PAUSE_MS = 5000;
const LONG_PAUSE_MS = 15_000;

async function keepFresh(root: HTMLElement): Promise<void> {
  for (;;) {
    const pause = root.dataset["open"] === "true" ? PAUSE_MS : LONG_PAUSE_MS;
    await new Promise((done) => setTimeout(done, pause));
    await visible();
    // If the server does not answer, the next round retries.
    await refresh(root).catch(() => undefined);
  }
}

async function visible(): Promise<void> {
  while (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}

async function refresh(root: HTMLElement): Promise<void> {
  const fresh = await fetchPart(root.dataset["fresh"] ?? "");
  showTimes(fresh);
  const parts = [...document.querySelectorAll<HTMLElement>("[data-part]")];
  const isRead = parts.some(isUsed);
  for (const found of fresh.querySelectorAll<HTMLElement>("[data-part]")) {
    const old = parts.find((part) => part.dataset["part"] === found.dataset["part"]);
    if (old) update(old, found, isRead);
  }
  root.dataset["open"] = fresh.querySelector<HTMLElement>("[data-open]")?.dataset["open"] ?? "false";
}

/** Updates row by row if both have rows, otherwise as a whole, unless that would move what is being read. */
function update(old: HTMLElement, fresh: HTMLElement, isRead: boolean): void {
  const [rows, to] = [old.querySelector("[data-rows]"), fresh.querySelector("[data-rows]")];
  if (rows && to) updateRows(rows, to);
  else if (signature(old) !== signature(fresh) && !isRead) old.replaceChildren(...fresh.childNodes);
  showTimes(old);
}

/** While the reader uses the list, rows keep their places and only their content changes. */
function updateRows(rows: Element, fresh: Element): void {
  const [old, to] = [[...rows.children], [...fresh.children]];
  if (isUsed(rows)) {
    for (const row of old) put(row, to.find((item) => key(item) === key(row)));
    return;
  }
  for (const [place, row] of to.entries()) {
    if (old[place]) put(old[place], row);
    else rows.append(row);
  }
  for (const row of old.slice(to.length)) row.remove();
}

/** Replaces a row, keeping the focus of its links. */
function put(old: Element, fresh: Element | undefined): void {
  if (!fresh || signature(old) === signature(fresh) || hasSelection(old)) return;
  const focused = old.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : undefined;
  if (fresh instanceof HTMLElement) keepHeight(fresh, old.getBoundingClientRect().height);
  old.replaceWith(fresh);
  const link = [...fresh.querySelectorAll("a")].find((item) => item.getAttribute("href") === focused);
  link?.focus({ preventScroll: true });
}

/** Keeps a row's height, so that nothing below it moves. */
function keepHeight(row: HTMLElement, pixels: number): void {
  row.style.setProperty(row.tagName === "TR" ? "height" : "min-height", `${pixels}px`);
}

function key(row: Element): string | null {
  return row.getAttribute("data-row");
}

/** Whether the reader points at it, has the focus in it or selected its text. */
function isUsed(element: Element): boolean {
  return element.matches(":hover") || element.contains(document.activeElement) || hasSelection(element);
}

function hasSelection(element: Element): boolean {
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed && element.contains(selection.anchorNode);
}

for (const root of document.querySelectorAll<HTMLElement>("[data-fresh]")) void keepFresh(root);
