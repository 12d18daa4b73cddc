/** The scrolling list of a log's lines. */

const MAX_LINES = 5000;
const END_MARGIN_PX = 40;

/** The lines shown in a log panel. */
export class Lines {
  constructor(
    private readonly box: HTMLElement,
    private readonly list: HTMLElement,
  ) {}

  /** Returns the lines of a panel, null if it has none. */
  static within(panel: HTMLElement): Lines | null {
    const box = panel.querySelector<HTMLElement>(".lines");
    const list = box?.querySelector<HTMLElement>("ol");
    return box && list ? new Lines(box, list) : null;
  }

  /** Whether the last line is visible. */
  get isAtEnd(): boolean {
    return this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < END_MARGIN_PX;
  }

  /** Whether the list is full, so that further lines wait until the reader scrolls to the end. */
  get isFull(): boolean {
    return this.list.childElementCount >= MAX_LINES && !this.isAtEnd;
  }

  /** Scrolls to the last line. */
  toEnd(): void {
    this.box.scrollTop = this.box.scrollHeight;
  }

  /** Scrolls a line to the middle. */
  show(line: Element): void {
    const middle = (this.box.clientHeight - line.clientHeight) / 2;
    this.box.scrollTop += line.getBoundingClientRect().top - this.box.getBoundingClientRect().top - middle;
  }

  /** Marks a line as the current one. */
  mark(line: Element): void {
    for (const other of this.list.querySelectorAll(".here")) other.classList.remove("here");
    line.classList.add("here");
  }

  /** Appends lines; if following, old lines are dropped and the end is shown. */
  append(lines: Iterable<Element>, follow: boolean): void {
    this.list.append(...lines);
    if (!follow) return;
    while (this.list.childElementCount > MAX_LINES) this.list.firstElementChild?.remove();
    this.toEnd();
  }

  /** Calls back on scrolling with whether the end is visible. */
  onScroll(callback: (isAtEnd: boolean) => void): void {
    this.box.addEventListener("scroll", () => callback(this.isAtEnd), { passive: true });
  }
}
