/** Two points that are compared: chosen on a chart or in a table, and kept in the address. */

import type { Pick } from "./layers";

const BETWEEN = "~";
const MOST = 2;

/** What was chosen; tables, charts and the bar below them show it. */
export class Picks {
  readonly all: Pick[] = [];

  constructor(
    private readonly bar: HTMLElement,
    private readonly address: (before: Pick, after: Pick) => string,
    private readonly changed: () => void,
  ) {}

  /** Chooses a point, or drops it where it was chosen; of three the one chosen first goes. */
  toggle(pick: Pick): void {
    const at = this.all.findIndex((item) => same(item, pick));
    if (at >= 0) this.all.splice(at, 1);
    else this.all.push(pick);
    if (this.all.length > MOST) this.all.shift();
    this.show();
  }

  /** Drops all. */
  clear(): void {
    this.all.length = 0;
    this.show();
  }

  /** Takes over what an address says. */
  take(texts: readonly string[]): void {
    this.all.splice(0, this.all.length, ...texts.slice(0, MOST).map(parse));
    this.tell();
  }

  /** Does what boxes of tables below a node say from now on. */
  follow(root: HTMLElement): void {
    root.addEventListener("change", ({ target }) => {
      if (target instanceof HTMLInputElement && target.name === "point") this.toggle(parse(target.value));
    });
  }

  /** As forms and addresses have them. */
  texts(): string[] {
    return this.all.map((pick) => `${pick.number}${BETWEEN}${pick.target}`);
  }

  private show(): void {
    this.tell();
    this.changed();
  }

  private tell(): void {
    const chosen = new Set(this.texts());
    for (const box of boxes()) {
      box.checked = chosen.has(box.value);
      box.closest("tr")?.toggleAttribute("data-picked", box.checked);
    }
    this.bar.replaceChildren(...this.said());
  }

  private said(): Node[] {
    const [one, other] = [...this.all].sort((left, right) => left.number - right.number);
    if (!one) return [];
    const drop = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: "Clear" });
    drop.addEventListener("click", () => this.clear());
    if (!other) return [text(`Chosen: ${named(one)}. Choose another point to compare it with.`), drop];
    const link = Object.assign(document.createElement("a"), { className: "button", href: this.address(one, other), textContent: "Compare" });
    return [text(`Chosen: ${named(one)} and ${named(other)}.`), link, drop];
  }
}

function boxes(): NodeListOf<HTMLInputElement> {
  return document.querySelectorAll<HTMLInputElement>('input[name="point"]');
}

function parse(text: string): Pick {
  const [number = "", target = ""] = text.split(BETWEEN);
  return { number: Number(number), target };
}

function same(one: Pick, other: Pick): boolean {
  return one.number === other.number && one.target === other.target;
}

function named(pick: Pick): string {
  return `version ${pick.number} on ${pick.target}`;
}

function text(said: string): HTMLElement {
  return Object.assign(document.createElement("span"), { textContent: said });
}
