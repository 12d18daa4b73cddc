// What tests ask a page; browser.py wraps it, and calls one of these with one argument.
({
  /** Waits until what scripts changed is drawn. */
  settled: () =>
    new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)))),

  /** What axe finds wrong: everything about WCAG's levels A and AA, or about the rules named. Of rows that differ in
   * their texts alone one is judged: the others go, and with them most of a long page. */
  violations: async (rules) => {
    const shape = (node) =>
      [node.tagName, ...[...node.attributes].map(({ name, value }) => (name === "class" ? value : name))].join(" ");
    const seen = new Set();
    for (const row of document.querySelectorAll("tbody tr:not(:has([rowspan])), main li")) {
      const key = [row.parentElement, row, ...row.querySelectorAll("*")].map(shape).join();
      if (seen.has(key)) row.remove();
      seen.add(key);
    }
    const levels = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
    const only = rules.length ? { type: "rule", values: rules } : { type: "tag", values: levels };
    const { violations } = await axe.run(document, { runOnly: only, resultTypes: ["violations"] });
    const shown = ({ html, failureSummary }) =>
      `  ${html.slice(0, 200)}\n    ${(failureSummary ?? "").replace(/\s+/g, " ")}`;
    return violations.map(({ id, help, nodes }) => [`${id}: ${help}`, ...nodes.slice(0, 5).map(shown)].join("\n"));
  },

  /** What makes a page wider than its window; parts that scroll by themselves do not. */
  wider: () => {
    const root = document.documentElement;
    const width = root.clientWidth;
    if (root.scrollWidth <= width) return [];
    const around = (node) => (getComputedStyle(node).position === "absolute" ? node.offsetParent : node.parentElement);
    const scrolls = (node) =>
      node && node !== document.body && (getComputedStyle(node).overflowX !== "visible" || scrolls(around(node)));
    const right = (node) => Math.round(node.getBoundingClientRect().right);
    const parts = [...document.body.querySelectorAll("*")].filter(
      (node) => right(node) > width && !scrolls(around(node)),
    );
    const shown = parts.slice(0, 8).map((node) => `${right(node)} px: ${node.outerHTML.slice(0, 160)}`);
    return [`the page is ${root.scrollWidth} px wide in a window of ${width}`, ...shown];
  },

  /** What moved by itself after it was shown: how much, as the browser counts it, and what. */
  shifts: () =>
    new Promise((done) => {
      const found = [];
      const observer = new PerformanceObserver((list) => found.push(...list.getEntries()));
      observer.observe({ type: "layout-shift", buffered: true });
      const named = ({ node }) => (node?.outerHTML ?? node?.textContent ?? "?").slice(0, 160);
      const shown = ({ value, sources }) => [value, sources.map(named).join(" | ")];
      setTimeout(() => done(found.filter(({ hadRecentInput }) => !hadRecentInput).map(shown)), 100);
    }),
});
