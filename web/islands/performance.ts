/** Charts of a model's figures: drawn over the server's SVG, with points that say more, zoom and comparisons. */

import { onColours, palette, type Palette } from "./charts/colours";
import { draw, type Drawing, type Page } from "./charts/drawing";
import type { Pick } from "./charts/layers";
import { Picks } from "./charts/picking";
import type { Look } from "./charts/placing";
import { fetchChart } from "./charts/points";
import { Tip, under } from "./charts/tips";

const SOON = "400px";
/** Between the ends of a zoomed range in the address; a range may begin below zero. */
const BETWEEN = "~";

/** The page's charts, and what they share. */
class Charts implements Page {
  readonly look: Look;
  colours: Palette = palette();
  private readonly drawings: Drawing[] = [];
  private readonly tips: Tip[] = [];
  private readonly picks: Picks;
  private readonly model: string;
  private readonly compared: string;
  private readonly versions: string;

  constructor(
    root: HTMLElement,
    bar: HTMLElement,
    private readonly options: HTMLFormElement,
  ) {
    const { model = "", compare = "", versions = "" } = root.dataset;
    [this.model, this.compared, this.versions] = [model, compare, versions];
    const given = new URLSearchParams(location.search);
    this.look = {
      byTime: given.get("x") === "time",
      relative: given.get("y") === "change",
      hidden: new Set(this.unchecked()),
      zoom: rangeOf(given.get("zoom")),
    };
    this.picks = new Picks(bar, (one, other) => this.between(one, other), () => this.update());
    this.picks.follow(given.getAll("point"));
    this.listen();
    this.drawSoon(root);
  }

  get picked(): readonly Pick[] {
    return this.picks.all;
  }

  zoom(range: [number, number] | undefined): void {
    this.look.zoom = range;
    for (const tip of this.tips) tip.hide();
    this.update();
  }

  private listen(): void {
    this.options.addEventListener("change", (event) => this.chose(event.target));
    this.options.addEventListener("formdata", (event) => tidy(event.formData, this.unchecked().length === 0));
    onColours(() => {
      this.colours = palette();
      this.update();
    });
  }

  /** What needs no other figures is drawn at once; the rest waits for the button. */
  private chose(field: EventTarget | null): void {
    if (!(field instanceof HTMLInputElement || field instanceof HTMLSelectElement)) return;
    for (const tip of this.tips) tip.hide();
    if (field.name === "target") {
      this.look.hidden = new Set(this.unchecked());
      this.update();
    } else if (field.name === "x" || field.name === "y") {
      if (field.name === "x") this.look.zoom = undefined;
      this.look.byTime = this.value("x") === "time";
      this.look.relative = this.value("y") === "change";
      for (const drawing of this.drawings) drawing.remake();
      this.update();
    }
  }

  private value(name: string): string {
    const field = this.options.elements.namedItem(name);
    return field instanceof HTMLSelectElement ? field.value : "";
  }

  private targets(): HTMLInputElement[] {
    return [...this.options.querySelectorAll<HTMLInputElement>('input[name="target"]')];
  }

  private unchecked(): string[] {
    const boxes = this.targets();
    return boxes.some((box) => box.checked) ? boxes.filter((box) => !box.checked).map((box) => box.value) : [];
  }

  private drawSoon(root: HTMLElement): void {
    const watcher = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) {
          if (!entry.isIntersecting || !(entry.target instanceof HTMLElement)) continue;
          watcher.unobserve(entry.target);
          void this.show(entry.target);
        }
      },
      { rootMargin: SOON },
    );
    for (const plot of root.querySelectorAll<HTMLElement>("[data-chart]")) watcher.observe(plot);
  }

  private async show(plot: HTMLElement): Promise<void> {
    const address = new URL(plot.dataset["points"] ?? "", location.href);
    address.searchParams.delete("target"); // others are shown as soon as they are chosen
    const chart = await fetchChart(address.href, plot.dataset["unit"] ?? "");
    const drawn = plot.querySelector<HTMLElement>(".drawn");
    if (!chart || !drawn) return; // the server's drawing stays
    const host = Object.assign(document.createElement("div"), { className: "canvas" });
    host.setAttribute("role", "img");
    host.setAttribute("aria-label", drawn.querySelector("svg")?.getAttribute("aria-label") ?? "");
    plot.prepend(host);
    drawn.hidden = true;
    const began = performance.now();
    const drawing = draw(chart, host, this);
    this.drawings.push(drawing);
    this.follow(plot, drawing);
    queueMicrotask(() => (plot.dataset["drawnMs"] = (performance.now() - began).toFixed(1)));
  }

  private follow(plot: HTMLElement, drawing: Drawing): void {
    const addresses = {
      versions: this.versions,
      compare: (before: number, after: number, target: string) =>
        this.between({ number: before, target }, { number: after, target }),
    };
    const tip = new Tip(() => drawing, addresses, plot);
    this.tips.push(tip);
    const whole = Object.assign(document.createElement("button"), {
      type: "button",
      className: "see-all quiet",
      textContent: "See all",
      hidden: !this.look.zoom,
    });
    whole.addEventListener("click", () => this.zoom(undefined));
    plot.append(whole);
    plot.addEventListener("mousemove", (event) => tip.hover(this.at(event, drawing)));
    plot.addEventListener("mouseleave", () => tip.hover(undefined));
    plot.addEventListener("click", (event) => {
      if (!(event.target instanceof HTMLElement) || event.target.closest(".tip, .see-all")) return;
      const found = this.at(event, drawing);
      const line = found && drawing.scene().chart.lines[found.line];
      if (!line) return tip.hide();
      tip.pin(found);
      this.picks.toggle({ number: line.numbers[found.index] ?? 0, target: line.target });
    });
  }

  private at(event: MouseEvent, drawing: Drawing): ReturnType<typeof under> {
    if (event.target instanceof HTMLElement && event.target.closest(".tip")) return undefined;
    const box = drawing.u.over.getBoundingClientRect();
    return under(drawing, event.clientX - box.left, event.clientY - box.top);
  }

  private between(one: Pick, other: Pick): string {
    const [before, after] = [one, other].map((pick) => `${this.model}@${pick.number}`) as [string, string];
    const given = new URLSearchParams({ before, after, target: one.target });
    if (other.target !== one.target) given.set("with_target", other.target);
    return `${this.compared}?${given}`;
  }

  /** Draws everything anew, and writes it into the address. */
  private update(): void {
    for (const drawing of this.drawings) drawing.refresh();
    for (const button of document.querySelectorAll<HTMLElement>(".see-all")) button.hidden = !this.look.zoom;
    const given = new URLSearchParams(location.search);
    for (const name of ["x", "y", "zoom", "point", "target"]) given.delete(name);
    if (this.look.byTime) given.set("x", "time");
    if (this.look.relative) given.set("y", "change");
    if (this.look.zoom) given.set("zoom", this.look.zoom.map((at) => at.toFixed(2)).join(BETWEEN));
    if (this.look.hidden.size)
      for (const box of this.targets()) if (box.checked) given.append("target", box.value);
    for (const text of this.picks.texts()) given.append("point", text);
    history.replaceState(null, "", `${location.pathname}${given.size ? `?${given}` : ""}${location.hash}`);
  }
}

/** An address without what says nothing. */
function tidy(data: FormData, everyTarget: boolean): void {
  for (const [name, value] of [...data.entries()]) if (value === "") data.delete(name);
  if (everyTarget) data.delete("target");
  for (const [name, usual] of [["x", "version"], ["y", "value"], ["limit", "200"], ["subject", "artifact"]] as const)
    if (data.get(name) === usual) data.delete(name);
}

function rangeOf(text: string | null): [number, number] | undefined {
  const [low = NaN, high = NaN] = (text ?? "").split(BETWEEN).map(Number);
  return low < high ? [low, high] : undefined;
}

const root = document.querySelector<HTMLElement>("[data-charts]");
const bar = document.querySelector<HTMLElement>("[data-picked]");
const options = document.querySelector<HTMLFormElement>("[data-options]");
if (root && bar && options) {
  for (const hint of document.querySelectorAll<HTMLElement>(".with-script")) hint.hidden = false;
  new Charts(root, bar, options);
}
