/** The log of a build: its parts change without the page being loaded, and it goes on while the build runs. */

import { enableCopying } from "./copying";
import { part } from "./fetching";
import { Lines } from "./lines";

/** The panel of a log. The server renders it; its attributes say what it shows. */
export class LogPanel {
  private lines: Lines | null = null;
  private wants = true;

  constructor(private readonly section: HTMLElement) {
    document.addEventListener("click", (event) => this.clicked(event));
    section.addEventListener("submit", (event) => this.searched(event));
    addEventListener("popstate", () => void this.go(location.href, false));
    addEventListener("resize", () => {
      if (this.follows && this.wants) this.lines?.toEnd();
    });
    this.settle(location.hash);
  }

  /** Whether new lines belong below those that are shown. */
  get follows(): boolean {
    return this.section.dataset["follows"] === "true";
  }

  /** Whether it shows another attempt than the latest because nobody asked for a certain one. */
  isBehind(attempt: string | undefined): boolean {
    return this.section.dataset["latest"] === "true" && this.section.dataset["attempt"] !== attempt;
  }

  /** Adds the lines that came since. */
  async more(): Promise<void> {
    for (let later = this.follows; later; ) {
      if (!this.lines || this.lines.isFull) return;
      const { rows, seen } = this.section.dataset;
      const found = (await part(`${rows}&after=${seen}`)).querySelector("ol");
      if (!found || this.section.dataset["rows"] !== rows) return;
      this.lines.append([...found.children], this.wants);
      this.section.dataset["seen"] = found.dataset["seen"];
      this.count(found.dataset["last"] ?? "");
      later = found.dataset["later"] === "true";
    }
  }

  /** Shows the same part again, as it is now; who reads its end goes on reading there. */
  async again(): Promise<void> {
    const atEnd = this.wants && (this.lines?.isAtEnd ?? true);
    await this.go(location.href, false);
    if (atEnd) this.lines?.toEnd();
  }

  /** Shows another part, named by the address of the page that shows it. */
  async go(address: string, push = true): Promise<void> {
    const target = new URL(address, location.href);
    const fresh = (await part(`${this.section.dataset["log"]}${target.search}`)).firstElementChild;
    if (!(fresh instanceof HTMLElement)) return;
    const focus = this.focused();
    for (const [name, value] of Object.entries(fresh.dataset)) this.section.dataset[name] = value;
    this.section.replaceChildren(...fresh.childNodes);
    enableCopying(this.section);
    if (push) history.pushState(null, "", target.hash ? target : (fresh.dataset["address"] ?? target));
    this.settle(target.hash);
    this.refocus(focus);
  }

  /** After each change of the part: what is to be seen of it, and the button that follows. */
  private settle(hash: string): void {
    this.lines = Lines.within(this.section);
    this.wants = true;
    this.place(hash);
    const button = this.section.querySelector<HTMLButtonElement>(".follow");
    if (!button) return;
    button.hidden = false;
    button.addEventListener("click", () => this.press(button, !this.wants));
    this.lines?.onScroll((isAtEnd) => this.press(button, isAtEnd, false));
  }

  private place(hash: string): void {
    const { at, error, open } = this.section.dataset;
    const sought = at ? `L${at}` : hash.slice(1) || (open === "false" && error ? `L${error}` : "");
    const line = /^L\d+$/.test(sought) ? document.getElementById(sought) : null;
    if (line && this.section.contains(line)) this.lines?.show(line);
    else if (!new URL(this.section.dataset["address"] ?? "", location.href).searchParams.has("after")) this.lines?.toEnd();
  }

  private press(button: HTMLButtonElement, wants: boolean, scroll = true): void {
    this.wants = wants;
    button.setAttribute("aria-pressed", String(wants));
    if (!wants) return;
    if (scroll) this.lines?.toEnd();
    void this.more();
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
    const typed = new FormData(form);
    const next = form.querySelector<HTMLAnchorElement>('[data-step="next"]');
    const shown = new URL(this.section.dataset["address"] ?? "", location.href).searchParams.get("q");
    if (next && typed.get("q") === shown) return this.visit(next.href);
    const target = new URL(form.action);
    target.hash = "";
    for (const [name, value] of typed) target.searchParams.set(name, String(value));
    this.visit(target.href);
  }

  /** Goes there without loading the page; where that fails, the page says why. */
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
