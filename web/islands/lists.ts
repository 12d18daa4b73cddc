/** Lists of builds go on by themselves as long as a build on them may, and somebody looks at them. */

import { part, said } from "./fetching";
import { showTimes } from "./times";

const PAUSE_MS = 5000;

/** Fetches what changed, again and again, until every build that is shown is over. */
async function keepFresh(root: HTMLElement): Promise<void> {
  while (root.dataset["open"] === "true") {
    await new Promise((done) => setTimeout(done, PAUSE_MS));
    await visible();
    // Where the server did not answer, the next round asks again.
    await refresh(root).catch(() => undefined);
  }
}

async function visible(): Promise<void> {
  while (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}

async function refresh(root: HTMLElement): Promise<void> {
  const fresh = await part(root.dataset["fresh"] ?? "");
  showTimes(fresh);
  for (const found of fresh.querySelectorAll<HTMLElement>("[data-part]")) {
    const old = document.querySelector<HTMLElement>(`[data-part="${found.dataset["part"]}"]`);
    if (old) update(old, found);
  }
  root.dataset["open"] = fresh.querySelector<HTMLElement>("[data-open]")?.dataset["open"] ?? "false";
}

/** Row by row where both have rows; what has none is replaced as a whole. */
function update(old: HTMLElement, fresh: HTMLElement): void {
  const [rows, to] = [old.querySelector("[data-rows]"), fresh.querySelector("[data-rows]")];
  if (rows && to) updateRows(rows, to);
  else if (said(old) !== said(fresh) && !isUsed(old)) old.replaceChildren(...fresh.childNodes);
  showTimes(old);
}

/** While somebody is in the list each row stays where it is and only says what is new of its build. */
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

/** Puts a row in place of another; a link in it that has the focus keeps it. */
function put(old: Element, fresh: Element | undefined): void {
  if (!fresh || said(old) === said(fresh) || isChosen(old)) return;
  const focused = old.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : undefined;
  if (fresh instanceof HTMLElement) keepHeight(fresh, old.getBoundingClientRect().height);
  old.replaceWith(fresh);
  const again = [...fresh.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused);
  again?.focus({ preventScroll: true });
}

/** What says less than before does not pull up what is below it. */
function keepHeight(row: HTMLElement, pixels: number): void {
  row.style.setProperty(row.tagName === "TR" ? "height" : "min-height", `${pixels}px`);
}

function key(row: Element): string | null {
  return row.getAttribute("data-row");
}

/** Whether somebody points at it, is in it with the keyboard, or chose text in it. */
function isUsed(element: Element): boolean {
  return element.matches(":hover") || element.contains(document.activeElement) || isChosen(element);
}

function isChosen(element: Element): boolean {
  const choice = document.getSelection();
  return choice !== null && !choice.isCollapsed && element.contains(choice.anchorNode);
}

for (const root of document.querySelectorAll<HTMLElement>("[data-fresh]")) void keepFresh(root);
