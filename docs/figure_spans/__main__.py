"""`python -m figure_spans` with docs/ on the path: writes the quoted figures into the pages."""

from figure_spans import ROOT, pages, read_figures, rewrite

if __name__ == "__main__":
    figures = read_figures()
    for page in pages():
        before = page.read_text()
        after = rewrite(before, figures, str(page.relative_to(ROOT)))
        if after != before:
            page.write_text(after)
            print(f"{page.relative_to(ROOT)}: figures of {figures['figures_date']}")
