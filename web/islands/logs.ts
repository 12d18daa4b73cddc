/** The log of a build: navigation without page loads, and live lines while the build runs. */

import { enableCopyButtons } from "./copy-buttons";
import { fetchPart } from "./page-parts";
import { Lines } from "./lines";

/** The panel of a log. The server renders it and describes it in data attributes. */
export class LogPanel {
  private lines: Lines | null = null;
  private following = true;

  constructor(private readonly section: HTMLElement) {
    document.addEventListener("click", (event) => this.clicked(event));
    section.addEventListener("submit", (event) => this.searched(event));
    addEventListener("popstate", () => void this.go(location.href, false));
    addEventListener("resize", () => {
      if (this.follows && this.following) this.lines?.toEnd();
    });
    this.setUp(location.hash);
  }

  /** Whether new lines are appended. */
  get follows(): boolean {
    return this.section.dataset["follows"] === "true";
  }

  /** Whether it should show the latest attempt but shows an earlier one. */
  isBehind(attempt: string | undefined): boolean {
    return this.section.dataset["latest"] === "true" && this.section.dataset["attempt"] !== attempt;
  }

  /** Appends new lines. */
  async appendNew(): Promise<void> {
    for (let later = this.follows; later; ) {
      const { lines } = this;
      if (!lines || lines.isFull) return;
      const { rows, seen } = this.section.dataset;
      const found = (await fetchPart(`${rows}&after=${seen}`)).querySelector("ol");
      // Meanwhile the reader may have gone to another window, whose lines these do not continue.
      if (!found || this.lines !== lines) return;
      lines.append([...found.children], this.following);
      this.section.dataset["seen"] = found.dataset["seen"];
      this.count(found.dataset["last"] ?? "");
      later = found.dataset["later"] === "true";
    }
  }

  /** Reloads the current window, staying at the end if it was shown. */
  async reload(): Promise<void> {
    const atEnd = this.following && (this.lines?.isAtEnd ?? true);
    await this.go(location.href, false);
    if (atEnd) this.lines?.toEnd();
  }

  /** Shows the window of a page's URL. */
  async go(address: string, push = true): Promise<void> {
    const target = new URL(address, location.href);
    const fresh = (await fetchPart(`${this.section.dataset["log"]}${target.search}`)).firstElementChild;
    if (!(fresh instanceof HTMLElement)) return;
    const focus = this.focused();
    for (const [name, value] of Object.entries(fresh.dataset)) this.section.dataset[name] = value;
    this.section.replaceChildren(...fresh.childNodes);
    enableCopyButtons(this.section);
    if (push) history.pushState(null, "", target.hash ? target : (fresh.dataset["address"] ?? target));
    this.setUp(target.hash);
    this.refocus(focus);
  }

  /** Sets up the window after each change: scroll position and the Follow button. */
  private setUp(hash: string): void {
    this.lines = Lines.within(this.section);
    this.following = true;
    this.scroll(hash);
    const button = this.section.querySelector<HTMLButtonElement>(".follow");
    if (!button) return;
    button.hidden = false;
    button.addEventListener("click", () => this.press(button, !this.following));
    this.lines?.onScroll((isAtEnd) => this.press(button, isAtEnd, false));
  }

  private scroll(hash: string): void {
    const { at, error, open } = this.section.dataset;
    const anchor = at ? `L${at}` : hash.slice(1) || (open === "false" && error ? `L${error}` : "");
    const line = /^L\d+$/.test(anchor) ? document.getElementById(anchor) : null;
    if (line && this.section.contains(line)) this.lines?.show(line);
    else if (!new URL(this.section.dataset["address"] ?? "", location.href).searchParams.has("after")) this.lines?.toEnd();
  }

  private press(button: HTMLButtonElement, following: boolean, scroll = true): void {
    this.following = following;
    button.setAttribute("aria-pressed", String(following));
    if (!following) return;
    if (scroll) this.lines?.toEnd();
    void this.appendNew();
  }

  private count(last: string): void {
    const shown = this.section.querySelector(".count");
    if (shown && last) shown.textContent = `${Number(last).toLocaleString("en")} line${last === "1" ? "" : "s"}`;
  }

  private clicked(event: MouseEvent): void {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const line = link.parentElement;
    if (link.hasAttribute("data-panel")) {
      event.preventDefault();
      this.visit(link.href);
    } else if (line?.matches(".lines li")) {
      event.preventDefault();
      this.lines?.mark(line);
      history.pushState(null, "", link.href);
    }
  }

  private searched(event: SubmitEvent): void {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || form.role !== "search") return;
    event.preventDefault();
    const data = new FormData(form);
    const next = form.querySelector<HTMLAnchorElement>('[data-step="next"]');
    const shown = new URL(this.section.dataset["address"] ?? "", location.href).searchParams.get("q");
    if (next && data.get("q") === shown) return this.visit(next.href);
    const target = new URL(form.action);
    target.hash = "";
    for (const [name, value] of data) target.searchParams.set(name, String(value));
    this.visit(target.href);
  }

  /** Navigates without loading the page; if that fails, loads it, which shows the error. */
  private visit(address: string): void {
    this.go(address).catch(() => location.assign(address));
  }

  private focused(): string | null {
    const active = document.activeElement;
    if (!active || !this.section.contains(active)) return null;
    const step = active.getAttribute("data-step");
    return step ? `[data-step="${step}"]` : active.id ? `#${active.id}` : ".lines";
  }

  private refocus(selector: string | null): void {
    if (!selector) return;
    const found = this.section.querySelector<HTMLElement>(selector) ?? this.section.querySelector<HTMLElement>(".lines");
    found?.focus({ preventScroll: true });
  }
}
