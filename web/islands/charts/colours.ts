/** Colours of the page, as canvases need them; they change with the reader's light or dark. */

/** What charts are drawn with. */
export interface Palette {
  readonly lines: readonly string[];
  readonly ground: string;
  readonly line: string;
  readonly faint: string;
  readonly focus: string;
  readonly text: string;
  readonly flags: Readonly<Record<string, string>>;
}

/** The colours as they are now. */
export function palette(): Palette {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string): string => style.getPropertyValue(`--${name}`).trim() || "gray";
  return {
    lines: [1, 2, 3, 4, 5, 6].map((number) => of(`line-${number}`)),
    ground: of("ground"),
    line: of("line"),
    faint: of("faint"),
    focus: of("focus"),
    text: of("text"),
    flags: { better: of("good"), worse: of("bad"), same: of("calm") },
  };
}

/** Calls back whenever the reader changes between light, dark, few colours of their own, and paper. */
export function onColours(change: () => void): void {
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)", "print"]) matchMedia(query).addEventListener("change", change);
}
