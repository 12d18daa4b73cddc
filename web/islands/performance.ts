/** Charts of a model's figures: drawn over the server's SVG, with points that say more, zoom and comparisons. */

import { addressOf, mirror, question, withQuery } from "./charts/asking";
import { onColours, palette, type Palette } from "./charts/colours";
import { draw, type Drawing, type Page } from "./charts/drawing";
import type { Pick } from "./charts/layers";
import { Picks } from "./charts/picking";
import type { Look } from "./charts/placing";
import { type Chart, fetchChart } from "./charts/points";
import { Tip, under } from "./charts/tips";
import { Walker } from "./charts/walking";
import { part } from "./fetching";
import { showTimes } from "./times";

const SOON = "400px";
/** Between the ends of a zoomed range in the address; a range may begin below zero. */
const BETWEEN = "~";
/** Milliseconds within which changes of one field are one step back. */
const ONE_STEP = 2000;
const KEYS = "Arrow keys go from point to point, Enter chooses one to compare.";

/** A chart that is drawn, and what lies over it. */
interface Shown {
  readonly drawing: Drawing;
  readonly tip: Tip;
  readonly walker: Walker;
  readonly host: HTMLElement;
  readonly whole: HTMLElement;
  readonly stopped: AbortController;
}

/** The page's charts, and what they share. What they show is what the address says, always. */
class Charts implements Page {
  look: Look = lookOf(location.search);
  colours: Palette = palette();
  private readonly shown = new Map<Element, Shown>();
  private readonly picks: Picks;
  private readonly watcher: IntersectionObserver;
  private asked = question(location.href);
  private asking: AbortController | undefined;
  private field: EventTarget | null = null;
  private last: { field: EventTarget | null; at: number } = { field: null, at: 0 };

  constructor(
    private readonly root: HTMLElement,
    bar: HTMLElement,
    private readonly form: HTMLFormElement,
  ) {
    this.picks = new Picks(bar, (one, other) => this.between(one, other), () => this.update());
    this.picks.follow(root);
    this.picks.take(new URLSearchParams(location.search).getAll("point"));
    this.watcher = new IntersectionObserver((entries) => this.sighted(entries), { rootMargin: SOON });
    this.listen();
    this.prepare();
  }

  get picked(): readonly Pick[] {
    return this.picks.all;
  }

  zoom(range: [number, number] | undefined): void {
    this.look.zoom = range;
    for (const { tip } of this.shown.values()) tip.hide();
    this.update("push");
  }

  private listen(): void {
    this.form.addEventListener("change", ({ target }) => this.form.checkValidity() && this.ask(target));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault(); // it is sent only where all of it is valid
      this.ask(this.form);
    });
    addEventListener("popstate", () => void this.follow(new URL(location.href)));
    addEventListener("pageshow", ({ persisted }) => persisted && location.reload()); // the form may say something else
    onColours(() => {
      this.colours = palette();
      for (const { drawing } of this.shown.values()) drawing.refresh();
    });
  }

  /** Shows what the form asks for: another address, and what belongs to it. */
  private ask(field: EventTarget | null): void {
    this.field = field;
    const again = field === this.last.field && Date.now() - this.last.at < ONE_STEP;
    void this.follow(addressOf(this.form), again ? "replace" : "push");
  }

  /** Shows what an address says, and writes it where the reader's choice made it: then, so that both always agree. */
  private async follow(address: URL, how?: "push" | "replace"): Promise<void> {
    this.asking?.abort();
    this.root.removeAttribute("aria-busy");
    if (question(address.href) === this.asked) return this.take(address, how);
    this.asking = new AbortController();
    const { signal } = this.asking;
    this.root.setAttribute("aria-busy", "true");
    this.tell("");
    try {
      const fresh = await part(address.href, signal);
      if (signal.aborted) return;
      this.take(address, how);
      this.swap(fresh);
    } catch {
      // The server's own page says what is wrong with an address; one step back is this page again.
      if (!signal.aborted) how ? location.assign(address) : location.reload();
    }
  }

  private take(address: URL, how?: "push" | "replace"): void {
    if (how && address.href !== location.href) {
      history[`${how}State`](null, "", address);
      this.last = { field: this.field, at: Date.now() };
    }
    this.look = lookOf(address.search);
    this.picks.take(address.searchParams.getAll("point"));
    if (question(address.href) === this.asked) this.refresh();
  }

  /** Takes over the charts of another page; those that it has too are drawn over, so that nothing flickers. */
  private swap(fresh: DocumentFragment): void {
    const form = fresh.querySelector<HTMLFormElement>("[data-options]");
    const root = fresh.querySelector<HTMLElement>("[data-charts]");
    if (!form || !root) return location.reload();
    this.asked = question(location.href);
    mirror(form, this.form);
    const focused = document.activeElement; // what is moved loses it
    const before = new Map(sections(this.root).map((section) => [section.dataset["key"], section]));
    for (const section of sections(root)) {
      const same = before.get(section.dataset["key"]);
      if (same) this.keep(same, section);
    }
    this.root.replaceChildren(...root.children);
    this.root.removeAttribute("aria-busy");
    if (focused instanceof HTMLElement && this.root.contains(focused)) focused.focus({ preventScroll: true });
    for (const plot of this.shown.keys()) if (!plot.isConnected) this.stop(plot);
    showTimes(this.root);
    this.picks.take(new URLSearchParams(location.search).getAll("point"));
    this.prepare();
    const count = sections(this.root).length;
    this.tell(count ? `${count} ${count === 1 ? "chart" : "charts"} updated.` : (this.root.querySelector(".empty")?.textContent ?? ""));
  }

  /** Says what happened to who does not see it. */
  private tell(words: string): void {
    const place = document.querySelector("[data-told]");
    if (place) place.textContent = words.trim();
  }

  /** Puts the canvas of a chart into its new section, and leaves its table open. */
  private keep(from: HTMLElement, to: HTMLElement): void {
    const [old, fresh] = [from, to].map((section) => section.querySelector<HTMLElement>("[data-chart]"));
    const [table, other] = [from, to].map((section) => section.querySelector("details"));
    if (table && other) other.open = table.open;
    const kept = old && this.shown.get(old);
    if (!old || !fresh || !kept) return;
    kept.tip.hide();
    old.className = fresh.className;
    Object.assign(old.dataset, { points: fresh.dataset["points"], unit: fresh.dataset["unit"] });
    const [drawn, drawing] = [old, fresh].map((plot) => plot.querySelector<HTMLElement>(".drawn"));
    if (drawn && drawing) drawn.replaceChildren(...drawing.children);
    fresh.replaceWith(old);
  }

  /** Shows what only scripts can do, and draws charts as soon as they are nearly in sight. */
  private prepare(): void {
    for (const hint of this.root.querySelectorAll<HTMLElement>(".with-script")) hint.hidden = false;
    this.watcher.disconnect();
    for (const plot of this.root.querySelectorAll<HTMLElement>("[data-chart]")) this.watcher.observe(plot);
  }

  private sighted(entries: readonly IntersectionObserverEntry[]): void {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting || !(target instanceof HTMLElement)) continue;
      this.watcher.unobserve(target);
      void this.show(target);
    }
  }

  private async show(plot: HTMLElement): Promise<void> {
    const points = plot.dataset["points"] ?? "";
    const chart = await fetchChart(new URL(points, location.href).href, plot.dataset["unit"] ?? "").catch(() => undefined);
    const drawn = plot.querySelector<HTMLElement>(".drawn");
    if (!drawn || points !== plot.dataset["points"]) return;
    const there = this.shown.get(plot);
    if (!chart) return this.leave(plot, drawn);
    const said = drawn.querySelector("svg")?.getAttribute("aria-label") ?? "";
    const began = performance.now();
    if (there) there.drawing.take(chart);
    else this.shown.set(plot, this.drawOver(plot, drawn, chart));
    there?.walker.forget();
    this.shown.get(plot)?.host.setAttribute("aria-label", `${said} ${KEYS}`);
    queueMicrotask(() => (plot.dataset["drawnMs"] = (performance.now() - began).toFixed(1)));
  }

  /** Leaves the server's drawing where there are no points. */
  private leave(plot: HTMLElement, drawn: HTMLElement): void {
    drawn.hidden = false;
    this.stop(plot);
  }

  /** Takes away what was drawn over a plot, and what listened there. */
  private stop(plot: Element): void {
    const there = this.shown.get(plot);
    if (!there) return;
    there.stopped.abort();
    there.drawing.stop();
    there.tip.stop();
    there.host.remove();
    there.whole.remove();
    this.shown.delete(plot);
  }

  private drawOver(plot: HTMLElement, drawn: HTMLElement, chart: Chart): Shown {
    const host = Object.assign(document.createElement("div"), { className: "canvas", tabIndex: 0 });
    host.setAttribute("role", "application");
    host.setAttribute("aria-roledescription", "chart");
    plot.prepend(host);
    drawn.hidden = true;
    const drawing = draw(chart, host, this);
    const addresses = {
      versions: this.root.dataset["versions"] ?? "",
      compare: (before: number, after: number, target: string) =>
        this.between({ number: before, target }, { number: after, target }),
    };
    const tip = new Tip(drawing, addresses, plot);
    const whole = this.wayOut(plot);
    const shown = { drawing, host, tip, whole, walker: new Walker(() => drawing), stopped: new AbortController() };
    this.point(plot, shown);
    this.walk(shown);
    return shown;
  }

  private wayOut(plot: HTMLElement): HTMLElement {
    const whole = Object.assign(document.createElement("button"), {
      type: "button",
      className: "see-all quiet",
      textContent: "See all",
      hidden: !this.look.zoom,
    });
    whole.addEventListener("click", () => this.zoom(undefined));
    plot.append(whole);
    return whole;
  }

  private point(plot: HTMLElement, { drawing, tip, stopped: { signal } }: Shown): void {
    plot.addEventListener("mousemove", (event) => tip.hover(at(event, drawing)), { signal });
    plot.addEventListener("mouseleave", () => tip.hover(undefined), { signal });
    const clicked = (event: MouseEvent): void => {
      if (!(event.target instanceof HTMLElement) || event.target.closest(".tip, .see-all")) return;
      const found = at(event, drawing);
      if (!found) return tip.hide();
      tip.pin(found);
      this.choose(drawing, found.line, found.index);
    };
    plot.addEventListener("click", clicked, { signal });
  }

  private walk({ drawing, host, tip, walker }: Shown): void {
    host.addEventListener("keydown", (event) => {
      const chosen = event.key === "Enter" || event.key === " " ? walker.here() : undefined;
      const found = chosen ?? walker.go(event.key);
      if (!found) return;
      event.preventDefault();
      tip.pin(found);
      if (chosen) this.choose(drawing, chosen.line, chosen.index);
    });
  }

  private choose(drawing: Drawing, place: number, index: number): void {
    const line = drawing.scene().chart.lines[place];
    if (line) this.picks.toggle({ number: line.numbers[index] ?? 0, target: line.target });
  }

  private between(one: Pick, other: Pick): string {
    const { model = "", compare = "" } = this.root.dataset;
    const [before, after] = [one, other].map((pick) => `${model}@${pick.number}`) as [string, string];
    const given = new URLSearchParams({ before, after, target: one.target });
    if (other.target !== one.target) given.set("with_target", other.target);
    return `${compare}?${given}`;
  }

  /** Writes the part that is shown and the points that were chosen into the address, and draws them. */
  private update(how: "push" | "replace" = "replace"): void {
    const given = new URLSearchParams(location.search);
    for (const name of ["zoom", "point"]) given.delete(name);
    if (this.look.zoom) given.set("zoom", this.look.zoom.map((end) => end.toFixed(2)).join(BETWEEN));
    for (const text of this.picks.texts()) given.append("point", text);
    history[`${how}State`](null, "", withQuery(given));
    this.refresh();
  }

  private refresh(): void {
    for (const { drawing } of this.shown.values()) drawing.refresh();
    for (const button of this.root.querySelectorAll<HTMLElement>(".see-all")) button.hidden = !this.look.zoom;
  }
}

function sections(root: HTMLElement): HTMLElement[] {
  return [...root.querySelectorAll<HTMLElement>("[data-key]")];
}

function at(event: MouseEvent, drawing: Drawing): ReturnType<typeof under> {
  if (event.target instanceof HTMLElement && event.target.closest(".tip")) return undefined;
  const box = drawing.u.over.getBoundingClientRect();
  return under(drawing, event.clientX - box.left, event.clientY - box.top);
}

function lookOf(search: string): Look {
  const given = new URLSearchParams(search);
  const y = given.get("y");
  return {
    byTime: given.get("x") === "time",
    shownAs: y === "zero" || y === "change" ? y : "value",
    zoom: rangeOf(given.get("zoom")),
  };
}

function rangeOf(text: string | null): [number, number] | undefined {
  const [low = NaN, high = NaN] = (text ?? "").split(BETWEEN).map(Number);
  return low < high ? [low, high] : undefined;
}

const root = document.querySelector<HTMLElement>("[data-charts]");
const bar = document.querySelector<HTMLElement>("[data-picked]");
const options = document.querySelector<HTMLFormElement>("[data-options]");
if (root && bar && options) new Charts(root, bar, options);
