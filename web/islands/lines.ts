/** The list of a log's lines: where it is scrolled to, how new lines join it, and which line is marked. */

const MOST_LINES = 5000;
const NEAR_PX = 40;

/** The lines that a log's panel shows now. */
export class Lines {
  constructor(
    private readonly box: HTMLElement,
    private readonly list: HTMLElement,
  ) {}

  /** Those within a panel; null where it shows none. */
  static within(panel: HTMLElement): Lines | null {
    const box = panel.querySelector<HTMLElement>(".lines");
    const list = box?.querySelector<HTMLElement>("ol");
    return box && list ? new Lines(box, list) : null;
  }

  /** Whether the last line is in sight. */
  get isAtEnd(): boolean {
    return this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < NEAR_PX;
  }

  /** Whether there are so many that further ones have to wait until the reader comes to the end. */
  get isFull(): boolean {
    return this.list.childElementCount >= MOST_LINES && !this.isAtEnd;
  }

  /** Shows the last line. */
  toEnd(): void {
    this.box.scrollTop = this.box.scrollHeight;
  }

  /** Shows a line in the middle. */
  show(line: Element): void {
    const middle = (this.box.clientHeight - line.clientHeight) / 2;
    this.box.scrollTop += line.getBoundingClientRect().top - this.box.getBoundingClientRect().top - middle;
  }

  /** Marks a line, and no other one. */
  mark(line: Element): void {
    for (const other of this.list.querySelectorAll(".here")) other.classList.remove("here");
    line.classList.add("here");
  }

  /** Adds lines below the others; very old ones go, but never those that are read. */
  append(lines: Iterable<Element>, follow: boolean): void {
    this.list.append(...lines);
    if (!follow) return;
    while (this.list.childElementCount > MOST_LINES) this.list.firstElementChild?.remove();
    this.toEnd();
  }

  /** Calls back when the reader scrolls, with whether the end is in sight. */
  onScroll(told: (isAtEnd: boolean) => void): void {
    this.box.addEventListener("scroll", () => told(this.isAtEnd), { passive: true });
  }
}
